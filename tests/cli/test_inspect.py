"""inspect and plan on tiny models."""
import json

import pytest
from clilib import DENSE, MODELS, PACKS, run


@pytest.mark.parametrize("model", DENSE + PACKS)
def test_json_and_text_list_every_tensor(model):
    info = json.loads(run("inspect", MODELS / model, "--json").stdout)
    names = [t["name"] for t in info["tensors"]]
    assert names == sorted(names) and len(set(names)) == len(names) == info["totals"]["tensors"]
    text = run("inspect", MODELS / model).stdout
    listed = [line.split()[0] for line in text.splitlines()[1:len(names) + 1]]
    assert listed == names
    assert sum(t["bytes"] for t in info["tensors"]) == info["totals"]["bytes"]
    assert all(t["use"] in ("used", "later", "unused") for t in info["tensors"])
    by_name = {t["name"]: t for t in info["tensors"]}
    assert by_name["input_ids.0"]["use"] == "unused"


@pytest.mark.parametrize("model", PACKS)
def test_bits_and_codebooks_are_those_of_the_pack(model):
    info = json.loads(run("inspect", MODELS / model, "--json").stdout)
    by_name = {t["name"]: t for t in info["tensors"]}
    storage = json.loads((MODELS / model / "quantization_config.json").read_text())["tensor_storage"]
    n = 0
    for key, entry in storage.items():
        t = by_name.get(key + ".trellis")
        if entry.get("quant_format") != "exl3" or t is None:
            continue
        n += 1
        assert t["bits"] == entry["bits_per_weight"]
        wanted = "mul1" if "mul1_multiplier" in entry else "mcg" if "mcg_multiplier" in entry else "3inst"
        assert t["codebook"] == wanted, key
        assert by_name[key + ".suh"]["bits"] is None
    assert n > 5
    used = [t for t in info["tensors"] if t["use"] == "used" and t["name"].endswith(".trellis")]
    weights = [t["shape"][0] * t["shape"][1] * 256 for t in used]
    average = sum(t["bits"] * w for t, w in zip(used, weights)) / sum(weights)
    assert abs(info["totals"]["exl3_bits_per_weight"] - average) < 1e-9


def test_later_parts_are_named_and_totals_alone_can_be_asked_for():
    info = json.loads(run("inspect", MODELS / "qwen3_5", "--json").stdout)
    later = [t["name"] for t in info["tensors"] if t["use"] == "later"]
    assert any(n.startswith("mtp.") for n in later) and any("visual" in n for n in later)
    assert info["totals"]["later_tensors"] == len(later)
    totals = json.loads(run("inspect", MODELS / "qwen3_5", "--json", "--totals").stdout)
    assert "tensors" not in totals and totals["totals"] == info["totals"]


def test_a_model_that_cannot_run_is_still_listed(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchForCausalLM"], "model_type": "nosuch"}')
    (tmp_path / "model.safetensors").symlink_to(MODELS / "llama/model.safetensors")
    out = run("inspect", tmp_path).stdout
    assert "model.embed_tokens.weight" in out and "cannot run it" in out and "NoSuchForCausalLM" in out
    assert "error" in json.loads(run("inspect", tmp_path, "--json").stdout)["model"]


def test_plan_adds_up_and_grows_with_length_and_sequences():
    def plan(*options):
        return json.loads(run("plan", MODELS / "llama", "--json", *options).stdout)
    a = plan("--max-model-len", 64)
    parts = ("weights_mapped", "weights_heap", "kv", "state", "scratch", "tokenizer", "base")
    assert a["total"] == sum(a[p] for p in parts)
    assert a["max_model_len"] == 64 and a["max_num_seqs"] == 1
    assert plan("--max-model-len", 256)["kv"] > a["kv"]
    assert plan("--max-model-len", 64, "--max-num-seqs", 4)["kv"] > a["kv"]
    fp16 = plan("--max-model-len", 64, "--kv-cache-dtype", "fp16")
    assert fp16["kv"] * 2 == a["kv"]
    assert a["fits"] and a["fits_max_model_len"] == 512
    hybrid = json.loads(run("plan", MODELS / "qwen3_5", "--json", "--max-num-seqs", 3).stdout)
    assert hybrid["state"] > 0


def test_plan_takes_a_prompt_as_generate_does():
    a = json.loads(run("plan", MODELS / "llama", "--json", "--prompt-ids", "9,10,11", "--max-tokens", 20).stdout)
    assert a["max_model_len"] == 23 and a["max_num_seqs"] == 1 and a["tokenizer"] == 0
    assert "this fits" in run("plan", MODELS / "llama", "--prompt-ids", "9").stdout
