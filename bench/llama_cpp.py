#!/usr/bin/env python3
"""quantpack beside llama.cpp on the CPU: the same shapes, the same machine, in turns. Started by llama_cpp.sh run.

Two cases: `4-bit`, a random EXL3 pack of SmolLM2-135M's shape (4 bits, head 6 bits) against the Q4_1 file, and `bf16`,
the imported checkpoint against the BF16 file. Each is measured with every number of threads asked for, in rounds: ours,
peer, peer, ours, ... A ratio is that of the two runs of one round, since the speed of a shared machine drifts; what is
reported are medians over rounds with the lowest and highest.

A round during which other programs took more than --max-foreign of the processors is thrown away and measured again,
--retries times for each round; after that it is kept and its share is reported, as foreign_cpu. Standard library only.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "The capital of France is"


def say(text):
    print(f"llama_cpp.py: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(1)


# ---------------------------------------------------------------- the machine
def cpu_ticks():
    """Ticks of all processors together: (busy, stolen by the host)."""
    with open("/proc/stat", encoding="ascii") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return sum(v[:3]) + sum(v[5:7]), v[7]


def child_seconds():
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


class Watch:
    """How much of the machine others took, the host's stolen time included, as a share of all processors."""

    def __enter__(self):
        self.busy, self.steal = cpu_ticks()
        self.child, self.start = child_seconds(), time.monotonic()
        return self

    def __exit__(self, *_):
        busy, steal = cpu_ticks()
        tick, wall = os.sysconf("SC_CLK_TCK"), max(time.monotonic() - self.start, 1e-3)
        foreign = (busy - self.busy + steal - self.steal) / tick - (child_seconds() - self.child)
        self.foreign = max(0.0, foreign) / wall / os.cpu_count()


def wait_for_quiet(limit, seconds):
    """Until others take at most `limit` of the machine for half a second, at most `seconds`."""
    end = time.monotonic() + seconds
    while True:
        with Watch() as w:
            time.sleep(0.5)
        if w.foreign <= limit or time.monotonic() > end:
            return
        time.sleep(2)


def cpu_name():
    model, mhz = platform.processor(), ""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "cpu MHz":
                mhz = value.strip()
    return f"{model}, {os.cpu_count()} processors" + (f", {float(mhz):.0f} MHz" if mhz else "")


