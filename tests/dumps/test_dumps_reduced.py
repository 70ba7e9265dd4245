"""Drafts with a reduced vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.dumps.kinds.flat import flat_from_mapping
from resispec_verify.dumps.parts.reduced import token_map
from resispec_verify.errors import InputError


@given(st.data())
def test_reduced_vocabularies(data):
    vocab = data.draw(st.integers(1, 30))
    ids = data.draw(st.lists(st.integers(0, vocab - 1), min_size=1, unique=True))
    if ids == list(range(0, 2 * len(ids), 2)) or (ids == list(range(len(ids))) and len(ids) < vocab):
        return  # offsets 0, 1, 2, ... and 0, 0, 0, ... are a range, and a map that was never filled in
    dtype = data.draw(st.sampled_from([np.int64, np.int32]))
    offsets = (np.array(ids) - np.arange(len(ids))).astype(dtype)
    draft = np.arange(2 * len(ids), dtype=np.float32).reshape(2, len(ids))
    mapping = {
        "target_logits": np.zeros((2, vocab), np.float32),
        "draft_logits": draft,
        "proposal_logits": draft,
        "d2t": data.draw(st.sampled_from([offsets, offsets.tolist()])),
    }
    dump = flat_from_mapping("x", mapping)
    batch = dump.batch(0, 2)
    assert np.array_equal(batch.draft[:, ids], draft)
    assert np.array_equal(batch.proposal, batch.draft)
    assert np.isfinite(batch.draft).sum() == draft.size
    tokens, total, note = token_map("x", {"d2t": offsets}, len(ids), vocab)
    assert tokens.tolist() == ids
    assert (total, note) == (vocab, None)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([0, 0], "has 2 offsets for 3 draft tokens"),
        ([0, 0, 5], "draft token 2 with offset 5 is outside the target's vocabulary 0..4"),
        ([-2, 0, 0], "draft token 0 with offset -2"),
        ([2, 1, 0], "draft tokens 0 and 1 both become target token 2"),
        ([2**62, 0, 0], "draft token 0"),
        ([2**70, 0, 0], "beyond 64 bits"),
        (np.array([2**64 - 1, 0, 0], np.uint64), "draft token 0"),
        (np.zeros((3, 1), np.int64), "array of shape [3, 1]"),
        (np.zeros(3), "d2t is an array"),
        ("abc", "d2t is a str"),
        ([0.0, 1.0, 2.0], "d2t is a list"),
    ],
)
def test_maps_that_are_wrong(offsets, words):
    mapping = {"target_logits": np.zeros((2, 5)), "draft_logits": np.zeros((2, 3)), "d2t": offsets}
    with pytest.raises(InputError) as caught:
        flat_from_mapping("x", mapping)
    assert words in str(caught.value)
    assert str(caught.value).startswith("x: ")
