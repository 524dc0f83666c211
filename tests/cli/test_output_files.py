"""Files that the program writes: nobody else's file is touched, links and pipes stay what they are, nothing is left behind."""
import json
import os
import resource
import signal
import subprocess
import threading
import time

import pytest
from clilib import BINARY, MODELS, run, start, text_model

LLAMA = MODELS / "llama"
EVAL = ["eval", LLAMA, "--prompt-ids", "1,2,3"]
ROW = 320 * 4


def eval_to(path):
    run(*EVAL, "--dump-logits", path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return text_model(tmp_path_factory.mktemp("out") / "m")


def save_to(model, path, code=0):
    return run("chat", model, "--no-history", stdin=f"/save {path}\n", code=code)


def limited(bytes_):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))


def both(model):
    return [eval_to, lambda path: save_to(model, path)]


def test_a_file_named_like_a_temporary_stays(model, tmp_path):
    for i, write in enumerate(both(model)):
        d = tmp_path / str(i)
        d.mkdir()
        (d / "x.part").write_text("mine")
        write(d / "x")
        assert (d / "x.part").read_text() == "mine"
        assert {f.name for f in d.iterdir()} == {"x", "x.part"} and (d / "x").stat().st_size


def test_a_link_is_followed_and_stays_and_permissions_are_kept(model, tmp_path):
    for i, write in enumerate(both(model)):
        d, away = tmp_path / str(i), tmp_path / f"away{i}"
        d.mkdir()
        away.mkdir()
        (away / "target").write_text("old")
        (away / "target").chmod(0o600)
        (d / "middle").symlink_to(away / "target")
        (d / "x").symlink_to("middle")
        write(d / "x")
        assert (d / "x").is_symlink() and (d / "middle").is_symlink()
        assert (away / "target").read_bytes() != b"old" and (away / "target").stat().st_mode & 0o777 == 0o600
        assert len(list(d.iterdir())) == 2 and len(list(away.iterdir())) == 1


def test_a_pipe_is_written_to_and_stays(model, tmp_path):
    for i, write in enumerate(both(model)):
        fifo = tmp_path / f"fifo{i}"
        os.mkfifo(fifo)
        link = tmp_path / f"link{i}"
        link.symlink_to(fifo)
        got = []
        reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
        reader.start()
        write(link)
        reader.join(20)
        assert fifo.is_fifo() and link.is_symlink()
        assert len(got[0]) == 3 * ROW if write is eval_to else json.loads(got[0]) == {"messages": []}


def test_what_cannot_be_written_is_refused_by_name(model, tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    before = set(tmp_path.iterdir())
    for name, why in (("dangling", "leads nowhere"), ("loop", "Too many levels"), ("folder", "a folder, wanted a file")):
        err = run(*EVAL, "--dump-logits", tmp_path / name, code=1).stderr
        assert f"{tmp_path / name}: " in err and why in err
        assert why in save_to(model, tmp_path / name, code=1).stderr
    assert set(tmp_path.iterdir()) == before


def test_a_failed_write_leaves_what_was_there(model, tmp_path):
    """A limit on the size of files stands for the full disk: writes fail, and SIGXFSZ comes, which would end the program."""
    (tmp_path / "x").write_text("old")
    p = start(*EVAL, "--dump-logits", tmp_path / "x", preexec_fn=limited(100))
    err = p.communicate(timeout=60)[1]
    assert p.returncode == 1 and "File too large" in err and str(tmp_path / "x") in err
    p = subprocess.Popen([BINARY, "chat", model, "--no-history"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=limited(5))
    err = p.communicate(f"/save {tmp_path / 'x'}\n", timeout=60)[1]
    assert p.returncode == 1 and "File too large" in err
    p = start("bench", "model", "--random-pack", tmp_path / "pack", preexec_fn=limited(1 << 20))
    err = p.communicate(timeout=60)[1]
    assert p.returncode == 1 and "File too large" in err
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == {"x": "old"}


def test_two_runs_to_one_path_do_not_meet(tmp_path):
    runs = [start(*EVAL, "--dump-logits", tmp_path / "x") for _ in range(4)]
    for p in runs:
        err = p.communicate(timeout=60)[1]
        assert p.returncode == 0, err
    assert [f.name for f in tmp_path.iterdir()] == ["x"] and (tmp_path / "x").stat().st_size == 3 * ROW


@pytest.mark.parametrize("signals, code", [([signal.SIGINT], 130), ([signal.SIGTERM], 143), ([signal.SIGHUP], 129),
                                           ([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGTERM, signal.SIGINT], 143)])
@pytest.mark.parametrize("exists", [False, True])
def test_an_interrupted_random_pack_leaves_nothing(signals, code, exists, tmp_path):
    d = tmp_path / "pack"
    if exists:
        d.mkdir()
    p = start("bench", "model", "--random-pack", d, "--shape", "qwen3-8b")
    deadline = time.monotonic() + 60
    while not (d.exists() and list(d.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.005)
    for s in signals:
        p.send_signal(s)
    err = p.communicate(timeout=60)[1]
    assert p.returncode == code and "interrupted" in err and "Sanitizer" not in err
    assert list(d.iterdir()) == [] if exists else not d.exists()


def test_an_ignored_hangup_stays_ignored(tmp_path):
    p = start("bench", "model", "--random-pack", tmp_path / "pack", "--shape", "qwen3-8b",
              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    deadline = time.monotonic() + 60
    while not (tmp_path / "pack").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    p.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert p.poll() is None
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=60)
    assert p.returncode == 143 and not (tmp_path / "pack").exists()


def test_sigterm_ends_a_chat_that_waits(model):
    p = subprocess.Popen([BINARY, "chat", model, "--no-history"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    p.stdin.write("/undo\n")
    p.stdin.flush()
    p.stderr.readline()
    time.sleep(0.2)
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=60)
    assert p.returncode == 143
