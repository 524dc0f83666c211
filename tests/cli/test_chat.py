"""chat, and generate with text: on a tiny model whose tokenizer is bytes."""
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from clilib import BINARY, ids_text, run, text_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return text_model(tmp_path_factory.mktemp("chat") / "model")


def chat(model, text, *options, **kw):
    return run("chat", model, "--no-history", "--temperature", 0, "--max-tokens", 8, *options, stdin=text, **kw)


def rendered(*messages):
    """Ids of a conversation as the template writes it, an answer to come."""
    text = "".join(f"<|im_start|>{r}\n{c}<|im_end|>\n" for r, c in messages) + "<|im_start|>assistant\n"
    ids = []
    for i, part in enumerate(text.split("<|im_start|>")):
        if i:
            ids.append(256)
        for j, piece in enumerate(part.split("<|im_end|>")):
            if j:
                ids.append(257)
            ids.extend(piece.encode())
    return ids


def answer(model, *messages):
    out = run("generate", model, "--prompt-ids", ids_text(rendered(*messages)), "--max-tokens", 8, "--temperature", 0).stdout
    return out[:-1]


def test_generate_uses_the_chat_template_and_streams_the_same_text(model):
    args = ["generate", model, "--max-tokens", 8, "--temperature", 0]
    assert run(*args, "-p", "Hé?").stdout == answer(model, ("user", "Hé?")) + "\n"
    assert run(*args, "-p", "Hi", "--system", "Be.").stdout == answer(model, ("system", "Be."), ("user", "Hi")) + "\n"
    raw = run(*args, "-p", "Hi", "--raw").stdout
    assert raw == run(*args, "--prompt-ids", ids_text(b"Hi")).stdout
    j = json.loads(run(*args, "-p", "Hi", "--raw", "--json").stdout)
    assert j["text"] + "\n" == raw and j["prompt_tokens"] == 2 and len(j["ids"]) == 8 and j["finish_reason"] == "length"


def test_special_tokens_in_the_prompt_are_tokens_and_bad_utf8_is_replaced(model):
    args = ["generate", model, "--max-tokens", 4, "--temperature", 0, "--print-ids", "--raw"]
    assert run(*args, "-p", "<|im_end|>a").stdout == run(*args[:-1], "--prompt-ids", "257,97").stdout
    r = subprocess.run([BINARY.encode(), *(str(a).encode() for a in args), b"-p", b"a\xff"], capture_output=True)
    assert r.returncode == 0 and r.stdout.decode() == run(*args[:-1], "--prompt-ids", "97,239,191,189").stdout
    r = subprocess.run([BINARY.encode(), *(str(a).encode() for a in args[:-1]), b"-p", b"a\xff"], capture_output=True)
    assert r.returncode == 0, r.stderr


def test_without_a_template_text_is_continued_raw_with_a_note(tmp_path):
    model = text_model(tmp_path / "m", template=None)
    args = ["generate", model, "--max-tokens", 4, "--temperature", 0, "-p", "Hi"]
    r = run(*args)
    assert "no chat template" in r.stderr and r.stdout == run(*args, "--raw").stdout
    assert "no chat template" in run(*args, "--system", "x", code=1).stderr
    assert "chat" in run("chat", model, "--no-history", stdin="Hi\n", code=1).stderr


def test_a_broken_template_is_refused_but_raw_works(tmp_path):
    model = text_model(tmp_path / "m", template="{% for m in messages %}")
    r = run("generate", model, "--max-tokens", 4, "-p", "Hi", code=1)
    assert "--raw" in r.stderr
    run("generate", model, "--max-tokens", 4, "-p", "Hi", "--raw")


def test_a_template_that_raises_gives_its_message(tmp_path):
    model = text_model(tmp_path / "m", template="{{ raise_exception('roles must alternate') }}")
    assert "roles must alternate" in run("generate", model, "-p", "Hi", code=1).stderr
    r = chat(model, "Hi\n/stats\n", code=1)
    assert "roles must alternate" in r.stderr and "0 messages" in r.stderr


def test_turns_build_on_each_other(model):
    a = answer(model, ("user", "One"))
    b = answer(model, ("user", "One"), ("assistant", a), ("user", "Two"))
    r = chat(model, "One\nTwo\n")
    assert r.stdout == a + "\n" + b + "\n"
    assert r.stderr.count("new tokens") == 2


