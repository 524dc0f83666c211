"""bench model: figures that make sense, and random packs."""
import json

from clilib import MODELS, run


def test_model_figures_as_json_and_text():
    args = ["bench", "model", MODELS / "llama", "--prompt-tokens", 20, "--decode-tokens", 6, "--repetitions", 3, "--warmup", 0]
    r = json.loads(run(*args, "--json", "--batch", 3).stdout)
    assert (r["batch"], r["prompt_tokens"], r["decode_tokens"], r["repetitions"]) == (3, 20, 6, 3)
    for kind in ("prefill", "decode"):
        s = r[f"{kind}_tokens_per_second"]
        assert 0 < s["min"] <= s["median"] <= s["max"]
    assert r["peak_rss_kib"] > 1000 and r["level"] in ("ref", "avx2", "avx512", "vnni", "amx")
    out = run(*args, "--max-num-batched-tokens", 4).stdout
    assert "prefill" in out and "decode" in out and "3 repetitions" in out


def test_batches_whose_sequences_start_at_different_steps_are_timed():
    r = json.loads(run("bench", "model", MODELS / "llama", "--prompt-tokens", 30, "--decode-tokens", 5, "--batch", 4,
                       "--max-num-batched-tokens", 16, "--repetitions", 1, "--json").stdout)
    assert r["max_num_batched_tokens"] == 16


def test_a_bench_that_does_not_fit_is_refused():
    assert "max" in run("bench", "model", MODELS / "llama", "--prompt-tokens", 600, "--max-model-len", 100, code=1).stderr


def test_random_packs_refuse_what_makes_no_sense(tmp_path):
    (tmp_path / "x").write_text("")
    assert "not empty" in run("bench", "model", "--random-pack", tmp_path, code=1).stderr
    new = tmp_path / "new"
    assert "--head-bits" in run("bench", "model", "--random-pack", new, "--head-bits", 2.25, code=1).stderr
    assert "--head-bits" in run("bench", "model", "--random-pack", new, "--head-bits", 2.5, "--codebook", "mcg", code=1).stderr
    assert "No such file" in run("bench", "model", "--random-pack", tmp_path / "a" / "b", code=1).stderr
    assert not new.exists()
