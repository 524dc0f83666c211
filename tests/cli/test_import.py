"""quantpack import: a synthetic GGUF with every block type against values computed here, folders, options, refusals."""
import itertools
import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from gguf_util import (ARR, BOOL, F32, I32, STR, TYPES, U32, U64, decode, gguf, random_blocks, read_safetensors, to_bf16)

QUANTPACK = os.path.abspath(os.environ["QUANTPACK"])
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def run(*args, code=0):
    p = subprocess.run([QUANTPACK, "import", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
    return p


def no_duplicates(pairs):
    assert len({k for k, _ in pairs}) == len(pairs), "duplicate key"
    return dict(pairs)


def load(path):
    return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=no_duplicates)


# A vocabulary of 8 byte-level symbols; 10 rows in the table, so two ids have no token.
BPE = {"tokenizer.ggml.model": (STR, "gpt2"), "tokenizer.ggml.pre": (STR, "qwen2"),
       "tokenizer.ggml.tokens": ((ARR, STR), ["<e>", "a", "b", "c", "ab", "\u0120", "abc", "[x]"]),
       "tokenizer.ggml.token_type": ((ARR, I32), [3, 1, 1, 1, 1, 1, 1, 4]),
       "tokenizer.ggml.merges": ((ARR, STR), ["a b", "ab c"]),
       "tokenizer.ggml.eos_token_id": (U32, 0)}
SPM = {"tokenizer.ggml.model": (STR, "llama"),
       "tokenizer.ggml.tokens": ((ARR, STR), ["<unk>", "<s>", "</s>", "<0x41>", "a", "b", "\u2581", "ab", "\u2581a", "\u2581ab",
                                              "aa", "aaa", "  ", "\u00e9"]),
       "tokenizer.ggml.token_type": ((ARR, I32), [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 5, 4, 1]),
       "tokenizer.ggml.scores": ((ARR, F32), [0, 0, 0, 0, -9, -9, -9, -1, -2, -2, -3, -4, -7, -9]),
       "tokenizer.ggml.bos_token_id": (U32, 1), "tokenizer.ggml.eos_token_id": (U32, 2),
       "tokenizer.ggml.unknown_token_id": (U32, 0)}


def llama(layers=2, d=256, ff=512, heads=4, kv=2, hd=64, arch="llama", tok=BPE, types=None, seed=1):
    """A model whose tensors take the block types in turn; the data are random bits."""
    rng = np.random.default_rng(seed)
    n_tokens = len(tok["tokenizer.ggml.tokens"][1])
    meta = {"general.architecture": (STR, arch), f"{arch}.block_count": (U32, layers), f"{arch}.context_length": (U64, 4096),
            f"{arch}.embedding_length": (U32, d), f"{arch}.feed_forward_length": (U32, ff),
            f"{arch}.attention.head_count": (U32, heads), f"{arch}.attention.head_count_kv": (U32, kv),
            f"{arch}.attention.layer_norm_rms_epsilon": (F32, 1e-5), f"{arch}.rope.freq_base": (F32, 1e6),
            f"{arch}.attention.key_length": (U32, hd), **tok}
    types = list(types or TYPES)
    tensors, turn = [], itertools.cycle(types)

    def add(name, shape, t=None):
        t = t or next(turn)
        tensors.append((name, shape, t, random_blocks(rng, t, int(np.prod(shape)))))

    add("token_embd.weight", [n_tokens + 2, d])
    add("output_norm.weight", [d], "F32")
    for i in range(layers):
        b = f"blk.{i}."
        add(b + "attn_norm.weight", [d], "F32")
        add(b + "attn_q.weight", [heads * hd, d])
        add(b + "attn_k.weight", [kv * hd, d])
        add(b + "attn_v.weight", [kv * hd, d])
        add(b + "attn_output.weight", [d, heads * hd])
        if arch != "llama":
            add(b + "attn_q_norm.weight", [hd], "F32")
            add(b + "attn_k_norm.weight", [hd], "F32")
        add(b + "ffn_norm.weight", [d], "F32")
        add(b + "ffn_gate.weight", [ff, d])
        add(b + "ffn_up.weight", [ff, d])
        add(b + "ffn_down.weight", [d, ff])
        if arch == "gemma3":
            add(b + "post_attention_norm.weight", [d], "F32")
            add(b + "post_ffw_norm.weight", [d], "F32")
    if arch == "gemma3":
        meta[f"{arch}.attention.sliding_window"] = (U32, 512)
    return meta, tensors


NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GEMMA = {**NAMES, "ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm"}


def expected(arch, tensors, heads=4, kv=2):
    """{name in the checkpoint: fp32 array}"""
    out = {}
    for name, shape, t, raw in tensors:
        w = decode(t, raw).reshape(shape)
        part = name.split(".")
        if part[0] == "blk":
            hf = f"model.layers.{part[1]}.{(GEMMA if arch == 'gemma3' else NAMES)[part[2]]}.{part[3]}"
        else:
            hf = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                  "output.weight": "lm_head.weight"}[name]
        if arch == "llama" and part[0] == "blk" and part[2] in ("attn_q", "attn_k"):
            n, rows = heads if part[2] == "attn_q" else kv, shape[0]
            half = rows // n // 2
            w = np.stack([w[h * 2 * half + 2 * (i % half) + i // half] for h in range(n) for i in range(2 * half)])
        if arch == "gemma3" and name.endswith("norm.weight"):
            w = w - np.float32(1)
        out[hf] = w
    return out


def check_weights(path, want, dtype):
    got = read_safetensors(path)
    assert list(got) == list(want)
    for name, w in want.items():
        dt, shape, raw = got[name]
        assert (dt, shape) == (dtype, list(w.shape)), name
        assert raw == (to_bf16(w) if dtype == "BF16" else w.astype("<f4")).tobytes(), name


@pytest.mark.parametrize("arch", ["llama", "gemma3", "qwen3"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_every_block_type(tmp_path, arch, dtype):
    meta, tensors = llama(arch=arch)
    assert {t for _, _, t, _ in tensors} == set(TYPES)
    src, dst = tmp_path / "m.gguf", tmp_path / "a" / "b"
    src.write_bytes(gguf(meta, tensors))
    p = run(src, dst, "--dtype", dtype)
    assert f"{len(tensors)} tensors" in p.stdout and "8 tokens, 2 merges" in p.stdout and p.stderr == ""
    assert {f.name for f in dst.iterdir()} == FILES
    assert {f.name for f in tmp_path.iterdir()} == {"m.gguf", "a"} and len(list(dst.parent.iterdir())) == 1
    check_weights(dst / "model.safetensors", expected(arch, tensors), dtype.upper())
    c = load(dst / "config.json")
    assert c["architectures"] == [{"llama": "LlamaForCausalLM", "gemma3": "Gemma3ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[arch]]
    assert c["model_type"] == {"gemma3": "gemma3_text"}.get(arch, arch)
    want = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
            "rope_theta": 1e6, "vocab_size": 10, "tie_word_embeddings": True, "attention_bias": False,
            "dtype": "bfloat16" if dtype == "bf16" else "float32", "bos_token_id": None, "eos_token_id": 0,
            "pad_token_id": None}
    assert {k: c[k] for k in want} == want
    if arch == "gemma3":
        assert c["sliding_window"] == 512 and c["query_pre_attn_scalar"] == 64 and c["rope_local_base_freq"] == 10000.0
        assert c["layer_types"] == ["sliding_attention"] * 2
    assert load(dst / "generation_config.json") == {"eos_token_id": 0}


def test_output_weight_alignment_and_version_2(tmp_path):
    meta, tensors = llama(layers=1, types=["Q8_0"])
    tensors.append(("output.weight", [10, 256], "Q8_0", random_blocks(np.random.default_rng(5), "Q8_0", 2560)))
    meta["general.alignment"] = (U32, 64)
    src, dst = tmp_path / "m.gguf", tmp_path / "d"
    src.write_bytes(gguf(meta, tensors, align=64, version=2))
    run(src, dst)
    check_weights(dst / "model.safetensors", expected("llama", tensors), "BF16")
    assert load(dst / "config.json")["tie_word_embeddings"] is False


def test_biases_are_reordered(tmp_path):
    meta, tensors = llama(layers=1, types=["F16"])
    rng = np.random.default_rng(3)
    for name, n in (("attn_q", 256), ("attn_k", 128), ("attn_v", 128), ("attn_output", 256)):
        tensors.append((f"blk.0.{name}.bias", [n], "F32", rng.standard_normal(n).astype("<f4").tobytes()))
    src, dst = tmp_path / "m.gguf", tmp_path / "d"
    src.write_bytes(gguf(meta, tensors))
    run(src, dst, "--dtype", "f32")
    check_weights(dst / "model.safetensors", expected("llama", tensors), "F32")
    assert load(dst / "config.json")["attention_bias"] is True


def imported(tmp_path, meta, tensors, *args):
    src, dst = tmp_path / "m.gguf", tmp_path / "d"
    src.write_bytes(gguf(meta, tensors))
    run(src, dst, *args)
    return dst


def test_bpe_tokenizer(tmp_path):
    meta, tensors = llama(layers=1, types=["F16"])
    meta["tokenizer.chat_template"] = (STR, "{{ \"\u00e9\\\n\t\u0001\" }}")
    dst = imported(tmp_path, meta, tensors)
    t = load(dst / "tokenizer.json")
    assert t["model"]["vocab"] == {s: i for i, s in enumerate(BPE["tokenizer.ggml.tokens"][1])}
    assert t["model"]["merges"] == [["a", "b"], ["ab", "c"]]
    assert [(a["id"], a["content"], a["special"]) for a in t["added_tokens"]] == [(0, "<e>", True), (7, "[x]", False)]
    assert t["normalizer"] == {"type": "NFC"} and t["post_processor"] is None
    assert t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].startswith("(?i:'s|'t|")
    assert t["model"]["byte_fallback"] is False and t["model"]["unk_token"] is None
    c = load(dst / "tokenizer_config.json")
    assert c["chat_template"] == "{{ \"\u00e9\\\n\t\u0001\" }}" and c["eos_token"] == "<e>" and c["add_bos_token"] is False
    assert "bos_token" not in c and c["model_max_length"] == 4096


@pytest.mark.parametrize("unnamed", [True, False])
def test_named_chat_templates(tmp_path, unnamed):
    meta, tensors = llama(layers=1, types=["F16"])
    if unnamed:
        meta["tokenizer.chat_template"] = (STR, "one")
    meta["tokenizer.chat_templates"] = ((ARR, STR), ["tool_use", "rag"])
    meta["tokenizer.chat_template.tool_use"] = (STR, "\"two\"")
    meta["tokenizer.chat_template.rag"] = (STR, "three")
    c = load(imported(tmp_path, meta, tensors) / "tokenizer_config.json")
    want = [("default", "one")] * unnamed + [("rag", "three"), ("tool_use", "\"two\"")]
    assert c["chat_template"] == [{"name": n, "template": t} for n, t in want]


@pytest.mark.parametrize("prefix", [True, False])
def test_spm_tokenizer(tmp_path, prefix):
    meta, tensors = llama(layers=1, types=["F16"], tok=SPM)
    meta["tokenizer.ggml.add_space_prefix"] = (BOOL, prefix)
    t = load(imported(tmp_path, meta, tensors) / "tokenizer.json")
    # score first; then longer left half, longer right half, id. Unused pieces make no merge but count as halves; the
    # user-defined piece of two U+2581 has score 0.
    assert t["model"]["merges"] == [["\u2581", "\u2581"], ["a", "b"], ["\u2581a", "b"], ["\u2581", "ab"], ["\u2581", "a"],
                                    ["a", "a"]]
    assert t["model"]["vocab"]["\u2581\u2581"] == 12 and t["model"]["unk_token"] == "<unk>" and t["model"]["fuse_unk"]
    assert [a["id"] for a in t["added_tokens"]] == [0, 1, 2, 12]
    assert t["pre_tokenizer"] is None and len(t["decoder"]["decoders"]) == (4 if prefix else 3)
    assert t["normalizer"]["type"] == ("Sequence" if prefix else "Replace")
    assert t["post_processor"]["single"][0]["SpecialToken"]["id"] == "<s>"


def test_end_of_sequence_and_end_of_turn(tmp_path):
    meta, tensors = llama(layers=1, types=["F16"], tok=SPM)
    meta["tokenizer.ggml.add_eos_token"] = (BOOL, True)
    meta["tokenizer.ggml.eot_token_id"] = (U32, 12)
    dst = imported(tmp_path, meta, tensors)
    p = load(dst / "tokenizer.json")["post_processor"]
    assert [list(x)[0] for x in p["single"]] == ["SpecialToken", "Sequence", "SpecialToken"]
    assert len(p["pair"]) == 6 and set(p["special_tokens"]) == {"<s>", "</s>"}
    assert load(dst / "generation_config.json") == {"bos_token_id": 1, "eos_token_id": [2, 12]}


def test_rope_scaling_is_kept(tmp_path):
    meta, tensors = llama(layers=1, types=["F16"])
    inv = 1e6 ** (-np.arange(0, 64, 2) / 64)
    wave = 2 * np.pi / inv
    smooth = np.clip((8192 / wave - 1) / 3, 0, 1)
    freqs = (1 / ((1 - smooth) / 8 + smooth)).astype("<f4")
    rope = tensors + [("rope_freqs.weight", [32], "F32", freqs.tobytes())]
    (tmp_path / "1").mkdir()
    c = load(imported(tmp_path / "1", meta, rope) / "config.json")
    assert c["rope_scaling"] == {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 8192}
    (tmp_path / "2").mkdir()
    ones = tensors + [("rope_freqs.weight", [32], "F32", np.ones(32, "<f4").tobytes())]
    dst = imported(tmp_path / "2", meta, ones)
    assert "rope_scaling" not in load(dst / "config.json")
    check_weights(dst / "model.safetensors", expected("llama", tensors), "BF16")
    (tmp_path / "3").mkdir()
    meta["llama.rope.scaling.type"], meta["llama.rope.scaling.factor"] = (STR, "yarn"), (F32, 2.5)
    meta["llama.rope.scaling.original_context_length"] = (U32, 1024)
    c = load(imported(tmp_path / "3", meta, tensors) / "config.json")
    assert c["rope_scaling"] == {"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 1024}


def small():
    return llama(layers=1, types=["F16"])


def refused(tmp_path, blob, *parts, code=1):
    src, dst = tmp_path / "bad.gguf", tmp_path / "bad"
    src.write_bytes(blob)
    t0 = time.monotonic()
    p = run(src, dst, code=code)
    assert time.monotonic() - t0 < 5  # the process under sanitizers; the library's own bound is in the unit tests
    for part in parts:
        assert part in p.stderr, p.stderr
    assert p.stdout == "" and not dst.exists() and {f.name for f in tmp_path.iterdir()} == {"bad.gguf"}


@pytest.mark.parametrize("key,val,parts", [
    ("general.architecture", (STR, "mamba"), ["general.architecture is \"mamba\"", "llama, gemma3 and qwen3"]),
    ("llama.block_count", None, ["llama.block_count is missing"]),
    ("llama.block_count", (U32, 2), ["blk.1.attn_norm.weight is missing"]),
    ("llama.block_count", (U32, 2000), ["is 2000, must be 1..1024"]),
    ("llama.block_count", (STR, "1"), ["is string, must be an integer"]),
    ("llama.attention.head_count", (U32, 3), ["blk.0.attn_q.weight: 256 outputs, must be 3 heads of 64"]),
    ("llama.attention.head_count_kv", (U32, 9), ["is 9, must be 1..4"]),
    ("llama.attention.layer_norm_rms_epsilon", (F32, float("nan")), ["is not finite"]),
    ("llama.rope.freq_base", (F32, 0.0), ["is 0, must be positive"]),
    ("llama.expert_count", (U32, 8), ["llama.expert_count is set"]),
    ("llama.rope.scaling.type", (STR, "longrope"), ["\"longrope\", supported are none, linear and yarn"]),
    ("llama.attention.value_length", (U32, 32), ["value_length is 32, must equal the head size 64"]),
    ("tokenizer.ggml.model", (STR, "bert"), ["\"bert\", supported are gpt2 and llama"]),
    ("tokenizer.ggml.pre", (STR, "tekken"), ["\"tekken\", supported are gpt-2, smollm"]),
    ("tokenizer.ggml.merges", ((ARR, STR), ["ab"]), ["merges[0] has no space"]),
    ("tokenizer.ggml.merges", ((ARR, I32), [1]), ["must be an array of strings"]),
    ("tokenizer.ggml.token_type", ((ARR, I32), [1]), ["token_type has 1 elements, must have 8"]),
    ("tokenizer.ggml.token_type", ((ARR, I32), [9] * 8), ["token_type[0] is 9"]),
    ("tokenizer.ggml.eos_token_id", (U32, 9), ["eos_token_id is 9, must be 0..7"]),
    ("tokenizer.ggml.tokens", ((ARR, STR), [b"\xff"] * 8), ["tokens[0] is not valid UTF-8"]),
    ("tokenizer.ggml.tokens", ((ARR, STR), ["a"] * 11), ["has 11 elements, token_embd.weight 10 rows"]),
    ("split.count", (U32, 3), ["one part of 3", "llama-gguf-split --merge"]),
    ("general.alignment", (U32, 48), ["general.alignment is 48, must be a power of two"]),
])
def test_metadata_refused(tmp_path, key, val, parts):
    meta, tensors = small()
    meta.pop(key, None)
    if val:
        meta[key] = val
    refused(tmp_path, gguf(meta, tensors), *parts)


def test_tensors_refused(tmp_path):
    meta, tensors = small()
    iq = [*tensors[:2], ("blk.0.attn_norm.weight", [256], 20, bytes(512)), *tensors[3:]]
    refused(tmp_path, gguf(meta, iq), "blk.0.attn_norm.weight: tensor type IQ4_NL; supported are F32", "llama-quantize")
    iq[2] = (*iq[2][:2], 99, iq[2][3])
    refused(tmp_path, gguf(meta, iq), "tensor type 99")
    refused(tmp_path, gguf(meta, tensors + [("blk.0.ffn_gate_exps.weight", [2], "F32", bytes(8))]),
            "blk.0.ffn_gate_exps.weight is none that a llama model has")
    refused(tmp_path, gguf(meta, tensors + [("blk.1.attn_q.weight", [2], "F32", bytes(8))]), "the model has 1 layers")
    refused(tmp_path, gguf(meta, tensors + [tensors[-1]]), "named twice")
    refused(tmp_path, gguf(meta, tensors)[:-1], "rows of 1024 bytes at offset")
    nan = [t if t[0] != "output_norm.weight" else (*t[:3], np.full(256, np.nan, "<f4").tobytes()) for t in tensors]
    refused(tmp_path, gguf(meta, nan), "output_norm.weight: a weight is infinite or not a number")
    ragged = [*tensors[:-1], ("blk.0.ffn_down.weight", [256, 500], "Q4_K", bytes(144 * 512))]
    refused(tmp_path, gguf(meta, ragged), "rows of 500 weights, must be 1..16777216 and a multiple of 256 for Q4_K")
    refused(tmp_path, b"GGML" + gguf(meta, tensors)[4:], "does not begin with \"GGUF\"")
    refused(tmp_path, gguf(meta, tensors, version=1), "GGUF version 1, supported are 2 and 3")
    refused(tmp_path, b"", "does not begin with \"GGUF\"")


def test_usage():
    p = subprocess.run([QUANTPACK, "import", "--help"], capture_output=True, text=True)
    assert p.returncode == 0 and "examples:" in p.stdout and "--dtype" in p.stdout
    assert run("x.gguf", code=2).stdout == ""
    assert "--dtype" in run("x.gguf", "d", "--dtype", "f16", code=2).stderr
    run("x.gguf", "d", "--bogus", code=2)
    assert "/nonexistent/x.gguf" in run("/nonexistent/x.gguf", "/nonexistent/d", code=1).stderr


def test_folders(tmp_path):
    meta, tensors = small()
    src = tmp_path / "m.gguf"
    src.write_bytes(gguf(meta, tensors))
    empty = tmp_path / "empty"
    empty.mkdir()
    run(src, str(empty) + "/")
    assert {f.name for f in empty.iterdir()} == FILES
    before = (empty / "config.json").read_bytes()
    p = run(src, empty, code=1)
    assert "not empty" in p.stderr and "--force" in p.stderr
    (empty / "notes.txt").write_text("mine")
    run(src, empty, "--force", "--dtype", "f32")
    assert {f.name for f in empty.iterdir()} == FILES | {"notes.txt"} and (empty / "config.json").read_bytes() != before
    (empty / "model-00001-of-00002.safetensors").write_text("x")
    assert "would become part of the imported model" in run(src, empty, "--force", code=1).stderr
    file = tmp_path / "file"
    file.write_text("x")
    assert "exists and is not a folder" in run(src, file, code=1).stderr and file.read_text() == "x"
    # the current folder, and a failure that leaves an existing folder as it was
    here = tmp_path / "here"
    here.mkdir()
    assert subprocess.run([QUANTPACK, "import", src, "."], cwd=here, capture_output=True).returncode == 0
    assert {f.name for f in here.iterdir()} == FILES
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(gguf(meta, [t if t[0] != "output_norm.weight" else (*t[:3], np.full(256, np.inf, "<f4").tobytes())
                                for t in tensors]))
    kept = {f.name: f.read_bytes() for f in here.iterdir()}
    run(bad, here, "--force", code=1)
    assert {f.name: f.read_bytes() for f in here.iterdir()} == kept


@pytest.mark.parametrize("signals, code", [([signal.SIGINT], 130), ([signal.SIGINT, signal.SIGINT], 130),
                                           ([signal.SIGTERM], 143), ([signal.SIGHUP], 129)])
def test_interrupt_leaves_nothing(tmp_path, signals, code):
    meta, tensors = llama(layers=1, types=["F16"])
    big = np.zeros((10, 256), "<f2")
    meta["tokenizer.ggml.merges"] = ((ARR, STR), ["a b"] * 10)
    # 1.5 GB of weights in a sparse file: the embedding table alone
    rows = 3_000_000
    name, _, t, _ = tensors[0]
    blob = gguf(meta, tensors[1:] + [(name, [rows, 256], t, big.tobytes())])
    src, dst = tmp_path / "m.gguf", tmp_path / "d"
    src.write_bytes(blob)
    os.truncate(src, len(blob) - big.nbytes + rows * 512)
    p = subprocess.Popen([QUANTPACK, "import", src, dst], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("d.import-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    for s in signals:
        p.send_signal(s)
    out, err = p.communicate(timeout=60)
    assert p.returncode == code and "interrupted" in err and out == ""
    assert {f.name for f in tmp_path.iterdir()} == {"m.gguf"}
