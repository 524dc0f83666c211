"""quantpack template: every vector case through the binary, exit statuses, messages."""
import json
import os
import subprocess

import pytest

QUANTPACK = os.path.abspath(os.environ["QUANTPACK"])
VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "templates")
ENV = dict(os.environ, TZ="UTC", QP_FAKE_NOW="1767323045")


def run(*args):
    return subprocess.run([QUANTPACK, "template", *args], capture_output=True, env=ENV, timeout=60)


def have_command():
    r = run("--help")
    return r.returncode == 0 and b"quantpack template" in r.stdout


pytestmark = pytest.mark.skipif(not have_command(), reason="%s has no command `template`" % QUANTPACK)


def load(name):
    with open(os.path.join(VECTORS, name), encoding="utf-8") as f:
        return json.load(f)


def cases():
    for c in load("jinja_units.json"):
        yield c["name"], c["template"], c["context"], c
    chat = load("chat_templates.json")
    for i, c in enumerate(chat["cases"]):
        context = {
            "messages": chat["conversations"][c["conversation"]],
            "tools": chat["tools"] if c["tools"] else None,
            "documents": None,
            "add_generation_prompt": c["add_generation_prompt"],
            **c["kwargs"],
        }
        yield "%s-%d" % (c["template"], i), chat["templates"][c["template"]], context, c


def render(tmp_path, template, context):
    (tmp_path / "t.jinja").write_bytes(template.encode())
    (tmp_path / "c.json").write_text(json.dumps(context), encoding="utf-8")
    return run("--file", str(tmp_path / "t.jinja"), "--context", str(tmp_path / "c.json"))


def test_vector_cases_match(tmp_path):
    seen = 0
    for name, template, context, c in cases():
        r = render(tmp_path, template, context)
        seen += 1
        if "error" in c:
            assert r.returncode == 1, name
            assert r.stdout == b"", name
            kind, message = r.stderr.decode().rstrip("\n").split(": ", 1)
            assert kind == c["error"], (name, r.stderr)
            if kind == "raise":
                assert message == c["message"], name
        else:
            assert (r.returncode, r.stderr) == (0, b""), (name, r.stderr)
            assert r.stdout.decode() == c["out"], name
    assert seen == 279 + 104


def test_wrong_usage_exits_2():
    for args in ([], ["--file", "x"], ["--nope"], ["--file"], ["positional"]):
        r = run(*args)
        assert r.returncode == 2, args
        assert r.stderr.startswith(b"quantpack"), r.stderr


def test_missing_file_and_bad_context_exit_1(tmp_path):
    good = tmp_path / "t.jinja"
    good.write_text("x")
    bad = tmp_path / "c.json"
    bad.write_text("[1]")
    r = run("--file", str(tmp_path / "none"), "--context", str(bad))
    assert r.returncode == 1 and r.stderr.startswith(b"io: "), r.stderr
    r = run("--file", str(good), "--context", str(bad))
    assert r.returncode == 1 and b"must be a JSON object" in r.stderr, r.stderr


def test_hostile_template_ends_with_limit(tmp_path):
    r = render(tmp_path, "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", {})
    assert r.returncode == 1 and r.stderr.startswith(b"limit: "), r.stderr
