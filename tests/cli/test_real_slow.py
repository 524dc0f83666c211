"""Slow: random packs of real shapes, and the model that ./quickstart fetched, on a release build where there is one."""
import json
import os
import pathlib
import subprocess
import time

import pytest
from clilib import ROOT, ids_text, run
import clilib

RELEASE = ROOT / "build/release/quantpack"
SMOLLM2 = pathlib.Path(os.environ.get("QP_SMOLLM2", ROOT / "models/SmolLM2-135M-Instruct"))


@pytest.fixture(autouse=True)
def release(monkeypatch):
    """Sanitizers change the memory that a process takes, and the time."""
    if not RELEASE.exists():
        pytest.skip("no build/release/quantpack: ./quickstart --build-only makes it")
    monkeypatch.setattr(clilib, "BINARY", str(RELEASE))


@pytest.fixture
def smollm2():
    if not (SMOLLM2 / "model.safetensors").exists():
        pytest.skip(f"no {SMOLLM2}: ./quickstart makes it")
    return SMOLLM2


def peak_rss(*args):
    """Peak resident bytes of a run."""
    p = subprocess.Popen([str(RELEASE), *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0
    return usage.ru_maxrss * 1024


@pytest.mark.parametrize("options", [
    ["-p", "Why is the sky blue?", "--max-tokens", 40],
    ["-p", "Why is the sky blue?", "--max-tokens", 20, "--threads", 1, "--kv-cache-dtype", "fp16", "--raw"],
    ["--prompt-ids", ids_text(range(1000, 1600)), "--max-tokens", 8, "--print-ids"],
    ["--prompt-ids", ids_text(range(1000, 1300)), "--max-tokens", 200, "--print-ids", "--max-num-batched-tokens", 64],
])
def test_plan_is_within_3_percent_of_the_real_peak(smollm2, options):
    plan_options = [o for o in options if o != "--print-ids"]
    planned = json.loads(run("plan", smollm2, *plan_options, "--json").stdout)["total"]
    real = peak_rss("generate", smollm2, *options, "--temperature", 0, "--ignore-eos")
    assert abs(planned / real - 1) < 0.03, (planned, real)


def test_the_model_answers(smollm2):
    r = run("generate", smollm2, "-p", "What is the capital of France?", "--max-tokens", 30, "--temperature", 0)
    assert "Paris" in r.stdout and "tokens/s" in r.stderr


def test_greedy_tokens_of_the_real_model_do_not_depend_on_the_batch(smollm2, tmp_path):
    prompts = [list(range(500, 560)), [1, 4093, 198], list(range(2000, 2011))]
    alone = [run("generate", smollm2, "--prompt-ids", ids_text(p), "--max-tokens", 12, "--ignore-eos", "--print-ids",
                 "--temperature", 0).stdout for p in prompts]
    file = clilib.write_ids_file(tmp_path / "p", prompts)
    together = run("generate", smollm2, "--prompt-ids-file", file, "--max-tokens", 12, "--ignore-eos", "--print-ids",
                   "--temperature", 0, "--max-num-batched-tokens", 9, "--page-size", 7).stdout
    assert together == "".join(alone)


@pytest.mark.parametrize("bits, codebook", [(4, "mul1"), (2.25, "mul1"), (3, "mcg")])
def test_a_random_pack_runs_and_its_plan_holds(tmp_path, bits, codebook):
    pack = tmp_path / "pack"
    run("bench", "model", "--random-pack", pack, "--shape", "smollm2-135m", "--bits", bits, "--codebook", codebook)
    info = json.loads(run("inspect", pack, "--json", "--totals").stdout)
    layers = 30 * 7
    assert info["totals"]["exl3_tensors"] == layers + 1 and info["totals"]["unused_tensors"] == 0
    options = ["--prompt-ids", ids_text(range(100, 140)), "--max-tokens", 4]
    planned = json.loads(run("plan", pack, *options, "--json").stdout)["total"]
    real = peak_rss("generate", pack, *options, "--print-ids", "--ignore-eos", "--temperature", 0)
    # The table of input embeddings is mapped, but 44 of its 49152 rows are read.
    assert planned >= 0.97 * real, (planned, real)
    r = json.loads(run("bench", "model", pack, "--prompt-tokens", 32, "--decode-tokens", 4, "--repetitions", 1, "--json").stdout)
    assert r["decode_tokens_per_second"]["median"] > 0


def test_the_same_options_make_the_same_pack(tmp_path):
    for name in "ab":
        run("bench", "model", "--random-pack", tmp_path / name, "--bits", 2)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_an_interrupted_pack_leaves_no_weights(tmp_path):
    p = clilib.start("bench", "model", "--random-pack", tmp_path / "p", "--shape", "qwen3-8b")
    time.sleep(0.4)
    clilib.interrupt(p)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert not list((tmp_path / "p").glob("model.safetensors*"))
