"""Draft-length policies: which keep a verifier exact, and their broken twins, against values in fractions."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.evidence.path_rules import path_marginal
from resispec_verify.oracle import complete, sequence_law, stopped_law
from resispec_verify.rules import Block
from resispec_verify.rules.path_rule import PathRule
from resispec_verify.rules.stopping import (
    AfterVerification,
    DrawnProbability,
    Entropy,
    StopPolicy,
    TopProbability,
)

HALF = (F(1, 2), F(1, 2))
DRAFT = {(): (F(2, 3), F(1, 3)), (0,): HALF, (1,): (F(3, 4), F(1, 4))}
TARGET = {(): (F(1, 3), F(2, 3)), (0,): (F(2, 3), F(1, 3)), (1,): HALF}


def law(table):
    return lambda prefix: table.get(prefix, HALF)


def levels(table, count):
    found = []
    for i in range(count):
        level = np.empty((2,) * (i + 1))
        for prefix in np.ndindex(*(2,) * i):
            level[prefix] = [float(mass) for mass in law(table)(prefix)]
        found.append(level)
    return found


def marginal(stop, target=TARGET, rule=Block()):
    return path_marginal(rule, levels(target, 3), levels(DRAFT, 2), stop=stop)


def distance(rule, target, kept, after=None):
    """Total variation of the completed block from the target, in fractions."""
    found = complete(stopped_law(rule, law(target), law(DRAFT), 2, kept, after=after), law(target), 3)
    right = sequence_law(law(target), 3)
    return sum(abs(found.get(key, 0) - right.get(key, 0)) for key in {*found, *right}) / 2


# By hand: after token 0 the draft is unsure, so that TopProbability(3/5) and Entropy(13/20) keep one token
# then; DrawnProbability(2/5) is not content with token 1 at first, nor with 1 after 1.
ONE_AFTER_0 = {(0, 0): 1, (0, 1): 1, (1, 0): 2, (1, 1): 2}
NONE_IF_0 = {(0, 0): 0, (0, 1): 0, (1, 0): 2, (1, 1): 2}
KEPT_LAST = {(0, 0): 2, (0, 1): 2, (1, 0): 1, (1, 1): 1}
NOT_1 = {(0, 0): 2, (0, 1): 2, (1, 0): 0, (1, 1): 0}

#: Policy, what it keeps, and the distance from the target: of TARGET, and of a target equal to the draft.
CASES = [
    (TopProbability(0.6), ONE_AFTER_0, 0, 0),
    (TopProbability(0.6, reads="after"), NONE_IF_0, F(1, 9), F(2, 9)),
    (Entropy(0.65), ONE_AFTER_0, 0, 0),
    (Entropy(0.65, reads="after"), NONE_IF_0, F(1, 9), F(2, 9)),
    (DrawnProbability(0.4), KEPT_LAST, 0, 0),
    (DrawnProbability(0.4, token="dropped"), NOT_1, F(1, 9), F(2, 9)),
    (AfterVerification(TopProbability(0.6)), ONE_AFTER_0, 0, 0),
    (AfterVerification(DrawnProbability(0.4)), KEPT_LAST, 0, 0),
    (AfterVerification(DrawnProbability(0.4), then="correction"), KEPT_LAST, F(1, 24), 0),
    (AfterVerification(DrawnProbability(0.4, token="dropped")), NOT_1, F(1, 9), F(2, 9)),
]


@pytest.mark.parametrize(("stop", "kept", "off", "off_at_the_draft"), CASES)
def test_the_policies_in_use_and_their_broken_twins(stop, kept, off, off_at_the_draft):
    for path, count in kept.items():
        drafts = np.array([[[float(m) for m in law(DRAFT)(path[:i])] for i in range(2)]])
        assert stop.kept(drafts, np.array([path]))[0].argmax() == count
    for target, right in ((TARGET, off), (DRAFT, off_at_the_draft)):
        found = marginal(stop, target)
        assert abs(found.tv - float(right)) <= found.rounding
        assert (found.tv > found.rounding) is (right > 0)
        assert abs(found.accepted.sum() - 1) <= 2 * found.rounding
        after = getattr(stop, "then", None)
        for rule in ("block", "speculative"):
            assert distance(rule, target, lambda path: {kept[path]: F(1)}, after) == right


def test_a_cut_before_and_after_verification_accept_as_much():
    before, after = (
        marginal(stop) for stop in (DrawnProbability(0.4), AfterVerification(DrawnProbability(0.4)))
    )
    np.testing.assert_allclose(before.accepted, after.accepted, rtol=0, atol=2 * before.rounding)
    assert abs(before.mean_accepted - 1.0) <= 3 * before.rounding


def test_no_policy_and_one_that_keeps_everything_are_the_same():
    whole, never = marginal(None), marginal(TopProbability(0.0))
    np.testing.assert_allclose(never.joint, whole.joint, rtol=0, atol=never.rounding)
    nothing = marginal(TopProbability(1.0))
    np.testing.assert_array_equal(nothing.accepted, [1, 0, 0])
    assert nothing.tv <= nothing.rounding


def test_coins_of_a_policy():
    class Coin(StopPolicy):
        def kept(self, drafts, path):
            return np.tile([0.25, 0.25, 0.5], (len(path), 1))

    found = marginal(Coin())
    assert found.tv <= found.rounding
    short, whole = marginal(DrawnProbability(0.0)), marginal(Coin())
    assert whole.mean_accepted < short.mean_accepted


def test_a_rule_that_sees_the_length_is_not_kept_exact():
    """One token: speculative sampling. Two: none is accepted. Each exact; with a fair policy TV 1/4."""

    class SeesTheLength(PathRule):
        name = "sees-the-length"
        claims_exact = False
        source = "a test"

        def outcome(self, targets, drafts, path):
            if path.shape[-1] < 2:
                return Block().outcome(targets, drafts, path)
            lengths = np.zeros((len(path), 3))
            lengths[:, 0] = 1.0
            return lengths, targets

    rule, flat = SeesTheLength(), [np.full((2,) * (i + 1), 0.5) for i in range(3)]
    for length in (1, 2):
        found = path_marginal(rule, flat[: length + 1], flat[:length])
        assert found.tv <= found.rounding

    class SecondAfter0(StopPolicy):
        def kept(self, drafts, path):
            return np.stack([np.zeros(len(path)), path[:, 0] == 1, path[:, 0] == 0], axis=1).astype(float)

    fair = path_marginal(Block(), flat, flat[:2], stop=SecondAfter0())
    assert fair.tv <= fair.rounding
    found = path_marginal(rule, flat, flat[:2], stop=SecondAfter0())
    assert abs(found.tv - 1 / 4) <= found.rounding
    # Cut after verification, what the rule sees is the whole path.
    after = path_marginal(rule, flat, flat[:2], stop=AfterVerification(SecondAfter0()))
    assert after.tv <= after.rounding


def test_what_is_refused():
    with pytest.raises(InputError, match="threshold must be in"):
        TopProbability(1.5)
    with pytest.raises(InputError, match="threshold must be at least 0"):
        Entropy(-1.0)
    with pytest.raises(InputError, match="threshold must be a number"):
        DrawnProbability("0.5")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="token must be kept or dropped, got 'gone'"):
        DrawnProbability(0.5, token="gone")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="reads must be before or after"):
        Entropy(0.5, reads="never")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="then must be target or correction"):
        AfterVerification(Entropy(0.5), then="draft")  # type: ignore[arg-type]
    for given in (AfterVerification(Entropy(0.5)), "entropy"):
        with pytest.raises(InputError, match="policy must be a policy"):
            AfterVerification(given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="stop must be a StopPolicy"):
        marginal("entropy")

    class Wrong(StopPolicy):
        def __init__(self, found):
            self.found = found

        def kept(self, drafts, path):
            return self.found

    with pytest.raises(InputError, match=r"Wrong.kept must have shape \(4, 3\)"):
        marginal(Wrong(np.ones((4, 2))))
    with pytest.raises(InputError, match="must hold laws"):
        marginal(Wrong(np.ones((4, 3))))