def test_system_undo_regen_and_clear(model):
    a = answer(model, ("user", "One"))
    s = answer(model, ("system", "Sys"), ("user", "One"))
    assert chat(model, "One\n/regen\n").stdout == a + "\n" + a + "\n"
    assert chat(model, "One\n/undo\nOne\n").stdout == (a + "\n") * 2
    assert chat(model, "One\n/clear\nOne\n").stdout == (a + "\n") * 2
    assert chat(model, "/system Sys\nOne\n/system none\n/clear\nOne\n").stdout == s + "\n" + a + "\n"
    assert chat(model, "One\n", "--system", "Sys").stdout == s + "\n"
    r = chat(model, "/undo\n/regen\n/system\n")
    assert "nothing to undo" in r.stderr and "no answer yet" in r.stderr and "system message: none" in r.stderr


def test_save_and_load(model, tmp_path):
    file = tmp_path / "talk.json"
    a = answer(model, ("system", "Sys"), ("user", "One"))
    chat(model, f"/system Sys\nOne\n/save {file}\n")
    saved = json.loads(file.read_text())["messages"]
    # The answer's bytes need not be characters: what is kept is the text as printed.
    assert [m["role"] for m in saved] == ["system", "user", "assistant"] and saved[2]["content"] == a
    b = answer(model, ("system", "Sys"), ("user", "One"), ("assistant", a), ("user", "Two"))
    assert chat(model, f"/load {file}\nTwo\n").stdout == b + "\n"
    assert chat(model, "Two\n", "--load", file).stdout == b + "\n"
    for bad in ("[", '{"messages": 3}', '[{"role": "tool", "content": "x"}]', '[{"role": "user"}]',
                '[{"role":"user","content":"a"},{"role":"system","content":"b"}]'):
        file.write_text(bad)
        r = chat(model, f"One\n/load {file}\n/stats\n", code=1)
        assert "talk.json" in r.stderr and "2 messages" in r.stderr
    assert "/no/such/file" in chat(model, "/load /no/such/file\n", code=1).stderr
    assert "/no/such" in chat(model, "/save /no/such/file\n", code=1).stderr


def test_set_changes_sampling_and_names_what_is_wrong(model):
    r = chat(model, "/set temperature 1.5\n/set seed 5\n/set max-tokens 3\nHi\n/set\n")
    one = run("generate", model, "-p", "Hi", "--temperature", 1.5, "--seed", 5, "--max-tokens", 3).stdout
    assert r.stdout == one and "temperature 1.5" in r.stderr and "seed 6" in r.stderr
    for text, message in [("temprature 1", "did you mean temperature?"), ("temperature hot", 'wanted a number'),
                          ("temperature", "/set NAME VALUE"), ("top-p 2", "from 0 to 1"), ("max-tokens x", "--max-tokens")]:
        assert message in chat(model, f"/set {text}\n").stderr


def test_commands_are_listed_and_unknown_ones_named(model):
    r = chat(model, "/help\n")
    for c in ("clear", "system", "save", "load", "regen", "undo", "set", "stats", "exit"):
        assert f"/{c}" in r.stderr
    assert "did you mean /clear?" in chat(model, "/claer\n").stderr
    assert "no command /xyzzy" in chat(model, "/xyzzy\n").stderr
    assert chat(model, "/exit\nHi\n").stdout == "" == chat(model, "/quit\nHi\n").stdout == chat(model, "\n   \n").stdout


def test_messages_of_several_lines_and_with_a_slash(model):
    two = answer(model, ("user", "a\nb")) + "\n"
    assert chat(model, 'a\\\nb\n').stdout == two
    assert chat(model, '"""a\nb"""\n').stdout == two
    assert chat(model, '"""\na\nb\n"""\n').stdout == two
    assert chat(model, '"""a"""\n').stdout == answer(model, ("user", "a")) + "\n"
    assert chat(model, "//a\n").stdout == answer(model, ("user", "/a")) + "\n"
    assert "dropped" in chat(model, '"""a\n').stderr


