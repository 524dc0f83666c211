"""Help, usage errors, exit codes: what the program says when it is asked wrongly."""
import os
import subprocess
import time

import pytest
from clilib import BINARY, MODELS, run

COMMANDS = ["generate", "chat", "eval", "inspect", "plan", "tokenize", "template", "import", "bench",
            "bench model", "bench attention", "bench memory", "bench linear"]
LLAMA = MODELS / "llama"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    out = run(*command.split(), "--help").stdout
    assert f"quantpack {command}" in out
    assert "usage:" in out and "example" in out


def test_program_help_lists_every_command():
    out = run("--help").stdout
    for c in COMMANDS:
        assert f"\n  {c.split()[0]} " in out
    assert run("help").stdout == out
    assert run("help", "generate").stdout == run("generate", "--help").stdout
    assert run("help", "bench", "model").stdout == run("bench", "model", "--help").stdout


def test_no_arguments_is_a_usage_error_with_help():
    r = run(code=2)
    assert "usage: quantpack" in r.stdout


def test_version():
    assert run("--version").stdout.startswith("quantpack ")
    assert run("version").stdout == run("--version").stdout


@pytest.mark.parametrize("args, message", [
    (["generat"], "no command generat; did you mean generate?"),
    (["tokenise"], "did you mean tokenize?"),
    (["--versoin"], "did you mean --version?"),
    (["xyzzy"], "no command xyzzy\n"),
    (["help", "help"], "no command help\n`quantpack --help` lists the commands."),
    (["help", "generate", "x"], 'unexpected argument "x"'),
    (["help", "bench", "model", "x"], 'unexpected argument "x"'),
    (["version", "--bad"], 'unexpected argument "--bad"'),
    (["--version", "x"], 'unexpected argument "x"'),
    (["bench", "memroy"], "did you mean memory?"),
    (["bench"], "no bench given"),
    (["generate", LLAMA, "--max-token", "4"], "did you mean --max-tokens?"),
    (["generate", LLAMA, "--temprature=0"], "no option --temprature; did you mean --temperature?"),
    (["generate", LLAMA, "--zzzzz"], "no option --zzzzz\n"),
    (["generate", LLAMA, "-z"], "no option -z"),
    (["generate", LLAMA, "--max-tokens"], "--max-tokens needs a value"),
    (["generate", LLAMA, "--max-tokens", "many", "-p", "x"], 'wanted a whole number from 1 to'),
    (["generate", LLAMA, "--max-tokens", "-1", "-p", "x"], '"-1", wanted a whole number'),
    (["generate", LLAMA, "--threads", "99999", "-p", "x"], "from 0 to 1024"),
    (["generate", LLAMA, "--top-p", "1.5", "-p", "x"], "--top-p: \"1.5\", wanted a number from 0 to 1"),
    (["generate", LLAMA, "--temperature", "nan", "-p", "x"], "--temperature: \"nan\""),
    (["generate", LLAMA, "--top-p", "1e-300", "-p", "x"], '--top-p: "1e-300" is too near to 0'),
    (["generate", LLAMA, "--ignore-eos=1", "-p", "x"], "--ignore-eos takes no value"),
    (["generate", LLAMA], "wanted one of -p TEXT"),
    (["generate", LLAMA, "-p", "x", "--prompt-ids", "1"], "wanted one of -p TEXT"),
    (["generate", LLAMA, "--prompt-ids", "1", "--raw"], "--raw goes with -p"),
    (["generate", LLAMA, "--prompt-ids", "1", "--json", "--print-ids"], "not both"),
    (["generate"], "no argument given, wanted: MODEL"),
    (["eval", LLAMA, "--prompt-ids", "1,2", "--window", "512"], "--window goes with --file"),
    (["bench", "model", LLAMA, "--shape", "qwen3-8b"], "--shape goes with --random-pack"),
    (["bench", "model", LLAMA, "--bits=4"], "--bits goes with --random-pack"),
    (["bench", "model", "--random-pack", "/no/where", "-b", "2"], "--batch does not go with --random-pack"),
    (["bench", "model", "--random-pack", "/no/where", "--threads", "2"], "--threads does not go with --random-pack"),
    (["generate", LLAMA, "more", "-p", "x"], 'unexpected argument "more"'),
    (["generate", LLAMA, "--kv-cache-dtype", "fp8", "-p", "x"], "fp8 is not in this version"),
    (["generate", LLAMA, "--kv-cache-dtype", "int4_per_token_head", "-p", "x"], "int4_per_token_head is not in this version"),
    (["generate", LLAMA, "--kv-cache-dtype", "nvfp4", "-p", "x"], "nvfp4 is not in this version"),
    (["generate", LLAMA, "--kv-cache-dtype", "fp23", "-p", "x"], "wanted one of: auto, fp32, fp16, bf16"),
    (["eval", LLAMA], "wanted either --prompt-ids LIST or --file FILE"),
    (["tokenize", LLAMA], "wanted either TEXT or --jsonl FILE"),
    (["bench", "model"], "wanted either MODEL or --random-pack DIR"),
])
def test_usage_errors_name_what_is_wrong(args, message):
    r = run(*args, code=2)
    assert message in r.stderr, r.stderr
    assert r.stdout == ""
    assert "--help" in r.stderr


