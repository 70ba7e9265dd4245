"""Rules that engines run, by hand, in exact fractions, and beside a simulation of what the engine does."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from resispec_verify.catalogue.measured import Case, measure
from resispec_verify.errors import InputError
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.path_rules import path_marginal
from resispec_verify.logged.replay import replayable
from resispec_verify.oracle import block_law, marginal, memoryless, rotating, total_variation
from resispec_verify.rules import (
    Block,
    OpenVINO,
    Redraw,
    Relaxed,
    Rule,
    SharedNoise,
    Speculative,
    Synthetic,
)
from resispec_verify.rules.checked import CheckedRule, check_interface

EPS = float(np.finfo(np.float64).eps)
P, Q = (F(3, 10), F(4, 10), F(3, 10)), (F(6, 10), F(3, 10), F(1, 10))
DRAWS, ALPHA = 200_000, 1e-9  # of the simulations; seeds are fixed, so a test passes always or never


def f(*values):
    return tuple(F(value) for value in values)


def close(counts, law):
    """Whether a sample is within the distance that its law exceeds with probability at most alpha.

    Bretagnolle-Huber-Carol: ``P(L1 >= d) <= 2^V exp(-n d^2 / 2)``.
    """
    total = counts.sum()
    distance = math.sqrt(2 * (counts.size * math.log(2) - math.log(ALPHA)) / total)
    return np.abs(counts / total - np.array(law, float)).sum() <= distance


def emitted(rule, target, draft, **options):
    rows = (np.array([law], float) for law in (target, draft))
    found = operational_marginals(rule, *rows, 1, **options)
    return np.asarray(found.placed)[0], float(found.rounding[0]) + 4 * EPS


# ---- the residual with the noise of the candidate ------------------------------------------------------


def test_shared_noise_by_hand():
    # r = (0, 1, 2)/10: token 2 starts at 1/2, token 1 at 3. Up to 3, H grows by .2 (3 - 1/2) = 1/2: token 2
    # has won by then with 1/3. Of the 2/3 left a third is token 1's: G = (0, 2/9, 7/9), not (0, 1/3, 2/3).
    result = marginal("shared-noise", P, Q, 1)
    assert result.law == f("3/10", "11/30", "1/3")
    assert result.acceptance == marginal("speculative", P, Q, 1).acceptance
    placed, bound = emitted(SharedNoise(), P, Q)
    assert 0.5 * np.abs(placed - np.array(result.law, float)).sum() <= bound


@pytest.mark.parametrize("seed", [0, 2])  # TV .035 and .028; of 1 and 3 it is below what these draws can tell
def test_shared_noise_is_what_reused_gumbel_noise_emits(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(5), size=2)
    noise, coin = rng.gumbel(size=(DRAWS, 5)), rng.random(DRAWS)
    candidate = (np.log(q) + noise).argmax(axis=1)
    with np.errstate(divide="ignore"):
        recovered = (np.log(np.clip(p - q, 0, None)) + noise).argmax(axis=1)
    token = np.where(coin < (p / q)[candidate], candidate, recovered)
    counts = np.bincount(token, minlength=5)
    assert close(counts, emitted(SharedNoise(), p, q)[0])
    # With noise of its own the residual is right, and these draws tell the two apart.
    fresh = (np.log(np.clip(p - q, 1e-300, None)) + rng.gumbel(size=(DRAWS, 5))).argmax(axis=1)
    right = np.bincount(np.where(coin < (p / q)[candidate], candidate, fresh), minlength=5)
    assert close(right, p)
    assert not close(counts, p)


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (f("1/4", "3/4"), f("2/3", "1/3")),  # one token is left
        (f("1/4", "1/4", "1/2"), f(0, 1, 0)),  # a draft without randomness: all start at 0
        (f("1/10", "3/10", "6/10"), f("7/10", "1/10", "2/10")),  # r = (0, 2, 4)/10: both start at 1/2
        (P, P),
    ],
)
def test_shared_noise_does_no_harm(target, draft):
    assert marginal("shared-noise", target, draft, 1).law == target
    placed, bound = emitted(SharedNoise(), target, draft)
    assert 0.5 * np.abs(placed - np.array(target, float)).sum() <= bound


def test_shared_noise_at_a_full_vocabulary():
    # Plain prefix sums of 80 bits, which are 2,000 times finer: 100,000 tokens in order of their start.
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(100_000, 0.1), size=2)
    found = operational_marginals(SharedNoise(), p[None, :], q[None, :], 1)
    fine = [law.astype(np.longdouble) for law in (p, q)]
    rate = np.clip(fine[0] - fine[1], 0, None)
    runs = np.flatnonzero(rate)
    runs = runs[np.argsort(fine[1][runs] / rate[runs], kind="stable")]
    start, together = fine[1][runs] / rate[runs], np.cumsum(rate[runs])
    grown = np.concatenate([[0], np.cumsum(together[:-1] * np.diff(start))])
    nobody = np.concatenate([1 / (1 + grown), [0]])
    law = np.minimum(*fine)
    law[runs] += rate.sum() * rate[runs] * np.cumsum((-np.diff(nobody) / together)[::-1])[::-1]
    assert 0.5 * np.abs(np.asarray(found.placed)[0] - law).sum() <= float(found.rounding[0])


# ---- one position ---------------------------------------------------------------------------------------


def test_redraw_by_hand():
    # min(p, q) = (3, 3, 1)/10, and 3/10 of p.
    assert marginal("redraw", P, Q, 1).law == f("39/100", "42/100", "19/100")
    assert total_variation(marginal("redraw", P, Q, 1).law, P) == F(11, 100)
    # Lenience 2: nothing is rejected. A draft that is certain: 2 p(0) of it, and half of p.
    assert marginal("redraw", P, Q, 1, lenience=2).law == Q
    assert marginal("redraw", f("1/4", "3/4"), f(1, 0), 1, lenience=2).law == f("5/8", "3/8")
    for lenience in (1.0, 1.25, 2.0):
        placed, bound = emitted(Redraw(lenience), P, Q)
        right = marginal("redraw", P, Q, 1, lenience=F(lenience)).law
        assert 0.5 * np.abs(placed - np.array(right, float)).sum() <= bound


def test_synthetic_by_hand():
    assert marginal("synthetic", P, Q, 1, rate="1/2").law == f("3/10", "19/60", "23/60")
    assert marginal("synthetic", P, Q, 1, rate="1/2", correction="target").law == f("9/20", "7/20", "1/5")
    assert marginal("synthetic", P, Q, 1, rate=1).law == Q
    assert marginal("synthetic", P, P, 1, rate="1/2").law == P
    for correction in ("residual", "target"):
        placed, bound = emitted(Synthetic(0.5, correction), P, Q)
        right = marginal("synthetic", P, Q, 1, rate="1/2", correction=correction).law
        assert 0.5 * np.abs(placed - np.array(right, float)).sum() <= bound


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, [1, 1, 1, 1]),  # 10 of four tokens, 6/10 below the best
        ({"topk": 3, "delta": 0.25}, [1, 1, 1, 0]),  # 1/4 = 1/2 - 1/4: equal to the threshold
        ({"topk": 2, "delta": 0.25}, [1, 1, 0, 0]),  # of equals, the lower index is in the top two
        ({"topk": 3, "delta": 0.125}, [1, 0, 0, 0]),
        ({"topk": 1, "delta": 1.0}, [1, 0, 0, 0]),
        ({"topk": 4, "delta": 0.5}, [1, 1, 1, 1]),  # even probability 0
    ],
)
def test_relaxed_passes_what_the_kernel_does(options, passes):
    target = f("1/2", "1/4", "1/4", 0)
    for x, passed in enumerate(passes):
        draft = tuple(F(int(y == x)) for y in range(4))
        result = marginal("relaxed", target, draft, 1, **options)
        assert result.acceptance == (passed,)
        assert result.law[x if passed else 0] == 1
        placed, _ = emitted(Relaxed(**options), target, draft)
        np.testing.assert_array_equal(placed, [float(mass) for mass in result.law])


def test_raw_q_declared_and_filtered_q_drawn():
    # Candidates from the best two of q, divided by q: (2/3, 1/3, 0), against p/q = (1/2, 4/3, 3). Accepted
    # (1/3, 1/3), and the third that is rejected is drawn from (0, 1/3, 2/3).
    drawn = f("2/3", "1/3", 0)
    result = marginal("speculative", P, Q, 1, proposal=drawn)
    assert (result.law, result.acceptance) == (f("1/3", "4/9", "2/9"), (F(2, 3),))
    assert total_variation(result.law, P) == F(7, 90)
    placed, bound = emitted(Speculative(), P, Q, drawn_from=np.array([drawn], float))
    assert 0.5 * np.abs(placed - np.array(result.law, float)).sum() <= 4 * bound


# ---- paths ----------------------------------------------------------------------------------------------


def levels(chain, size, length):
    found = []
    for i in range(length):
        level = np.empty((size,) * (i + 1))
        for prefix in np.ndindex(*(size,) * i):
            level[prefix] = [float(mass) for mass in chain(prefix)]
        found.append(level)
    return found


def test_openvino_by_hand():
    # x = 0 (1/4): q(x)/p(y) = 1/2 for either y, 51 of 101 coins; x = 1 (3/4): above 1. What replaces x = 0 is
    # a draw from p, the chain having no memory: 1/4 50/101 (1/2, 1/2).
    p, q = f("1/2", "1/2"), f("1/4", "3/4")
    assert measure("openvino", Case(p, q, 1, "memoryless"))[1] == f("19/101", "82/101")
    # Equal laws: x = 1 meets y = 0 with (1/4)/(3/4), 34 of 101 coins, and else passes; x = 0 always does.
    p = f("3/4", "1/4")
    rejected = F(1, 4) * F(3, 4) * F(67, 101)
    law = measure("openvino", Case(p, p, 1, "memoryless"))[1]
    assert law == (F(3, 4) + rejected * F(3, 4), F(1, 4) - rejected + rejected * F(1, 4))
    # After token 1 the rotated chain has (1/4, 3/4), and the correction is drawn given the token it replaces.
    law = measure("openvino", Case(p, p, 1, "rotating"))[1]
    assert law == (F(3, 4) + rejected * F(1, 4), F(1, 4) - rejected + rejected * F(3, 4))


def test_openvino_is_what_its_loop_emits():
    rng = np.random.default_rng(0)
    p, q = (tuple(F(int(k), 12) for k in law) for law in ([5, 1, 6], [2, 7, 3]))
    target, draft = levels(rotating(p), 3, 3), levels(rotating(q), 3, 2)

    def draw(level, *prefix):
        ends = np.cumsum(level[prefix], axis=-1)
        return np.minimum((rng.random(DRAWS)[:, None] > ends).sum(axis=1), 2)

    zeros = np.zeros(DRAWS, int)
    x1 = draw(draft[0])
    x2 = draw(draft[1], x1)
    own = [draw(target[0]), draw(target[1], x1), draw(target[2], x1, x2)]
    shares = [draft[0][x1] / target[0][own[0]], draft[1][x1, x2] / target[1][x1, own[1]]]
    accepted = [rng.integers(0, 101, DRAWS) / 100 <= share for share in shares]
    # The row after a rejected token gives what stands in its place.
    first = np.where(accepted[0], x1, own[1])
    second = np.where(accepted[0], np.where(accepted[1], x2, own[2]), -1)
    third = np.where(accepted[0] & accepted[1], own[2], -1)
    keys = np.ravel_multi_index((first, second + 1, third + 1), (3, 4, 4)) + zeros
    law = np.zeros(48)
    for word, mass in block_law("openvino", rotating(p), rotating(q), 2).items():
        padded = (*word, -1, -1)[:3]
        law[np.ravel_multi_index((padded[0], padded[1] + 1, padded[2] + 1), (3, 4, 4))] += float(mass)
    assert close(np.bincount(keys, minlength=48), law)


@pytest.mark.parametrize("chain", [memoryless, rotating])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (OpenVINO(), {}),
        (Block("token"), {"residual": "token"}),
        (Block("block", "product"), {"coins": "product"}),
        (Block("token", "product"), {"residual": "token", "coins": "product"}),
    ],
    ids=["openvino", "token", "product", "both"],
)
def test_paths_agree_with_their_transcriptions(chain, length, rule, options):
    rng = np.random.default_rng(length)
    for _ in range(6):
        size = int(rng.integers(2, 5))
        counts = rng.multinomial(12, rng.dirichlet(np.full(size, 0.7)), size=2).tolist()
        p, q = (chain([F(k, 12) for k in law]) for law in counts)
        found = path_marginal(rule, levels(p, size, length + 1), levels(q, size, length))
        right = np.zeros((size,) * (length + 1))
        for word, mass in block_law(rule.name, p, q, length, **options).items():
            block = float(mass)
            tail = np.ones(())
            for i in range(len(word), length + 1):
                tail = tail[..., None] * levels(p, size, length + 1)[i][word]
            right[word] += block * tail
        assert 0.5 * np.abs(found.joint - right).sum() <= found.rounding + (2 * length + 1) * EPS
        assert abs(found.accepted.sum() - 1.0) <= 2 * found.rounding


def test_block_with_the_residual_of_a_token():
    # Of one token both are speculative sampling; of two the joint law is off, and the first token is right.
    for options in ({"residual": "token"}, {"coins": "product"}, {"residual": "token", "coins": "product"}):
        assert measure("block", Case(P, Q, 1, "memoryless"), **options) == (0, P)
    tv, first = measure("block", Case(P, Q, 2, "memoryless"), residual="token")
    assert (tv, first) == (F(1, 100), P)
    assert measure("block", Case(P, Q, 2, "memoryless")) == (0, P)


def test_coins_that_are_multiplied():
    # L = 2: both fail with 1 - m + w_2 ln m, m the larger weight; the last fails with 1 - w_2 + w_2 ln w_2.
    p, q = f("1/4", "3/4"), f("3/4", "1/4")
    drawn = np.array([[0, 0]])
    target, draft = (np.array([[law] * n], float) for law, n in ((p, 3), (q, 2)))
    lengths, _ = Block("block", "product").outcome(target, draft, drawn)
    w1, w2 = 1 / 3, 1 / 9
    none, last = 1 - w1 + w2 * math.log(w1), 1 - w2 + w2 * math.log(w2)
    np.testing.assert_allclose(lengths[0], [none, last - none, 1 - last], rtol=0, atol=8 * EPS)
    coins = np.cumprod(np.random.default_rng(0).random((DRAWS, 2)), axis=1)
    kept = np.where(coins[:, 1] <= w2, 2, np.where(coins[:, 0] <= w1, 1, 0))
    assert close(np.bincount(kept, minlength=3), lengths[0])


def test_what_is_refused():
    word: Any = str  # a wrong word, whatever the types say
    for bad, said in (
        (lambda: Relaxed(topk=0), "relaxed: topk must be a whole number of at least 1, got 0"),
        (lambda: Relaxed(delta=1.5), r"relaxed: delta must be in \[0, 1\], got 1.5"),
        (lambda: Redraw(0.0), "redraw: lenience must be a finite number above 0, got 0.0"),
        (lambda: Redraw(math.inf), "redraw: lenience must be a finite number above 0, got inf"),
        (lambda: Synthetic(), "rule 'synthetic' needs rate"),
        (lambda: Synthetic(1.5), r"synthetic: rate must be in \[0, 1\], got 1.5"),
        (
            lambda: Synthetic(0.5, word("draft")),
            "synthetic: correction must be residual or target, got 'draft'",
        ),
        (lambda: Block(word("draft")), "block: residual must be block or token, got 'draft'"),
        (lambda: Block(coins=word("one")), "block: coins must be independent or product, got 'one'"),
        (lambda: replayable(Block("token"), "here"), "here: replay knows block with its defaults only"),
    ):
        with pytest.raises(InputError, match=said):
            bad()
    assert replayable(Block(), "here") == Block()


def test_a_coin_that_ignores_the_residual_is_not_certain_of_a_faint_one():
    # p and q differ in the last place: what is left of p is rounding, and half of the mass is drawn from it.
    p = np.array([[0.3, 0.4, 0.3]])
    q = np.array([[np.nextafter(0.3, 1), 0.4, np.nextafter(0.3, 0)]])
    half = operational_marginals(Synthetic(0.5), p, q, 1)
    assert float(half.rounding[0]) >= 0.5
    assert float(operational_marginals(Synthetic(0.5, "target"), p, q, 1).rounding[0]) < 1e-12
    # The standard test rejects as often as there is a residual, so that its mass cannot matter.
    assert float(operational_marginals(Speculative(), p, q, 1).rounding[0]) < 1e-12


def test_the_same_of_a_rule_of_ones_own():
    class Own(Rule):
        name, source, claims_exact, depends_on = "own", "a test", False, "nothing"
        rejects_its_residual = False

        def reject(self, state, tokens):
            return replace(state, round=state.round + 1)

    assert CheckedRule(check_interface(Own(), "here")).rejects_its_residual is False
    setattr(Own, "rejects_its_residual", 0)  # noqa: B010, what no type checker lets pass
    with pytest.raises(InputError, match="rejects_its_residual must be True or False, got 0"):
        check_interface(Own(), "here")
