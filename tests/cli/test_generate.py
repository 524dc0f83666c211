"""generate and eval on tiny models: the tokens and logits are those of the goldens, however the work is cut."""
import json
import os
import signal
import time

import numpy as np
import pytest
from clilib import DENSE, MODELS, PACKS, golden, ids_text, interrupt, run, start, write_ids_file

ALL = DENSE + PACKS


def greedy(model, prompts, tmp_path, *options, n=16):
    """New ids of each prompt."""
    if len(prompts) == 1:
        source = ["--prompt-ids", ids_text(prompts[0])]
    else:
        source = ["--prompt-ids-file", write_ids_file(tmp_path / "prompts", prompts)]
    out = run("generate", MODELS / model, *source, "--max-tokens", n, "--temperature", 0, "--ignore-eos", "--print-ids",
              *options).stdout
    return [[int(x) for x in line.split(",")] for line in out.splitlines()]


def prompts_and_wanted(model):
    g = golden(model)
    return [g["input_ids.0"], g["input_ids.1"]], [list(g["greedy.0"]), list(g["greedy.1"])]


@pytest.mark.parametrize("model", ALL)
def test_greedy_tokens_are_the_golden_ones(model, tmp_path):
    prompts, wanted = prompts_and_wanted(model)
    assert greedy(model, prompts[:1], tmp_path) == wanted[:1]
    assert greedy(model, prompts[1:], tmp_path) == wanted[1:]


@pytest.mark.parametrize("model", PACKS)
def test_greedy_tokens_of_packs_do_not_depend_on_how_the_work_is_cut(model, tmp_path):
    prompts, wanted = prompts_and_wanted(model)
    assert greedy(model, prompts[1:] * 2, tmp_path, "--page-size", 5, "--max-num-batched-tokens", 7) == wanted[1:] * 2
    assert greedy(model, prompts[1:], tmp_path, "--threads", 1, "--max-num-batched-tokens", 3) == wanted[1:]


@pytest.mark.parametrize("model", DENSE)
@pytest.mark.parametrize("options", [
    ["--page-size", 1, "--threads", 1],
    ["--page-size", 5, "--max-num-batched-tokens", 7],
    ["--page-size", 256, "--threads", 3],
    ["--max-num-batched-tokens", 2, "--threads", 2],
    ["--max-num-seqs", 1],
])
def test_greedy_tokens_do_not_depend_on_how_the_work_is_cut(model, options, tmp_path):
    prompts, wanted = prompts_and_wanted(model)
    assert greedy(model, prompts, tmp_path, *options) == wanted


@pytest.mark.parametrize("model", ["llama", "qwen3_5"])
def test_greedy_tokens_do_not_depend_on_the_batch(model, tmp_path):
    prompts, wanted = prompts_and_wanted(model)
    others = [np.arange(9, 9 + n) % 300 + 8 for n in (1, 3, 40)]
    got = greedy(model, [others[0], prompts[1], others[1], prompts[0], others[2], prompts[1]], tmp_path)
    assert [got[3], got[1]] == wanted and got[5] == wanted[1]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_cache_types_run_and_fp16_keeps_these_tokens(dtype, tmp_path):
    prompts, wanted = prompts_and_wanted("llama")
    got = greedy("llama", prompts, tmp_path, "--kv-cache-dtype", dtype)
    assert [len(g) for g in got] == [16, 16]
    if dtype != "bf16":
        assert got == wanted


@pytest.mark.parametrize("model", PACKS)
@pytest.mark.parametrize("arith", ["int16", "fp32"])
def test_both_exl3_arithmetics_give_the_golden_tokens(model, arith, tmp_path):
    prompts, wanted = prompts_and_wanted(model)
    assert greedy(model, prompts[1:], tmp_path, "--exl3-arith", arith) == wanted[1:]


@pytest.mark.parametrize("level", ["ref", "avx2"])
def test_cpu_levels_give_the_golden_tokens(level, tmp_path):
    flags = open("/proc/cpuinfo").read()
    if level == "avx2" and not all(f in flags for f in (" avx2", " fma", " f16c")):
        pytest.skip("this machine has no avx2")
    g = golden("llama-exl3")
    out = run("generate", MODELS / "llama-exl3", "--prompt-ids", ids_text(g["input_ids.1"]), "--max-tokens", 16,
              "--ignore-eos", "--print-ids", env={"QP_CPU": level}).stdout
    assert out.strip() == ids_text(g["greedy.1"])


@pytest.mark.parametrize("model, s", [(m, s) for m in DENSE for s in (0, 1)] + [(m, 1) for m in PACKS])
def test_eval_writes_the_golden_logits(model, s, tmp_path):
    g = golden(model)
    file = tmp_path / "logits.f32"
    out = run("eval", MODELS / model, "--prompt-ids", ids_text(g[f"input_ids.{s}"]), "--dump-logits", file, "--exl3-arith",
              "fp32", "--json", "--max-num-batched-tokens", 16).stdout
    wanted = g[f"logits.{s}"]
    got = np.fromfile(file, "<f4").reshape(wanted.shape)
    worst = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert worst < 1e-4, worst
    assert not (tmp_path / "logits.f32.part").exists()
    ids = g[f"input_ids.{s}"]
    w = wanted.astype(np.float64)
    logp = w - np.log(np.exp(w - w.max(1, keepdims=True)).sum(1, keepdims=True)) - w.max(1, keepdims=True)
    nll = -logp[np.arange(len(ids) - 1), ids[1:]].mean()
    result = json.loads(out)
    assert result["scored"] == len(ids) - 1 and abs(result["mean_nll"] - nll) < 1e-3


