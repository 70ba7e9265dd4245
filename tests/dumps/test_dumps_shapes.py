"""Rows whose leading axes do not fit: the line says what to save instead, and saving that works."""

from __future__ import annotations

import re

import numpy as np
import pytest
from dump_helpers import saved_npz

import resispec_verify as rv
from resispec_verify import InputError, open_dump

V = 50


def of(*shape: int) -> np.ndarray:
    return np.random.default_rng(seed_of(shape)).normal(size=shape)


def seed_of(shape: tuple[int, ...]) -> int:
    return sum(n * 7**i for i, n in enumerate(shape))


def refusal(path) -> str:
    with pytest.raises(InputError) as caught:
        open_dump(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("target", "draft", "remedy"),
    [
        ((2, 3, V), (6, V), "reshape(2, 3, 50)"),
        ((6, V), (2, 3, V), "reshape(6, 50)"),
        ((6, 1, V), (6, V), "reshape(6, 1, 50)"),
        ((V,), (1, V), "reshape(50,)"),
        ((1, V), (V,), "reshape(1, 50)"),
        ((2, 3, V), (3, 2, V), "swapaxes(0, 1)"),
    ],
)
def test_the_remedy_of_rows_in_other_axes_works(tmp_path, target, draft, remedy):
    rows = of(*draft)
    said = refusal(saved_npz(tmp_path / "x.npz", {"target_logits": of(*target), "draft_logits": rows}))
    assert said.endswith(f"save draft_logits.{remedy}")
    mended = eval(re.search(r"draft_logits(\.\w+\([\d, ]*\))$", said)[0], {"draft_logits": rows})
    again = saved_npz(tmp_path / "y.npz", {"target_logits": of(*target), "draft_logits": mended})
    dump = open_dump(again)
    count = int(np.prod(target[:-1]))
    assert dump.positions == count
    expected = rows.swapaxes(0, 1) if "swap" in remedy else rows
    np.testing.assert_array_equal(dump.batch(0, count).draft, expected.reshape(count, V))


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ((6, V), (V, 6), "axes the wrong way round; save that one as .T"),
        ((6, V), (5, V), "log a row of both after each prefix"),
        ((2, 3, V), (5, V), "log a row of both after each prefix"),
        ((V,), (6, V), "log a row of both after each prefix"),
        ((6, V), (6, V - 10), "--pad-vocab"),
    ],
)
def test_rows_that_are_not_the_same_positions(tmp_path, target, draft, words):
    path = saved_npz(tmp_path / "x.npz", {"target_logits": of(*target), "draft_logits": of(*draft)})
    said = refusal(path)
    assert words in said
    assert str([*target]) in said
    assert str([*draft]) in said


def test_rows_that_are_rather_columns_are_noted(tmp_path):
    turned = {"target_logits": of(5000, 4), "draft_logits": of(5000, 4) + 1}
    (note,) = open_dump(saved_npz(tmp_path / "x.npz", turned)).notes
    assert note == (
        "5000 positions of a vocabulary of 4 tokens: each row is taken as 4 tokens; if it is transposed, "
        "save x.T of both"
    )
    batched = {key: rows.reshape(5000, 2, 2) for key, rows in turned.items()}
    (note,) = open_dump(saved_npz(tmp_path / "b.npz", batched)).notes
    assert note.endswith("save np.moveaxis(x, 0, -1) of both")
    few = {key: rows[:999] for key, rows in turned.items()}
    assert open_dump(saved_npz(tmp_path / "few.npz", few)).notes == ()
    assert open_dump(saved_npz(tmp_path / "y.npz", {key: rows.T for key, rows in turned.items()})).notes == ()
    stated = turned | {"meta": np.asarray('{"vocab_size": 4}')}
    assert open_dump(saved_npz(tmp_path / "z.npz", stated)).notes == ()


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ((2, 3, 4), (6, 4), r"give target\.reshape\(-1, 4\)"),
        ((3, 4), (4, 3), r"\.T turns them"),
        ((3, 4), (2, 4), "give the same rows, over the same vocabulary, of both"),
    ],
)
def test_arrays_that_are_handed_over(target, draft, words):
    laws = [np.full(shape, 1 / shape[-1]) for shape in (target, draft)]
    with pytest.raises(InputError, match=words):
        rv.operational_marginals(rv.ResiSpec(), *laws, candidates=1)
