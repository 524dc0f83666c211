"""The scripts of the repository: help, usage errors, and the include check."""
import subprocess

import pytest
from clilib import ROOT


def script(name, *args):
    return subprocess.run([str(ROOT / name), *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("name, options", [("quickstart", ["--build-only", "--gguf"]), ("test", ["--slow"]), (".ci/run", [])])
def test_help_and_unknown_options(name, options):
    r = script(name, "--help")
    assert r.returncode == 0 and r.stdout.startswith("usage:")
    for o in options:
        assert o in r.stdout
    r = script(name, "--no-such-option")
    assert r.returncode == 2 and "usage:" in r.stderr


@pytest.mark.parametrize("name", ["quickstart", "test", ".ci/run", "tools/setup.sh"])
def test_shell_syntax_and_strictness(name):
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)
    text = (ROOT / name).read_text()
    assert name == "tools/setup.sh" or "set -euo pipefail" in text


def test_includes_point_down():
    r = script("tools/lint_includes.py")
    assert r.returncode == 0, r.stdout


def test_the_include_check_sees_what_points_up(tmp_path):
    (tmp_path / "src/io").mkdir(parents=True)
    (tmp_path / "src/model").mkdir()
    (tmp_path / "src/model/model.h").write_text("")
    (tmp_path / "src/io/x.c").write_text('#include "model/model.h"\n')
    r = script("tools/lint_includes.py", str(tmp_path))
    assert r.returncode == 1 and "model/model.h" in r.stdout
