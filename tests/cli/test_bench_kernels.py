"""quantpack bench memory and bench attention: their output and what they refuse."""
import json
import os
import subprocess

import pytest
from clilib import BINARY, run


def lines(*args, **kw):
    return [json.loads(line) for line in run("bench", *args, **kw).stdout.splitlines()]


def test_memory_json_has_each_number_of_threads():
    out = lines("memory", "--threads", 3, "--megabytes", 4, "--samples", 3, "--json")
    assert [o["threads"] for o in out] == [1, 2, 3]
    for o in out:
        assert o["name"] == "memory_read" and o["bytes"] == 4 << 20 and o["samples"] == 3
        assert 0 < o["gbps_p10"] <= o["gbps_median"] <= o["gbps_p90"]


def test_memory_table():
    out = run("bench", "memory", "--threads", 1, "--megabytes", 1, "--samples", 2).stdout.splitlines()
    assert out[0].startswith("reading 1 MiB with ") and out[2].split() == ["threads", "GB/s", "p10", "p90"]
    assert out[3].split()[0] == "1" and float(out[3].split()[1]) > 0


SMALL = ["--q-heads", 4, "--kv-heads", 2, "--head-dim", 24, "--megabytes", 2, "--samples", 3, "--threads", 2]


@pytest.mark.parametrize("dtype, size", [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_attention_json_counts_visible_keys(dtype, size):
    out = lines("attention", *SMALL, "--contexts", "70,1", "--queries", "1,20", "--kv-cache-dtype", dtype, "--json")
    assert out[0]["name"] == "limits" and out[0]["read_gbps"] > 0 and out[0]["fma_gflops"] > 0
    assert [(o["context"], o["queries"]) for o in out[1:]] == [(70, 1), (70, 20), (1, 1), (1, 1)]
    for o in out[1:]:
        keys = sum(range(o["context"] - o["queries"] + 1, o["context"] + 1))
        assert o["gflops"] * o["us_median"] * 1e3 == pytest.approx(4 * 4 * 24 * keys)
        assert o["gbps"] * o["us_median"] * 1e3 == pytest.approx(2 * 2 * 24 * size * o["context"])
        assert o["kv_cache_dtype"] == dtype and 0 < o["us_p10"] <= o["us_median"] <= o["us_p90"]


def test_attention_window_and_pages():
    out = lines("attention", *SMALL, "--contexts", "200", "--queries", "10", "--window", 16, "--page-size", 7, "--json")
    assert out[1]["gflops"] * out[1]["us_median"] * 1e3 == pytest.approx(4 * 4 * 24 * 16 * 10)
    assert out[1]["gbps"] * out[1]["us_median"] * 1e3 == pytest.approx(2 * 2 * 24 * 2 * 25)


def test_attention_table_and_forced_level():
    out = run("bench", "attention", *SMALL, "--contexts", "64", "--queries", "1", env={"QP_CPU": "ref"}).stdout
    assert "; ref, 2 threads" in out and "share of limit" in out


@pytest.mark.parametrize("args, message", [
    (["--q-heads", 5, "--kv-heads", 2], "--q-heads 5 is not a multiple of --kv-heads 2"),
    (["--head-dim", 20], "--head-dim 20 is not a multiple of 8"),
    (["--contexts", "5,,6"], "--contexts 5,,6"),
    (["--contexts", "x"], "--contexts x"),
    (["--queries", "0"], "--queries 0"),
    (["--queries", ",".join(["1"] * 65)], "up to 64"),
    (["--kv-cache-dtype", "nvfp4"], "nvfp4"),
])
def test_attention_refuses(args, message):
    assert message in run("bench", "attention", *args, code=2).stderr


def test_attention_without_memory():
    args = ["--megabytes", "1", "--contexts", str(1 << 30), "--head-dim", "512", "--kv-heads", "32", "--queries", "1"]
    env = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"}  # it then only warns of the size
    r = subprocess.run([BINARY, "bench", "attention", *args], capture_output=True, text=True, timeout=60, env=env)
    assert r.returncode == 1 and "lower --contexts or --kv-heads" in r.stderr, r.stderr
