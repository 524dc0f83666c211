"""quantpack bench linear: its output and what it refuses."""
import json

import pytest
from clilib import run

if "linear" not in run("bench", "--help").stdout:
    pytest.skip("this binary has no bench linear", allow_module_level=True)

SMALL = ["--shapes", "128x256", "--samples", 30, "--megabytes", 2, "--threads", 2]


def lines(*args, **kw):
    return [json.loads(line) for line in run("bench", "linear", *args, "--json", **kw).stdout.splitlines()]


def test_json_has_every_case_in_order():
    out = lines(*SMALL, "--bits", "1.5,4", "--rows", "1,5", "--arith", "both", "--level", "ref")
    assert out[0]["name"] == "limits" and out[0]["threads"] == 2 and out[0]["read_gbps"] > 0
    assert [(o["bits"], o["arith"], o["rows"]) for o in out[1:]] == [
        (b, a, r) for b in (1.5, 4) for a in ("i16", "f32") for r in (1, 5)]
    for o in out[1:]:
        assert o["name"] == "linear" and o["level"] == "ref" and (o["n_in"], o["n_out"]) == (128, 256)
        assert o["samples"] == 30 and not o["warm"] and 0 < o["us_p10"] <= o["us_median"] <= o["us_p90"]
        assert o["gweights_per_s"] * o["us_median"] * 1e3 == pytest.approx(128 * 256)
        assert o["gbps"] * o["us_median"] * 1e3 == pytest.approx(128 * 256 * o["bits"] / 8)
        assert o["share_of_instruction_limit"] == 0  # not counted for ref


def test_chunk_warm_and_codebook():
    out = lines(*SMALL, "--bits", "3", "--rows", "1", "--arith", "f32", "--codebook", "mcg", "--warm", "--chunk", 3)
    assert len(out) == 2 and out[1]["chunk"] == 3 and out[1]["warm"] and out[1]["share_of_read"] == 0


def test_table():
    out = run("bench", "linear", *SMALL, "--bits", "2", "--rows", "1").stdout.splitlines()
    assert out[0].startswith("EXL3 linear: ") and out[2].split()[:3] == ["shape", "bits", "rows"]
    assert out[3].split()[:4] == ["128x256", "2.0", "i16", "1"]


def test_level_of_the_environment():
    assert lines(*SMALL, "--bits", "2", "--rows", "1", env={"QP_CPU": "ref"})[1]["level"] == "ref"


@pytest.mark.parametrize("args, message", [
    (["--shapes", "100x128"], "--shapes 100x128: wanted"), (["--shapes", "128"], "--shapes 128: wanted"),
    (["--shapes", "128x128,"], "--shapes 128x128,: wanted"), (["--bits", "4.5"], "--bits 4.5: wanted"),
    (["--bits", "9"], "--bits 9: wanted"), (["--rows", "0"], "--rows 0: wanted"),
    (["--codebook", "mcg"], "--codebook 3inst and mcg need --arith f32"),
    (["--codebook", "mcg", "--arith", "f32", "--bits", "2.5"], "half rates need --codebook mul1"),
    (["--samples", "29"], "--samples"), (["--arith", "i8"], "--arith")])
def test_usage_errors(args, message):
    r = run("bench", "linear", *args, code=2)
    assert message in r.stderr and r.stdout == ""


def test_unknown_level():
    r = run("bench", "linear", "--level", "sse", code=1)
    assert "sse: must be ref, avx2, avx512, vnni or amx" in r.stderr
