"""tokenize: ids and text, line by line."""
import json

import pytest
from clilib import ROOT, interrupt, run, start, text_model

VECTORS = ROOT / "tests/vectors/tokenizers"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return text_model(tmp_path_factory.mktemp("tokenize") / "model")


def test_text_and_ids_on_the_command_line(model):
    assert run("tokenize", model, "Hé").stdout == "[72,195,169]\n"
    assert run("tokenize", model / "tokenizer.json", "a<|im_end|>").stdout == "[97,257]\n"
    assert run("tokenize", model, "--decode", "72,195,169").stdout == json.dumps("Hé", ensure_ascii=False) + "\n"
    assert json.loads(run("tokenize", model, "--decode", "[97, 257, 98]").stdout) == "a<|im_end|>b"
    assert json.loads(run("tokenize", model, "--decode", "97,257,98", "--skip-special").stdout) == "ab"
    assert json.loads(run("tokenize", model, "--decode", "195").stdout) == "\ufffd"
    assert run("tokenize", model, "").stdout == "[]\n"


def test_files_of_lines(model, tmp_path):
    f = tmp_path / "lines"
    f.write_text('"ab"\n\n{"text": "c\\u0000d"}\n"\\u00e9"')
    assert run("tokenize", model, "--jsonl", f).stdout == "[97,98]\n[99,0,100]\n[195,169]\n"
    f.write_text('[97,98]\n{"ids": [99, 0]}\n[]\n')
    assert run("tokenize", model, "--jsonl", f, "--decode").stdout == '"ab"\n"c\\u0000"\n""\n'


@pytest.mark.parametrize("line, options, message", [
    ("3", [], "line 2: wanted a string"), ('{"txt": "a"}', [], "line 2"), ("[97", ["--decode"], "line 2"),
    ('["a"]', ["--decode"], "item 0 is not a token id"), ("[-1]", ["--decode"], "item 0"), ("[1.5]", ["--decode"], "item 0"),
    ("[320]", ["--decode"], "320"), ('"x" y', [], "line 2"),
])
def test_bad_lines_are_named(model, tmp_path, line, options, message):
    f = tmp_path / "lines"
    f.write_text(("[97]" if options else '"a"') + "\n" + line + "\n")
    assert message in run("tokenize", model, "--jsonl", f, *options, code=1).stderr


@pytest.mark.parametrize("name", ["trim_gpt2", "trim_llama2", "trim_qwen2", "trim_unigram"])
def test_shared_cases(name, tmp_path):
    wanted = [c["ids"] for c in json.loads((VECTORS / f"{name}.cases.json").read_text())["cases"]]
    texts = json.loads((VECTORS / "strings.json").read_text())[:len(wanted)]
    f = tmp_path / "lines"
    f.write_text("".join(json.dumps(t) + "\n" for t in texts))
    got = [json.loads(x) for x in run("tokenize", VECTORS / f"{name}.tokenizer.json", "--jsonl", f).stdout.splitlines()]
    assert len(got) > 100 and got == wanted[:len(got)]


def test_ctrl_c_gives_130(model, tmp_path):
    file = tmp_path / "lines"
    file.write_text('"some words to encode"\n' * 200000)
    p = start("tokenize", model, "--jsonl", file)
    p.stdout.readline()
    interrupt(p)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and "interrupted" in err
    assert 0 < out.count("\n") < 199999
