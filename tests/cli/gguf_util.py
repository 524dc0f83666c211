"""GGUF files for tests: a writer, random blocks of every type, and what those blocks mean, written once more in NumPy
straight from the block layouts (one weight index at a time, so that it shares no trick with the C code)."""
import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
SCALAR = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q",
          F64: "<d"}
# name -> (id, weights, bytes)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
         "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return string(v)
    if isinstance(kind, tuple):  # (ARR, element kind)
        return struct.pack("<IQ", kind[1], len(v)) + b"".join(value(kind[1], x) for x in v)
    return struct.pack(SCALAR[kind], v)


def gguf(meta, tensors, align=32, version=3):
    """meta: {key: (kind, value)}; tensors: [(name, shape slowest first, type name, bytes)]."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(meta))
    for k, (kind, v) in meta.items():
        head += string(k) + struct.pack("<I", ARR if isinstance(kind, tuple) else kind) + value(kind, v)
    data = b""
    for name, shape, t, raw in tensors:
        data += bytes(-len(data) % align)
        head += string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in shape[::-1])
        head += struct.pack("<IQ", TYPES[t][0] if isinstance(t, str) else t, len(data))
        data += raw
    return head + bytes(-len(head) % align) + data


def random_blocks(rng, t, n):
    """n weights of type t: random bits, with fp16 scales that are finite."""
    _, per, size = TYPES[t]
    if t in ("F32", "F16", "BF16"):
        x = rng.standard_normal(n).astype(np.float32)
        x[0] = -0.0
        if t == "F16":
            return x.astype("<f2").tobytes()
        return (x.view("<u4") >> 16).astype("<u2").tobytes() if t == "BF16" else x.astype("<f4").tobytes()
    raw = rng.integers(0, 256, (n // per, size), dtype=np.uint8)
    at = {"Q4_0": [0], "Q5_0": [0], "Q8_0": [0], "Q6_K": [208]}.get(t, [0, 2])
    for k in at:
        half = (rng.standard_normal(n // per) * 0.02).astype("<f2")
        half[0] = np.float16(6e-8)  # a subnormal
        raw[:, k:k + 2] = half.view(np.uint8).reshape(-1, 2)
    return raw.tobytes()


def _half(b, k):
    return np.ascontiguousarray(b[:, k:k + 2]).view("<f2")[:, 0].astype(np.float32)


def _weight(t, b, i):
    """Weight i of every block of b, [n, bytes of a block] uint8; fp32."""
    f, raw, b = np.float32, b, b.astype(np.int32)
    if t in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        has_m, has_h = t.endswith("1"), t.startswith("Q5")
        at = 4 if has_m else 2
        qs = at + (4 if has_h else 0)
        q = b[:, qs + i] & 15 if i < 16 else b[:, qs + i - 16] >> 4
        if has_h:
            q = q | (b[:, at + i // 8] >> i % 8 & 1) << 4
        if has_m:
            return _half(raw, 0) * q.astype(f) + _half(raw, 2)
        return _half(raw, 0) * (q - (16 if has_h else 8)).astype(f)
    if t == "Q8_0":
        return _half(raw, 0) * raw[:, 2 + i].view(np.int8).astype(f)
    if t in ("Q4_K", "Q5_K"):
        j, l, s = i // 32, i % 32, b[:, 4:16]
        if j < 4:
            sc, mn = s[:, j] & 63, s[:, j + 4] & 63
        else:
            sc, mn = (s[:, j + 4] & 15) | (s[:, j - 4] >> 6) << 4, (s[:, j + 4] >> 4) | (s[:, j] >> 6) << 4
        qs = 48 if t == "Q5_K" else 16
        q = b[:, qs + 32 * (j // 2) + l] >> (4 * (j % 2)) & 15
        if t == "Q5_K":
            q = q | (b[:, 16 + l] >> j & 1) << 4
        return (_half(raw, 0) * sc.astype(f)) * q.astype(f) - (_half(raw, 2) * mn.astype(f))
    if t == "Q6_K":
        h, c, l = i // 128, i % 128 // 32, i % 32
        ql = b[:, 64 * h + 32 * (c % 2) + l]
        q = ((ql & 15 if c < 2 else ql >> 4) | (b[:, 128 + 32 * h + l] >> 2 * c & 3) << 4) - 32
        return (_half(raw, 208) * raw[:, 192 + i // 16].view(np.int8).astype(f)) * q.astype(f)
    raise ValueError(t)


def decode(t, raw):
    if t == "F32":
        return np.frombuffer(raw, "<f4").copy()
    if t == "F16":
        return np.frombuffer(raw, "<f2").astype(np.float32)
    if t == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view(np.float32)
    _, per, size = TYPES[t]
    b = np.frombuffer(raw, np.uint8).reshape(-1, size)
    return np.stack([_weight(t, b, i) for i in range(per)], axis=1).reshape(-1)


def to_bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2")


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    import json
    b = path.read_bytes()
    n = struct.unpack("<Q", b[:8])[0]
    head = json.loads(b[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in head.items()}