@pytest.mark.parametrize("args, message", [
    (["generate", "no/such/folder", "--prompt-ids", "1", "--print-ids"], "no/such/folder: no such folder"),
    (["generate", LLAMA / "config.json", "--prompt-ids", "1", "--print-ids"], "a file, wanted a model folder"),
    (["generate", LLAMA, "--prompt-ids", "1,x", "--print-ids"], '"x" at byte 2, wanted a token id'),
    (["generate", LLAMA, "--prompt-ids", "[1,2", "--print-ids"], 'wanted "," or "]"'),
    (["generate", LLAMA, "--prompt-ids", "1 2", "--print-ids"], 'wanted "," or the end'),
    (["generate", LLAMA, "--prompt-ids", "4000000000", "--print-ids"], "above 2147483647"),
    (["generate", LLAMA, "--prompt-ids", "320", "--print-ids"], "320"),
    (["generate", LLAMA, "--prompt-ids", "1", "--print-ids", "--max-model-len", "4", "--max-tokens", "9"], "max"),
    (["generate", LLAMA, "--prompt-ids", "1", "--print-ids", "-n", "600"],
     "601 tokens asked for (the prompt and --max-tokens, or --window), at most 512"),
    (["generate", LLAMA, "-p", "x"], "tokenizer.json"),
    (["eval", LLAMA, "--prompt-ids", "1,320"], "token 1: id 320, wanted one below 320"),
    (["inspect", "no/such/folder"], "no such folder"),
    (["tokenize", "no/such/folder", "x"], "no such folder"),
])
def test_failures_exit_with_1_and_name_the_thing(args, message):
    r = run(*args, code=1)
    assert message in r.stderr, r.stderr
    assert r.stdout == ""


def test_option_value_may_follow_an_equals_sign_or_a_space_and_the_last_wins():
    a = run("generate", LLAMA, "--prompt-ids=1,2,3", "--max-tokens=4", "--print-ids", "--ignore-eos").stdout
    b = run("generate", "--print-ids", "--max-tokens", 9, "--max-tokens", 4, "--ignore-eos", "--prompt-ids", "1,2,3", "--",
            LLAMA).stdout
    assert a == b and a.count(",") == 3


def test_reader_that_goes_away_is_no_fault():
    p = subprocess.Popen([BINARY, "inspect", str(LLAMA)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=os.environ)
    p.stdout.close()
    err = p.stderr.read()
    assert p.wait() == 141, err
    assert "failed" not in err and "Sanitizer" not in err


def test_full_disk_is_reported():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        r = subprocess.run([BINARY, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 1 and "writing the output failed" in r.stderr


def test_a_lowered_number_of_sequences_is_noted():
    args = [LLAMA, "--prompt-ids", "1", "--max-num-seqs", 4096, "--max-num-batched-tokens", 1]
    for command in (["generate", *args, "--print-ids", "-n", 1], ["plan", *args]):
        assert run(*command).stderr.count("--max-num-seqs: 4096, lowered to 1") == 1


@pytest.mark.parametrize("command, code", [(["plan", LLAMA], 130), (["inspect", LLAMA], 130), (["plan", LLAMA], 143)])
def test_commands_that_are_over_soon_end_by_signals_too(command, code):
    """What holds them in place for the signal is a full pipe: of notes, of results."""
    r, w = os.pipe()
    os.set_blocking(w, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(w, bytes(4096))
    os.set_blocking(w, True)
    where = {"stderr": w, "stdout": subprocess.DEVNULL} if command[0] == "plan" else {"stdout": w, "stderr": subprocess.DEVNULL}
    p = subprocess.Popen([BINARY, *map(str, command)], **where)
    os.close(w)
    time.sleep(1)
    assert p.poll() is None
    p.send_signal(code - 128)
    time.sleep(0.1)
    while os.read(r, 65536):
        pass
    os.close(r)
    assert p.wait(60) == code