def test_int16_logits_are_near_the_golden_ones(tmp_path):
    g = golden("llama-exl3")
    file = tmp_path / "logits.f32"
    run("eval", MODELS / "llama-exl3", "--prompt-ids", ids_text(g["input_ids.1"]), "--dump-logits", file)
    got = np.fromfile(file, "<f4").reshape(g["logits.1"].shape)
    assert np.abs(got - g["logits.1"]).max() < 2e-3 * np.abs(g["logits.1"]).max()


def test_eval_says_when_the_file_cannot_be_written(tmp_path):
    r = run("eval", MODELS / "llama", "--prompt-ids", "1,2", "--dump-logits", tmp_path / "no" / "file", code=1)
    assert "No such file" in r.stderr
    if os.path.exists("/dev/full"):
        r = run("eval", MODELS / "llama", "--prompt-ids", "1,2", "--dump-logits", "/dev/full/x", code=1)


def test_sampling_is_repeatable_and_the_seed_matters():
    args = ["generate", MODELS / "llama", "--prompt-ids", "9,10,11", "--max-tokens", 24, "--ignore-eos", "--print-ids",
            "--temperature", 1.5]
    a, b, c = (run(*args, "--seed", s).stdout for s in (5, 5, 6))
    assert a == b != c
    assert run(*args, "--seed", 5, "--top-k", 1).stdout != a
    assert run(*args, "--seed", 5, "--top-k", 1).stdout == run(*args, "--temperature", 0).stdout


def test_print_ids_prints_nothing_else_and_keeps_the_order(tmp_path):
    file = write_ids_file(tmp_path / "p", [[9] * 30, [10], [11, 12]])
    r = run("generate", MODELS / "llama", "--prompt-ids-file", file, "--max-tokens", 3, "--ignore-eos", "--print-ids")
    lines = r.stdout.splitlines()
    assert len(lines) == 3 and all(len(x.split(",")) == 3 for x in lines)
    for i, ids in enumerate(["9," * 29 + "9", "10", "11,12"]):
        one = run("generate", MODELS / "llama", "--prompt-ids", ids, "--max-tokens", 3, "--ignore-eos", "--print-ids", "-q")
        assert one.stdout == lines[i] + "\n" and "tokens/s" not in one.stderr


def test_end_token_ends_unless_ignored(tmp_path):
    """The end token is made the golden's fourth token in a copy of the folder."""
    g = golden("llama")
    model = tmp_path / "m"
    model.mkdir()
    config = json.loads((MODELS / "llama/config.json").read_text())
    config["eos_token_id"] = int(g["greedy.1"][3])
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").symlink_to(MODELS / "llama/model.safetensors")
    args = ["generate", model, "--prompt-ids", ids_text(g["input_ids.1"]), "--max-tokens", 16, "--print-ids"]
    first = list(g["greedy.1"]).index(g["greedy.1"][3])
    assert run(*args).stdout.strip() == ids_text(g["greedy.1"][:first])
    assert run(*args, "--ignore-eos").stdout.strip() == ids_text(g["greedy.1"])


def test_unused_tensors_are_noted_in_one_line():
    r = run("generate", MODELS / "llama", "--prompt-ids", "9", "--max-tokens", 1, "--print-ids")
    notes = [x for x in r.stderr.splitlines() if "unused" in x]
    assert len(notes) == 1 and "greedy.0" in notes[0]


def test_ctrl_c_keeps_what_was_made_and_exits_with_130(tmp_path):
    """A batch that takes a while (the tiny model allows 512 positions) is interrupted on its way."""
    file = write_ids_file(tmp_path / "p", [[9 + i] for i in range(200)])
    p = start("generate", MODELS / "llama", "--prompt-ids-file", file, "--max-tokens", 500, "--ignore-eos", "--print-ids")
    time.sleep(1.0)
    interrupt(p)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130, (p.returncode, err)
    assert "interrupted" in err and "Sanitizer" not in err
    lines = out.splitlines()
    assert len(lines) == 200 and 0 < len(lines[0].split(",")) < 500


def test_the_third_ctrl_c_is_the_ordinary_one(tmp_path):
    file = write_ids_file(tmp_path / "p", [[9 + i] * 300 for i in range(64)])
    p = start("generate", MODELS / "llama", "--prompt-ids-file", file, "--max-tokens", 200, "--ignore-eos", "--print-ids",
              "--max-num-batched-tokens", 16384, "--max-num-seqs", 64)
    time.sleep(0.7)
    interrupt(p)
    for _ in range(2):
        time.sleep(0.15)
        interrupt(p)
    p.communicate(timeout=60)
    assert p.returncode in (130, -signal.SIGINT)