# ---------------------------------------------------------------- the programs
def shown(path):
    """A path as it is printed: relative to the repository when inside it."""
    path = pathlib.Path(path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def command_line(cmd):
    return shlex.join([shown(a) if os.path.exists(a) else a for a in cmd])


def output_of(cmd):
    try:
        p = subprocess.run(cmd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        fail(f"{command_line(cmd)}: {e}")
    if p.returncode:
        fail(f"{command_line(cmd)}: status {p.returncode}\n{p.stderr[-800:]}")
    return p.stdout


class Ours:
    def __init__(self, binary, path):
        self.binary, self.path = binary, path

    def commands(self, threads):
        base = [self.binary, "bench", "model", self.path, "--threads", str(threads), "--json"]
        return [base + ["--prompt-tokens", "512", "--decode-tokens", "1", "--warmup", "1", "--repetitions", "1"],
                base + ["--prompt-tokens", "8", "--decode-tokens", "128", "--warmup", "1", "--repetitions", "1"]]

    def measure(self, threads):
        prefill, decode = (json.loads(output_of(c)) for c in self.commands(threads))
        self.level = prefill["level"]
        return {"prefill": prefill["prefill_tokens_per_second"]["median"],
                "decode": decode["decode_tokens_per_second"]["median"]}


class Peer:
    def __init__(self, binary, path):
        self.binary, self.path = binary, path

    def commands(self, threads):
        return [[self.binary, "-m", self.path, "-t", str(threads), "-p", "512", "-n", "128", "-r", "1", "-o", "jsonl"]]

    def measure(self, threads):
        result = {}
        for line in output_of(self.commands(threads)[0]).splitlines():
            if line.startswith("{"):
                r = json.loads(line)
                result["prefill" if r["n_prompt"] else "decode"] = r["avg_ts"]
        if set(result) != {"prefill", "decode"}:
            fail(f"{command_line(self.commands(threads)[0])}: wanted one line with n_prompt and one with n_gen")
        return result


def seconds_to_first_byte(cmd):
    """From the start of the program to the first byte on its stdout."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as log, \
            subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as p:
        first = os.read(p.stdout.fileno(), 1)
        seconds = time.monotonic() - start
        p.communicate(timeout=120)
        log.seek(0)
        if p.returncode or not first:
            fail(f"{command_line(cmd)}: status {p.returncode}\n{log.read().decode(errors='replace')[-800:]}")
    return seconds


# ---------------------------------------------------------------- rounds
def in_turns(n_rounds, args, label, ours, peer):
    """Rounds of (ours(), peer()), the order changing from round to round. Returns [(ours, peer, foreign)]."""
    rounds = []
    for i in range(n_rounds):
        for attempt in range(args.retries + 1):
            wait_for_quiet(args.max_foreign, args.wait)
            with Watch() as w:
                if i % 2:
                    b = peer()
                    a = ours()
                else:
                    a = ours()
                    b = peer()
            if w.foreign <= args.max_foreign:
                break
            say(f"{label}: round {i + 1} disturbed, others took {100 * w.foreign:.0f} % of the processors")
        rounds.append((a, b, w.foreign))
        say(f"{label}: round {i + 1} of {n_rounds}: ours {a}, peer {b}")
    return rounds


def spread(values, digits):
    return {"median": round(statistics.median(values), digits), "min": round(min(values), digits),
            "max": round(max(values), digits), "samples": [round(v, digits) for v in values]}


def result(common, rounds, key, digits, **fields):
    a = [r[0][key] for r in rounds]
    b = [r[1][key] for r in rounds]
    line = dict(common, **fields)
    line["ours"], line["peer"] = spread(a, digits), spread(b, digits)
    line["ratio"] = spread([x / y for x, y in zip(a, b)], 3)
    line["foreign_cpu"] = round(max(r[2] for r in rounds), 3)
    return line


def table(lines):
    head = ["case", "what", "threads", "ours", "peer", "ours / peer", "lowest", "highest", "others' cpu"]
    rows = [[r["case"], r["metric"], str(r["threads"]), f'{r["ours"]["median"]:g}', f'{r["peer"]["median"]:g}',
             f'{r["ratio"]["median"]:.2f}', f'{r["ratio"]["min"]:.2f}', f'{r["ratio"]["max"]:.2f}',
             f'{100 * r["foreign_cpu"]:.0f} %'] for r in lines]
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    for row in [head] + rows:
        print("  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())


# ---------------------------------------------------------------- inputs
def prepare(args):
    if not os.access(args.quantpack, os.X_OK):
        fail(f"{shown(args.quantpack)}: no such program; build it first: cmake --preset release && ninja -C build/release")
    work = ROOT / "build" / "bench"
    work.mkdir(parents=True, exist_ok=True)
    if not args.pack:
        args.pack = str(work / "smollm2-135m-4bit")
        if not os.path.exists(os.path.join(args.pack, "config.json")):
            output_of([args.quantpack, "bench", "model", "--random-pack", args.pack, "--shape", "smollm2-135m",
                       "--bits", "4"])
    if not args.bf16:
        args.bf16 = str(work / "smollm2-135m-bf16")
        if not os.path.exists(os.path.join(args.bf16, "config.json")):
            output_of([args.quantpack, "import", args.peer_q4, args.bf16])


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--peer-bin", required=True, metavar="DIR", help="where llama-bench and llama-completion are")
    p.add_argument("--peer-q4", required=True, metavar="FILE")
    p.add_argument("--peer-bf16", required=True, metavar="FILE")
    p.add_argument("--peer-package", default="", help="what the peer was built from")
    p.add_argument("--quantpack", default=str(ROOT / "build/release/quantpack"), metavar="FILE")
    p.add_argument("--pack", metavar="DIR", help="EXL3 pack; default: a random one, made when missing")
    p.add_argument("--bf16", metavar="DIR", help="checkpoint; default: the Q4_1 file, imported when missing")
    p.add_argument("--cases", default="4-bit,bf16,first-token", help="which to run [%(default)s]")
    p.add_argument("--threads", default="1,2", help="[%(default)s]")
    p.add_argument("--rounds", type=int, default=7, help="[%(default)s]")
    p.add_argument("--max-foreign", type=float, default=0.04, metavar="SHARE",
                   help="of the processors that others may take in a round [%(default)s]")
    p.add_argument("--retries", type=int, default=3, help="of a disturbed round [%(default)s]")
    p.add_argument("--wait", type=float, default=60, help="seconds to wait for a quiet machine [%(default)s]")
    p.add_argument("--out", default=str(ROOT / "bench/results/cpu_llama_cpp.jsonl"), metavar="FILE",
                   help="JSON lines; replaced")
    return p.parse_args()


def main():
    args = options()
    cases = args.cases.split(",")
    threads = [int(t) for t in args.threads.split(",")]
    prepare(args)
    tool = {name: os.path.join(args.peer_bin, name) for name in ("llama-bench", "llama-completion")}
    version = subprocess.run([tool["llama-completion"], "--version"], capture_output=True, text=True, check=False)
    version = (version.stdout + version.stderr).strip().splitlines()
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False).stdout.strip()
    common = {"bench": "llama_cpp", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "cpu": cpu_name(), "ours_version": f'{output_of([args.quantpack, "--version"]).strip()} {commit}'.strip(),
              "peer_version": "; ".join(filter(None, [args.peer_package] + version[:2]))}
    lines = []
    pairs = {"4-bit": (Ours(args.quantpack, args.pack), Peer(tool["llama-bench"], args.peer_q4)),
             "bf16": (Ours(args.quantpack, args.bf16), Peer(tool["llama-bench"], args.peer_bf16))}
    for case, (ours, peer) in pairs.items():
        for n in threads if case in cases else []:
            rounds = in_turns(args.rounds, args, f"{case}, {n} threads", lambda: ours.measure(n), lambda: peer.measure(n))
            for i, metric in enumerate(("prefill", "decode")):
                lines.append(result(common, rounds, metric, 2, case=case, metric=f"{metric}, tokens/s", threads=n,
                                    level=ours.level, ours_command=command_line(ours.commands(n)[i]),
                                    peer_command=command_line(peer.commands(n)[0])))
    for n in threads if "first-token" in cases else []:
        a = [args.quantpack, "generate", args.bf16, "-p", PROMPT, "--max-tokens", "1", "--threads", str(n)]
        b = [tool["llama-completion"], "-m", args.peer_bf16, "-p", PROMPT, "-n", "1", "-t", str(n), "-no-cnv",
             "--no-warmup", "--no-display-prompt"]
        for cmd in (a, b):
            seconds_to_first_byte(cmd)  # fills the page cache
        rounds = in_turns(args.rounds, args, f"first token, {n} threads", lambda: {"s": seconds_to_first_byte(a)},
                          lambda: {"s": seconds_to_first_byte(b)})
        lines.append(result(common, rounds, "s", 4, case="bf16", metric="start to first token, s", threads=n,
                            ours_command=command_line(a), peer_command=command_line(b)))
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    part.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    part.replace(out)
    print(f'{common["cpu"]}\nours {common["ours_version"]}, peer {common["peer_version"]}')
    table(lines)


if __name__ == "__main__":
    main()
