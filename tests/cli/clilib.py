"""What the command line tests share: running the binary and reading goldens. Standard library and NumPy only."""
import json
import os
import pathlib
import signal
import struct
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("QUANTPACK", str(ROOT / "build/dev/quantpack"))
MODELS = ROOT / "tests/vectors/models"
DENSE = ["llama", "smollm2", "qwen3", "gemma3", "qwen3_5"]
PACKS = ["llama-exl3", "qwen3-exl3", "qwen3_5-exl3"]


def run(*args, code=0, stdin=None, env=None, timeout=240):
    """Runs the program; checks its exit code unless code is None."""
    r = subprocess.run([BINARY, *map(str, args)], input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
                       capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}, cwd=ROOT)
    if code is not None:
        assert r.returncode == code, f"exit code {r.returncode}, wanted {code}\nstdout: {r.stdout}\nstderr: {r.stderr}"
    assert "Sanitizer" not in r.stderr, r.stderr
    return r


def start(*args, **kw):
    return subprocess.Popen([BINARY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, **kw)


def interrupt(process):
    process.send_signal(signal.SIGINT)


def read_safetensors(path):
    dtypes = {"F32": np.float32, "I32": np.int32, "F16": np.float16, "I16": np.int16}
    data = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    out = {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] in dtypes:
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a:8 + n + b], dtypes[t["dtype"]]).reshape(t["shape"])
    return out


_goldens = {}


def golden(model):
    if model not in _goldens:
        _goldens[model] = read_safetensors(MODELS / model / "golden.safetensors")
    return _goldens[model]


def ids_text(ids):
    return ",".join(str(int(i)) for i in ids)


def write_ids_file(path, lists):
    path.write_text("".join(json.dumps([int(i) for i in ids]) + "\n" for ids in lists))
    return path


def byte_symbols():
    """The printable character that byte-level BPE writes each byte as."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, n = {}, 0
    for b in range(256):
        if b in plain:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + n)
            n += 1
    return out


TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def text_model(folder, template=TEMPLATE, name="llama"):
    """A tiny model with a tokenizer of its own: token b is byte b, 256 and 257 are <|im_start|> and <|im_end|>, the rest of its
    320 ids are words."""
    folder.mkdir()
    config = json.loads((MODELS / name / "config.json").read_text())
    config["eos_token_id"] = 257
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").symlink_to(MODELS / name / "model.safetensors")
    vocab = {s: b for b, s in byte_symbols().items()}
    vocab.update({"<|im_start|>": 256, "<|im_end|>": 257})
    vocab.update({f"word{i}": i for i in range(258, 320)})
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, c in ((256, "<|im_start|>"), (257, "<|im_end|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                           "vocab": vocab, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"eos_token": "<|im_end|>"}
    if template:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
