"""Two real models from PyPI against transformers in fp32 (vectors/real_models): token ids exact, the rendered chat template
equal, prompt logprobs and the first step's top 5 within 2e-3, greedy tokens equal. Skipped, with the reason, without a
network."""
import json
import subprocess

import numpy as np
import pytest
from test_import_real_slow import PACKAGES, QUANTPACK, ROOT, fetch

VECTORS = ROOT / "tests" / "vectors" / "real_models"


@pytest.fixture(scope="module", params=sorted(PACKAGES))
def golden(request, tmp_path_factory):
    want = json.loads((VECTORS / f"{request.param}_golden.json").read_text(encoding="utf-8"))
    model = tmp_path_factory.mktemp(request.param) / "model"
    run("import", fetch(request.param, want["gguf_sha256"]), model)
    return model, want


def run(*args):
    p = subprocess.run([QUANTPACK, *map(str, args)], capture_output=True, text=True, timeout=500)
    assert p.returncode == 0, p.stderr
    return p.stdout


def joined(ids):
    return ",".join(map(str, ids))


def test_ids_are_exact(golden, tmp_path):
    model, want = golden
    special = ["--add-special"] if "bos_token" in json.loads((model / "tokenizer_config.json").read_text()) and \
        want["prompts"][0]["ids"][0] == 2 else []
    lines = tmp_path / "texts"
    lines.write_text("".join(json.dumps(p["text"]) + "\n" for p in want["prompts"]))
    out = [json.loads(line) for line in run("tokenize", model, "--jsonl", lines, *special).splitlines()]
    assert out == [p["ids"] for p in want["prompts"]]


def test_logprobs_and_top_5(golden, tmp_path):
    model, want = golden
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    for p in want["prompts"]:
        dump = tmp_path / "logits"
        run("eval", model, "--prompt-ids", joined(p["ids"]), "--dump-logits", dump)
        logits = np.fromfile(dump, "<f4").reshape(len(p["ids"]), vocab).astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        sums = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        for i, lp in enumerate(p["prompt_logprobs"]):
            if i:
                assert abs(logits[i - 1, p["ids"][i]] - sums[i - 1] - lp) < 2e-3, (p["text"], i)
        assert abs(sums[-1] - p["logsumexp_first_step"]) < 2e-3
        order = np.argsort(-logits[-1], kind="stable")[:5]
        assert [int(i) for i in order] == [i for i, _ in p["top5_first_step"]]
        assert all(abs(logits[-1, i] - v) < 2e-3 for i, v in p["top5_first_step"])


def test_greedy_tokens(golden, tmp_path):
    model, want = golden
    lines = tmp_path / "prompts"
    lines.write_text("".join(json.dumps(p["ids"]) + "\n" for p in want["prompts"]))
    longest = max(len(p["greedy_ids"]) for p in want["prompts"])
    out = run("generate", model, "--prompt-ids-file", lines, "--max-tokens", longest, "--temperature", 0, "--ignore-eos",
              "--print-ids")
    for line, p in zip(out.splitlines(), want["prompts"], strict=True):
        assert [int(i) for i in line.split(",")][:len(p["greedy_ids"])] == p["greedy_ids"]


def test_chat_template(golden, tmp_path):
    model, want = golden
    config = json.loads((model / "tokenizer_config.json").read_text())
    if "chat_template" not in config:
        pytest.skip("a base model: it has no chat template")
    (tmp_path / "t").write_text(config["chat_template"], newline="")
    for p in want["prompts"]:
        if "messages" in p:
            (tmp_path / "c").write_text(json.dumps({"messages": p["messages"], "add_generation_prompt": True}))
            assert run("template", "--file", tmp_path / "t", "--context", tmp_path / "c") == p["text"]
