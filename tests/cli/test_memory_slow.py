"""Lack of memory at any point of a command: a message and exit code 1 (or no trace at all), no crash, no leak (the sanitizers of
the dev build see to that)."""
import pytest
from clilib import run, text_model



@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return text_model(tmp_path_factory.mktemp("memory") / "model")


def points(last):
    """The first allocations one by one, then fewer and fewer."""
    n = 1
    while n <= last:
        yield n
        n += 1 + n // 6


@pytest.mark.parametrize("args, stdin", [
    (["generate", "@", "-p", "Hi", "--max-tokens", "2", "--temperature", "0", "--json"], None),
    (["chat", "@", "--no-history", "--max-tokens", "2", "--temperature", "0"], "/system Be.\nHi\n/regen\n/save @\n/undo\n"),
    (["inspect", "@", "--json"], None),
    (["inspect", "@"], None),
    (["plan", "@", "--json"], None),
    (["eval", "@", "--prompt-ids", "1,2,3"], None),
    (["tokenize", "@", "Hello"], None),
    (["tokenize", "@", "--decode", "1,2,3"], None),
    (["bench", "model", "@", "--prompt-tokens", "4", "--decode-tokens", "2", "--repetitions", "1", "--warmup", "0"], None),
])
def test_every_failing_allocation_is_reported(model, args, stdin, tmp_path):
    args = [str(model) if a == "@" else a for a in args]
    stdin = stdin and stdin.replace("@", str(tmp_path / "saved"))
    whole = run(*args, stdin=stdin).stdout
    same = args[0] in ("inspect", "eval", "tokenize")  # no times in the output
    failed = 0
    for n in points(8000):
        r = run(*args, stdin=stdin, env={"QP_TEST_ALLOC_FAIL": str(n)}, code=None)
        assert r.returncode in (0, 1), (n, r.returncode, r.stderr)
        if r.returncode == 1:
            failed += 1
            assert "quantpack: " in r.stderr, (n, r.stderr)
        elif same:
            assert r.stdout == whole, n
    assert failed > 0
