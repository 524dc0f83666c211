"""Files that are not what they should be: each is refused by name, none is taken for absent or read halfway."""
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from clilib import BINARY, MODELS, ROOT, run, text_model

LLAMA = MODELS / "llama"


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere")
    else:
        path.symlink_to(path.name)


@pytest.mark.parametrize("kind", ["pipe", "folder", "dangling", "loop"])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja", "chat_template.json", "tokenizer.json"])
def test_an_optional_file_of_another_kind_is_refused(name, kind, tmp_path):
    model = text_model(tmp_path / "m", template=None)
    (model / name).unlink(missing_ok=True)
    make(kind, model / name)
    err = run("generate", model, "-p", "x", "--max-tokens", 1, code=1).stderr
    assert name in err
    assert {"pipe": "not a regular file", "folder": "not a regular file", "dangling": "leads nowhere",
            "loop": "Too many levels"}[kind] in err


@pytest.mark.parametrize("kind", ["pipe", "dangling", "loop"])
def test_a_template_folder_of_another_kind_is_refused(kind, tmp_path):
    model = text_model(tmp_path / "m")
    make(kind, model / "additional_chat_templates")
    assert "additional_chat_templates" in run("generate", model, "-p", "x", "--max-tokens", 1, code=1).stderr


def test_a_missing_tokenizer_names_the_remedy():
    assert "copy it from the original model" in run("generate", LLAMA, "-p", "x", code=1).stderr


def test_a_nul_in_a_line_of_ids_is_refused(tmp_path):
    file = tmp_path / "ids"
    file.write_bytes(b"[1,2]\n[1,2]\0,3]\n")
    err = run("generate", LLAMA, "--prompt-ids-file", file, "--print-ids", "--max-tokens", 1, code=1).stderr
    assert f"{file}, line 2: a NUL at byte 5" in err


def test_a_line_of_spaces_is_an_empty_one(tmp_path):
    model = text_model(tmp_path / "m")
    file = tmp_path / "lines"
    for n in (1, 63, 64, 4096):  # the last ends with the page that it is mapped to
        file.write_text('"a"\n' + " " * n + '\n"a"\n')
        assert run("tokenize", model, "--jsonl", file).stdout == "[97]\n[97]\n"
        file.write_text(" " * n)
        assert run("tokenize", model, "--jsonl", file).stdout == ""


def test_eval_of_one_token_scores_nothing(tmp_path):
    assert "no token is scored" in run("eval", LLAMA, "--prompt-ids", "1").stdout
    r = json.loads(run("eval", LLAMA, "--prompt-ids", "1", "--json").stdout)
    assert r["scored"] == 0 and r["mean_nll"] is None and r["perplexity"] is None


def test_a_loss_that_is_not_a_number_is_an_error(tmp_path):
    """The last norm is made NaN, so that all logits are."""
    model = tmp_path / "m"
    model.mkdir()
    shutil.copy(LLAMA / "config.json", model)
    data = bytearray((LLAMA / "model.safetensors").read_bytes())
    n = int.from_bytes(data[:8], "little")
    t = json.loads(data[8:8 + n])["model.norm.weight"]
    a, b = t["data_offsets"]
    size = (b - a) // t["shape"][0]
    nan = np.array([np.nan], "<f4").tobytes()[4 - size:] if t["dtype"] in ("BF16", "F32") else b"\0\x7e"
    data[8 + n + a:8 + n + b] = nan * t["shape"][0]
    (model / "model.safetensors").write_bytes(data)
    for options in ([], ["--json"]):
        r = run("eval", model, "--prompt-ids", "1,2,3", *options, code=1)
        assert r.stdout == "" and "not" in r.stderr


def test_a_line_from_a_file_is_no_sequence_for_the_terminal(tmp_path):
    model = text_model(tmp_path / "m", template="{{ raise_exception('\x1b[31mred\x07\u009b') }}")
    err = run("generate", model, "-p", "Hi", code=1).stderr
    assert "\\x1b[31mred\\x07" in err and "\x1b" not in err and "\u009b" not in err


def test_the_reason_survives_a_long_name():
    err = run("generate", "x" * 5000, "--prompt-ids", "1", "--print-ids", code=1).stderr
    assert "xxx" in err and "..." in err and "no such folder, wanted a model folder" in err
    err = run("eval", LLAMA, "--prompt-ids", "1,2", "--dump-logits", "/tmp/" + "y/" * 300 + "z", code=1).stderr
    assert "No such file or directory" in err
