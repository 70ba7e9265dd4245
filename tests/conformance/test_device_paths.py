"""Path sums on the arrays' own device, against the compiled sums of the CPU, on every array library.

Arrays on the processor are sent there too, by a patch: the right value is what compiled code gives.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from libraries import assert_close, check_like, to_numpy

from resispec_verify.backends import add_at, on_cpu
from resispec_verify.device import batched_paths, dispatch
from resispec_verify.device.batched_paths import path_sums
from resispec_verify.evidence import on_device
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.rules import ResiSpec, SpecInfer

EVERYTHING = Budget(gap=0.0, most_paths=math.inf, until_decided=False)


@pytest.fixture
def batches(monkeypatch):
    """How many rows each call sums on the device; arrays of the processor go there too."""
    seen = []

    def counted(target, *arguments, **options):
        seen.append(target.shape[0])
        return path_sums(target, *arguments, **options)

    monkeypatch.setattr(on_device, "on_cpu", lambda array: False)
    monkeypatch.setattr(dispatch, "_sums", lambda target, candidates: counted)
    return seen


def hard_and_easy(vocab: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one batch: p = q, one-hots, disjoint supports, ties, two tokens, and rows of any hardness."""
    rng = np.random.default_rng(4)
    flat, one = np.full(vocab, 1 / vocab), np.eye(vocab)
    hard_p, hard_q = rng.dirichlet(np.full(vocab, 0.5), 2)
    near = 0.99 * hard_p + 0.01 * hard_q
    ties = np.resize([4.0, 1.0, 0.0, 1.0], vocab)
    half = np.resize([1.0, 0.0], vocab)
    target = [flat, one[3], one[3], half, ties, hard_p, near, flat, one[1] + one[2]]
    draft = [
        flat,
        one[3],
        one[5],
        1 - half,
        ties[::-1],
        hard_q,
        hard_p,
        hard_q,
        1.01 * one[1] + 0.99 * one[2],
    ]
    rows = [np.stack([row / row.sum() for row in side]) for side in (target, draft)]
    return rows[0], rows[1]


def both(rows, library, candidates, monkeypatch, budget=EVERYTHING):
    """Marginals on the library's device and by compiled code, checked up to gaps and bounds."""
    target, draft = (library.array(side) for side in rows)
    found = operational_marginals(ResiSpec(), target, draft, candidates, budget=budget)
    with monkeypatch.context() as here:
        here.setattr(on_device, "on_cpu", lambda array: True)
        right = operational_marginals(ResiSpec(), *rows, candidates, budget=budget)
    check_like(found.placed, target, same_dtype=False)
    placed, gap, bound = (
        to_numpy(found.placed),
        to_numpy(found.gap),
        to_numpy(found.rounding) + right.rounding,
    )
    assert (placed >= 0).all()
    assert (0.5 * np.abs(placed - right.placed).sum(-1) <= 0.5 * (gap + right.gap) + bound).all()
    accepted = np.abs(to_numpy(found.acceptance) - right.acceptance).sum(-1)
    assert (accepted <= gap + right.gap + 2 * bound).all()
    assert (np.abs(placed.sum(-1) + gap - 1.0) <= 2 * bound).all()  # nothing is lost, or counted twice
    return found, right


@pytest.mark.parametrize("candidates", [0, 1, 2, 3, 4])
def test_rows_of_every_kind_in_one_batch(setting, candidates, batches, monkeypatch):
    library, dtype = setting
    rows = [side.astype(dtype) for side in hard_and_easy(9)]
    found, _ = both(rows, library, candidates, monkeypatch)
    assert batches == ([9] if candidates else [])
    assert (to_numpy(found.gap) == 0).all()


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_a_vocabulary_of_one_token(library, candidates, batches, monkeypatch):
    found, _ = both([np.ones((2, 1)), np.ones((2, 1))], library, candidates, monkeypatch)
    np.testing.assert_array_equal(to_numpy(found.placed), 1.0)
    assert found.expansions == [0, 0]


