"""Recorders that keep the most probable tokens and the mass of the others."""

import numpy as np
import pytest

from resispec_verify.dumps import load_mapping, open_top_pairs
from resispec_verify.errors import InputError
from resispec_verify.record import Recorder


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 3


def softmax(logits):
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def record(path, target, draft, **options):
    with Recorder(path, **options) as recorder:
        recorder.add(target_logits=target[0], draft_logits=draft[0])
        recorder.add(target_logits=target[1:], draft_logits=draft[1:])
    return open_top_pairs(path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_top_k_and_the_mass_of_all_others(tmp_path, dtype):
    target, draft = rows(6, 40), rows(6, 40, seed=1)
    dump = record(tmp_path / "run.pt", target, draft, dtype=dtype, top_k=7)
    assert (dump.positions, dump.k, dump.vocab) == (6, 7, 40)
    found = dump.pairs(0, 6)
    stored = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
    for logits, side in ((target, found.target), (draft, found.draft)):
        if dtype == "bfloat16":
            import ml_dtypes

            logits = logits.astype(ml_dtypes.bfloat16)
        else:
            logits = logits.astype(stored[dtype])
        p = softmax(logits.astype(np.float64))
        order = np.argsort(-p, axis=-1)
        assert np.array_equal(np.sort(side.probabilities)[:, ::-1], side.probabilities)
        best = np.take_along_axis(p, order[:, :7], axis=-1)
        assert np.allclose(np.take_along_axis(p, side.tokens.astype(np.int64), axis=-1), best, rtol=1e-12)
        assert np.allclose(side.probabilities, best, rtol=1e-6)
        others = np.take_along_axis(p, order[:, 7:], axis=-1)
        assert np.allclose(side.tail, others.sum(axis=-1)[:, None], rtol=1e-11)
        assert (others.max(axis=-1) <= side.most).all()
        assert np.allclose(side.most, best[:, -1], rtol=1e-5)


def test_what_was_to_be_applied_is_applied(tmp_path):
    target, draft = rows(6, 40), rows(6, 40, seed=1)
    meta = {"sampling": {"temperature": 0.5, "top_k": 9}, "name": "x"}
    dump = record(tmp_path / "run.pt", target, draft, dtype="float64", meta=meta, top_k=12)
    assert dump.meta == {"name": "x", "applied": {"temperature": 0.5, "top_k": 9}}
    p = softmax(target.astype(np.float64) / 0.5)
    best = np.sort(p, axis=-1)[:, ::-1][:, :9]
    found = dump.pairs(0, 6).target
    assert np.allclose(found.probabilities[:, :9], best / best.sum(axis=-1, keepdims=True), rtol=1e-12)
    assert np.array_equal(found.probabilities[:, 9:], np.zeros((6, 3)))
    assert np.array_equal(found.tail, np.zeros((6, 2)))


def test_a_small_vocabulary_is_listed_whole(tmp_path):
    dump = record(tmp_path / "run.pt", rows(3, 5), rows(3, 5, seed=1), top_k=1000)
    assert dump.k == 5
    assert np.array_equal(dump.pairs(0, 3).draft.tail, np.zeros((3, 2)))


def test_bytes_a_position(tmp_path):
    record(tmp_path / "run.pt", rows(50, 2000), rows(50, 2000, seed=1), top_k=100)
    arrays = load_mapping(tmp_path / "run.pt")
    assert arrays["target_top_ids"].dtype == np.int32
    a_position = sum(value.nbytes for value in arrays.values() if isinstance(value, np.ndarray)) / 50
    assert a_position == 2 * (100 * 8 + 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be a whole number from 1 on"),
        ({"top_k": 2.5}, "top_k must be a whole number from 1 on"),
        ({"top_k": 3, "meta": {"sampling": {"temperature": [1.0, 2.0]}}}, "the same for all rows"),
        ({"top_k": 3, "meta": {"sampling": {"typical": 0.5}}}, "no setting of Sampling: typical"),
        ({"top_k": 3, "meta": {"sampling": {"order": "vllm"}}}, "in the order of transformers"),
    ],
)
def test_what_cannot_be_listed_is_refused_at_once(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        Recorder(tmp_path / "run.pt", **options)
    assert list(tmp_path.iterdir()) == []


def test_rows_of_another_vocabulary_and_proposals_are_refused(tmp_path):
    with Recorder(tmp_path / "a.pt", top_k=3) as recorder:
        recorder.add(target_logits=rows(9), draft_logits=rows(9))
        with pytest.raises(InputError, match="another vocabulary"):
            recorder.add(target_logits=rows(8), draft_logits=rows(8))
        with pytest.raises(InputError, match="proposal_logits"):
            recorder.add(target_logits=rows(9), draft_logits=rows(9), proposal_logits=rows(9))
    assert open_top_pairs(tmp_path / "a.pt").positions == 1