def test_a_full_conversation_says_what_to_do(model):
    r = chat(model, "Hello, how are you today?\n/stats\n", "--max-model-len", 30, code=1)
    assert "--max-model-len is 30" in r.stderr and "/clear" in r.stderr and "0 messages" in r.stderr and r.stdout == ""


def test_a_history_that_cannot_be_written_is_noted_without_a_terminal_too(model, tmp_path):
    def history(path):
        return run("chat", model, "--temperature", 0, "--history", path, stdin="/exit\n").stderr
    assert "no/h: the history could not be written: No such file" in history(tmp_path / "no" / "h")
    assert "the history could not be written: Is a directory" in history(tmp_path)
    assert "history" not in history(tmp_path / "h") and not (tmp_path / "h").exists()
    (tmp_path / "h").write_text("x")
    assert "history" not in history(tmp_path / "h") and (tmp_path / "h").read_text() == "x"


class Terminal:
    """chat on a pseudo terminal."""

    def __init__(self, model, home, *options, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"HOME": str(home), "TERM": "xterm", **(env or {})})
            os.execv(BINARY, [BINARY, "chat", str(model), "--temperature", "0", *map(str, options)])
        self.seen = ""

    def wait_for(self, text, timeout=60):
        end = time.time() + timeout
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.time()))
            try:
                data = os.read(self.fd, 65536) if ready else b""
            except OSError:
                data = b""
            assert data, f"no {text!r} in {self.seen!r}"
            self.seen += data.decode(errors="replace")
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def prompt(self):
        """The terminal leaves line mode only after the prompt was shown: what is typed between the two is echoed twice."""
        self.wait_for("> ")
        time.sleep(0.2)

    def wait_for_more(self):
        if not self.seen:
            self.seen = os.read(self.fd, 65536).decode(errors="replace")

    def send(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self, again=None, timeout=60):
        """Waits for the end. The terminal leaves line mode only after the prompt was shown, and a Ctrl-D that comes
        between the two is a character like others: `again` is sent until the program ends."""
        end = time.time() + timeout
        while time.time() < end:
            try:
                if again:
                    self.send(again)
                if select.select([self.fd], [], [], 0.3)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"did not end: {self.seen!r}")


def test_on_a_terminal_there_is_a_prompt_a_history_and_ctrl_d(model, tmp_path):
    t = Terminal(model, tmp_path, "--max-tokens", 4)
    t.prompt()
    t.send("Hi\n")
    t.wait_for("new tokens")
    t.prompt()
    t.send("\x1b[A")  # the line before
    t.wait_for("Hi")
    t.send("\n")
    t.wait_for("new tokens")
    t.prompt()
    assert t.exit_code(again="\x15\x04") == 0
    history = tmp_path / ".quantpack_history"
    assert "Hi" in history.read_text() and history.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_letters_of_all_kinds_can_be_typed_and_edited(model, tmp_path, locale):
    wanted = answer(model, ("user", "Hé中🙂"))
    t = Terminal(model, tmp_path, "--max-tokens", 8, "--no-history", env={"LC_ALL": locale})
    t.prompt()
    t.send("Hé中🙂x\x7f\n")
    t.wait_for("new tokens")
    saved = tmp_path / "talk.json"
    t.prompt()
    t.send(f"/save {saved}\n")
    t.wait_for("2 messages")
    t.prompt()
    assert t.exit_code(again="\x15\x04") == 0
    messages = json.loads(saved.read_text())["messages"]
    assert messages[0]["content"] == "Hé中🙂" and messages[1]["content"] == wanted


def test_ctrl_c_at_the_prompt_leaves_with_130(model, tmp_path):
    t = Terminal(model, tmp_path)
    t.prompt()
    t.send("\x03")
    assert t.exit_code() == 130


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(model, tmp_path):
    t = Terminal(model, tmp_path, "--max-tokens", 450, "--no-history")
    t.prompt()
    t.send("Hi\n")
    t.wait_for("Hi\r\n")
    t.wait_for_more()  # the answer has begun
    t.send("\x03")
    t.wait_for("stopped")
    t.prompt()
    t.send("/stats\n")
    t.wait_for("2 messages")
    t.prompt()
    assert t.exit_code(again="\x15\x04") == 0
    assert not (tmp_path / ".quantpack_history").exists()
