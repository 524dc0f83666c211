#!/usr/bin/env python3
"""Encoding speed beside the PyPI package `tokenizers`, one thread each, interleaved, same documents, ids compared.

usage: bench/tokenizer.py [--bench build/release/bench_tokenizer] [--rounds 7] [--names gpt2,qwen2,...] [--text FILE]
Makes a venv under build/ (tokenizers from PyPI) and the full vocabularies in build/cache (tools/full_tokenizers.py).
Times are processor time of the process, so that other load matters less. The library is called the fastest way its API
has: encode_batch_fast (no offsets), parallelism off. Prints a table and writes one JSON line a case to
bench/results/tokenizer.jsonl.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ["smollm2", "qwen2", "llama3", "deepseek", "tekken", "llama2", "gemma3"]
ZH = ("我们 他们 可以 一个 没有 什么 自己 知道 时候 问题 工作 世界 中国 发展 社会 经济 政府 国家 学生 老师 学校 研究 科学 技术 "
      "计算机 网络 数据 模型 语言 文字 系统 服务 公司 市场 产品 价格 城市 交通 环境 保护 自然 历史 文化 艺术 音乐 电影 故事 "
      "朋友 家庭 孩子 父母 生活 健康 医院 医生 身体 运动 比赛 今天 明天 昨天 早上 晚上 春天 夏天 秋天 冬天 非常 已经 正在 "
      "因为 所以 但是 如果 虽然 然后 还是 或者 以及 关于 通过 根据 的 了 是 在 不 和 有 人 这 那 上 下 来 去 说 看 想 做 用 "
      "把 被 给 对 从 到 很 都 也 就 要 会 能 好 大 小 新 老 高 低 多 少 分析 结果 方法 过程 影响 原因 情况 条件 目标 计划").split()
JA = ("私 今日 明日 日本 世界 人間 問題 仕事 学校 先生 学生 研究 技術 言語 データ システム コンピュータ モデル サービス "
      "は が を に の と で も から まで です ます した する ある いる なる これ それ とても たくさん 新しい 大きい 美しい "
      "考える 使う 見る 行く 来る 食べる 書く 読む 話す 時間 場所 理由 結果 方法").split()
KO = "우리는 오늘 내일 한국 세계 문제 일을 학교 학생 연구 기술 언어 데이터 시스템 모델 서비스 그리고 하지만 그래서 합니다 있습니다".split()


def cjk_text(n_chars):
    """Words at random, most runs between punctuation never repeating: two parts Chinese, one Japanese, some Korean."""
    r, out, total = random.Random(1), [], 0
    while total < n_chars:
        words, sep, stops = r.choices([(ZH, "", "，。，。；：？！"), (JA, "", "、。、。"), (KO, " ", ",.")], [6, 3, 1])[0]
        s = sep.join(r.choice(words) for _ in range(r.randint(3, 12))) + r.choice(stops)
        if r.random() < 0.05:
            s += str(r.randint(1, 3000)) + "\n"
        out.append(s)
        total += len(s)
    return "".join(out)


def texts(extra):
    import pydoc_data.topics
    lib = pathlib.Path(os.__file__).parent
    code = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "src").rglob("*.c"))]
    code += [(lib / f"{m}.py").read_text(encoding="utf-8") for m in ("argparse", "inspect", "tarfile", "typing")]
    topics = pydoc_data.topics.topics
    out = {"latin": "\n".join(topics[k] for k in sorted(topics)), "code": "\n".join(code)[:600_000],
           "cjk": cjk_text(150_000)}
    for path in extra:
        out[pathlib.Path(path).name] = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return {k: v.replace("\x1e", " ") for k, v in out.items()}


def documents(text, size=4000):
    """Cut behind line ends or, where there are none for long, anywhere."""
    docs, at = [], 0
    while at < len(text):
        end = min(len(text), at + size)
        cut = text.rfind("\n", at, end)
        end = cut + 1 if end < len(text) and cut > at + size // 2 else end
        docs.append(text[at:end])
        at = end
    return docs


def library_seconds(tok, docs):
    t0 = time.process_time()
    tok.encode_batch_fast(docs, add_special_tokens=False)
    return time.process_time() - t0


def one(name, path, kind, text, bench, rounds):
    import tokenizers
    tok = tokenizers.Tokenizer.from_file(str(path))
    docs = documents(text)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as f:
        f.write("\x1e".join(docs))
        f.flush()
        ours = [int(x) for x in subprocess.run([bench, path, f.name, "1", "ids"], check=True, capture_output=True,
                                               text=True).stdout.split()]
        theirs = [i for e in tok.encode_batch(docs, add_special_tokens=False) for i in e.ids]
        a, b, load = [], [], []
        for _ in range(rounds):
            a.append(library_seconds(tok, docs))
            r = json.loads(subprocess.run([bench, path, f.name, "3"], check=True, capture_output=True, text=True).stdout)
            b.append(r["median_s"])
            load.append(r["load_s"])
    mb = len(text.encode()) / 1e6
    ratios = sorted(x / y for x, y in zip(a, b))
    return {"name": f"tokenizer_encode_{name}_{kind}", "bytes": int(mb * 1e6), "ids": len(ours), "same_ids": ours == theirs,
            "ours_mb_s": round(mb / statistics.median(b), 2), "theirs_mb_s": round(mb / statistics.median(a), 2),
            "ratio": round(statistics.median(ratios), 2), "ratio_min": round(ratios[0], 2),
            "ratio_max": round(ratios[-1], 2), "load_ms": round(1e3 * statistics.median(load), 1), "rounds": rounds,
            "peer": f"tokenizers {tokenizers.__version__}"}


def in_venv():
    home = ROOT / "build/venv"
    python = home / "bin/python"
    if not python.exists():
        venv.create(home, with_pip=True)
    if subprocess.run([python, "-c", "import tokenizers"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "tokenizers"], check=True)
    if pathlib.Path(sys.prefix) != home:
        os.execv(python, [str(python), *sys.argv])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bench", default=str(ROOT / "build/release/bench_tokenizer"))
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--names", default=",".join(NAMES))
    ap.add_argument("--kinds", default="")
    ap.add_argument("--text", action="append", default=[])
    a = ap.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    in_venv()
    names = a.names.split(",")
    cache = ROOT / "build/cache"
    subprocess.run([sys.executable, ROOT / "tools/full_tokenizers.py", cache, *names], check=True)
    results = ROOT / "bench/results/tokenizer.jsonl"
    results.parent.mkdir(exist_ok=True)
    print(f"{'case':34} {'ours MB/s':>10} {'theirs':>8} {'ratio (min..max)':>22}  ids")
    with open(results, "w", encoding="utf-8") as f:
        for name in names:
            path = cache / f"{name}.tokenizer.json"
            if not path.exists():
                print(f"{name}: skipped, its vocabulary could not be had")
                continue
            for kind, text in texts(a.text).items():
                if a.kinds and kind not in a.kinds.split(","):
                    continue
                r = one(name, path, kind, text, a.bench, a.rounds)
                f.write(json.dumps(r) + "\n")
                f.flush()
                spread = f"{r['ratio']:.2f} ({r['ratio_min']:.2f}..{r['ratio_max']:.2f})"
                print(f"{name + ' ' + kind:34} {r['ours_mb_s']:>10} {r['theirs_mb_s']:>8} {spread:>22}  "
                      f"{'same' if r['same_ids'] else 'DIFFERENT'}", flush=True)


if __name__ == "__main__":
    main()