@pytest.mark.parametrize("candidates", [2, 3])
def test_a_gap_is_reached_and_the_verdict_decided(library, candidates, batches, monkeypatch):
    rows = hard_and_easy()
    monkeypatch.setattr(batched_paths, "_EXACT", 0.0)  # of so few tokens all paths would be followed
    found, right = both(rows, library, candidates, monkeypatch, Budget(gap=1e-2))
    gap = to_numpy(found.gap)
    assert (gap <= 1e-2).all()
    assert (gap[5:8] > 0).all()  # the hard ones: something was left
    # A rule on two tokens is exact, which a gap leaves open: it is summed again, and not the whole batch.
    assert batches[0] == 9
    assert max(batches[1:]) < 9
    assert batches[-1] == 1
    assert gap[8] == 0
    assert found.exhausted == right.exhausted == [False] * 9
    low, _ = (to_numpy(v) for v in tv_interval(found, library.array(rows[0])))
    decided = low > to_numpy(found.rounding)
    np.testing.assert_array_equal(decided, tv_interval(right, rows[0])[0] > right.rounding)


def test_what_the_budget_does_not_settle_is_left_to_the_cpu(library, batches, monkeypatch):
    rows = hard_and_easy()
    monkeypatch.setattr(batched_paths, "_EXACT", 0.0)
    found, right = both(rows, library, 3, monkeypatch, Budget(gap=1e-9, most_paths=100, until_decided=False))
    assert batches[0] == 9
    same = [a == b for a, b in zip(found.expansions, right.expansions, strict=True)]
    assert same[3:8] == [True] * 5
    assert found.exhausted == right.exhausted


def test_chunks_of_one_path(library):
    rows = [library.array(side) for side in hard_and_easy(9)]
    whole, parts = path_sums(*rows, 3), path_sums(*rows, 3, room=1)
    np.testing.assert_array_equal(to_numpy(whole.paths), to_numpy(parts.paths))
    bound = np.finfo(np.float64).eps * 4 * (27 + to_numpy(whole.paths).max() + 24)
    for name in ("mass", "acceptance", "unexpanded"):
        assert_close(getattr(parts, name), to_numpy(getattr(whole, name)), bound)


@pytest.mark.parametrize(
    "rule", [ResiSpec("water-filling"), ResiSpec(budget="floor"), ResiSpec(hole="literal"), SpecInfer()],
    ids=lambda rule: ",".join([rule.name, *rule.options().values()]),
)  # fmt: skip
def test_other_rules_are_not_summed_there(library, rule, batches):
    rows = (library.array(side) for side in hard_and_easy(6))
    operational_marginals(rule, *rows, 2, budget=EVERYTHING)
    assert batches == []


def test_candidates_of_another_draft_are_not_summed_there(library, batches):
    target, draft = (library.array(side) for side in hard_and_easy(6))
    operational_marginals(ResiSpec(), target, draft, 1, drawn_from=target, budget=EVERYTHING)
    assert batches == []


def test_where_arrays_lie(library):
    array = library.array(np.ones(2))
    assert on_cpu(array) == (library.name not in ("strict, another device", "cupy", "torch-cuda"))


def test_add_at_adds_every_time(setting):
    library, dtype = setting
    if library.read_only:
        pytest.skip("nothing is added to read-only arrays")
    start, index, values = np.arange(4, dtype=dtype), np.array([2, 0, 2, 2]), np.array([1, 2, 4, 8], dtype)
    total = add_at(*(library.array(a) for a in (start, index, values)))
    check_like(total, library.array(start))
    np.testing.assert_array_equal(to_numpy(total), [2, 1, 15, 3])


def test_bfloat16_rows_of_torch(batches, monkeypatch):
    torch = pytest.importorskip("torch")
    target, draft = (torch.asarray(side).to(torch.bfloat16) for side in hard_and_easy(9))
    found = operational_marginals(ResiSpec(), target, draft, 2, budget=EVERYTHING)
    assert batches == [9]
    monkeypatch.setattr(on_device, "on_cpu", lambda array: True)
    wide = (side.to(torch.float64).numpy() for side in (target, draft))
    right = operational_marginals(ResiSpec(), *wide, 2, budget=EVERYTHING)
    # Both are bounded by how far the rows are from sums of 1; their difference is rounding in float64.
    roundings = 3 * 9 + np.asarray(right.expansions) + 24
    assert_close(found.placed, right.placed, np.finfo(np.float64).eps * 3 * roundings.max())


def test_equal_prices_do_not_break_the_budget(library):
    rows = [library.array(side) for side in hard_and_easy()]
    for most in (50.0, 100.0, 1000.0):
        found = batched_paths.shaped_marginals(path_sums, *rows, 2, gap=0.0, most_paths=most)
        assert (to_numpy(found.paths) <= most).all()
        left = to_numpy(found.unexpanded).sum(-1)
        assert (left[3] > 0) == (most < 420)  # twenty first rejections of one price, with twenty each
