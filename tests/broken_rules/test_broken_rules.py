"""Every fault must come out inexact, with the marginal it is known to emit.

Where the right value is a fraction it was derived by hand or by the rational oracle, and the computed
marginal has to be within its own derived rounding bound of it. Where a public report gives four digits, half
a unit of the last one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from faults import (
    ArgmaxAtAnyTemperature,
    Blend,
    DraftNotRenormalised,
    LlamaCpp,
    LosesTheFinalDraw,
    MergedPair,
    NeverChecked,
    RedrawsFromTarget,
    ScoredAgainst,
    SkipsDuplicates,
    SoftmaxOfResidual,
    SortedPair,
    TargetOnly,
    TinyBias,
    TinyBiasByToken,
    UnnormalisedResidual,
    WritesInPlace,
)

from resispec_verify.distributions import Pair
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import Marginals, tv_interval
from resispec_verify.oracle import State as OracleState
from resispec_verify.oracle import (
    Transcription,
    accept_ratio,
    enumerate_rule,
    independent,
    marginal,
    positive_part_residual,
    specinfer,
    total_variation,
)
from resispec_verify.rules import Greedy, Proposal, ResiSpec, Rule, SpecInfer, Speculative
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.reading import Clock, by_hand
from resispec_verify.tables.row import Row, label
from resispec_verify.verdict import Verdict, judge

EPS = float(np.finfo(np.float64).eps)
FOUR_DIGITS = 0.5e-4  # half a unit of the last digit that a report gives
EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)


def f(*values: Any) -> tuple[F, ...]:
    return tuple(F(value) for value in values)


P, Q = f("1/2", "3/10", "1/5"), f("3/5", "3/10", "1/10")
P4, Q4 = f("1/10", "2/10", "3/10", "4/10"), f("4/10", "3/10", "2/10", "1/10")
TOP_2 = f("4/7", "3/7", 0, 0)  # Q4 cut to its two best tokens
NUCLEUS = f("5/8", "3/8", 0)  # P under top-p 0.8


@dataclass(frozen=True)
class Case:
    """A fault, the input that shows it, and the law that it emits there."""

    rule: Rule
    law: tuple[F, ...]
    target: tuple[F, ...] = P
    draft: tuple[F, ...] = Q
    n: int = 1
    drawn_from: tuple[F, ...] | None = None
    proposal: Proposal | None = None


def row(law: tuple[F, ...]) -> np.ndarray:
    return np.array([law], np.float64)


def emitted(case: Case) -> Marginals:
    drawn = None if case.drawn_from is None else row(case.drawn_from)
    return operational_marginals(
        case.rule,
        row(case.target),
        row(case.draft),
        case.n,
        drawn_from=drawn,
        proposal=case.proposal,
        budget=EVERYTHING,
    )


def verdict(marginals: Marginals, target: np.ndarray) -> Verdict:
    low, high = tv_interval(marginals, target)
    return judge(float(low[0]), float(high[0]), float(marginals.rounding[0]))


def distance(placed: np.ndarray, law: tuple[F, ...]) -> float:
    """Total variation between a computed row and a rational law, without further rounding."""
    return float(sum(abs(F(float(a)) - b) for a, b in zip(placed, law, strict=True)) / 2)


def allowance(marginals: Marginals, n: int) -> float:
    """The derived rounding bound; the fractions of p and q are rounded once each on their way in, a round."""
    return float(marginals.rounding[0]) + (n + 1) * EPS


def one_hot(token: int, size: int = 3) -> tuple[F, ...]:
    return tuple(F(int(x == token)) for x in range(size))


def reordered(key: Any) -> dict[tuple[int, ...], F]:
    """Law of two i.i.d. draws from Q4 after a deterministic change to each pair."""
    law: dict[tuple[int, ...], F] = {}
    for tokens, weight in independent(Q4, 2).items():
        law[key(tokens)] = law.get(key(tokens), F(0)) + weight
    return law


def skipping() -> Transcription:
    """SpecInfer, but a duplicate changes nothing."""

    def reject(state: OracleState, token: int) -> OracleState:
        if token in state.rejected:
            return state
        return replace(positive_part_residual(state, token), rejected=(*state.rejected, token))

    def accept(state: OracleState, token: int) -> F:
        return F(0) if token in state.rejected else accept_ratio(state, token)

    return Transcription(accept, reject)


SORTED = enumerate_rule(specinfer(), P4, Q4, 2, reordered(lambda pair: tuple(sorted(pair)))).law
MERGED = enumerate_rule(specinfer(), P4, Q4, 2, reordered(lambda pair: tuple(dict.fromkeys(pair)))).law
SKIPPED = enumerate_rule(skipping(), P4, Q4, 2).law

# The law is the report's, as exact fractions (by hand: one candidate, base pair), unless it says oracle.
CASES = {
    "transformers#32867": Case(Speculative(), f("5/6", 0, "1/6"), proposal=Greedy()),
    "transformers#32867, specinfer": Case(SpecInfer(), f("5/6", 0, "1/6"), proposal=Greedy()),
    "transformers#32867, drawn from": Case(Speculative(), f("5/6", 0, "1/6"), drawn_from=one_hot(0)),
    "transformers#47932": Case(Speculative(), TOP_2, f("5/10", "3/10", "2/10", 0), Q4, drawn_from=TOP_2),
    "vllm#10198": Case(ScoredAgainst(tuple(map(float, P))), P, NUCLEUS),
    "Spec-RL#14": Case(RedrawsFromTarget(), f("11/20", "33/100", "3/25")),
    "lattice#243": Case(NeverChecked(), one_hot(1), one_hot(0), one_hot(1)),
    "ATOM#2318": Case(ArgmaxAtAnyTemperature(), one_hot(0)),
    "EAGLE#110": Case(
        Speculative(), f(1, 0), f("51/100", "49/100"), f("51/100", "49/100"), proposal=Greedy()
    ),
    # Oracle, test_oracle_cases.py.
    "EAGLE#74": Case(DraftNotRenormalised(), f("1/10", "1/5", "673/1960", "699/1960"), P4, Q4, 2),
    # Oracle: pairs reordered before the test.
    "llama.cpp#5625, sorted": Case(SpecInfer(), SORTED, P4, Q4, 2, proposal=SortedPair()),
    "llama.cpp#5625, merged": Case(SpecInfer(), MERGED, P4, Q4, 2, proposal=MergedPair()),
    # Oracle: a transcription of the skipping mode, and the best tokens as the only tuple of candidates.
    "specinfer-skip-duplicates": Case(SkipsDuplicates(), SKIPPED, P4, Q4, 2),
    "llama-cpp, n = 1": Case(LlamaCpp(), marginal("specinfer", P4, Q4, 1, proposal={(0,): F(1)}).law, P4, Q4),
    "llama-cpp, n = 2": Case(
        LlamaCpp(), marginal("specinfer", P4, Q4, 2, proposal={(0, 1): F(1)}).law, P4, Q4, 2
    ),
    "transformers#45979": Case(Blend(), f("11/20", "3/10", "3/20")),
    # By hand: the coin's threshold is the probability of the first sibling, so it is always accepted.
    "sglang, threshold 0.5": Case(TargetOnly(0.5), one_hot(0)),
}

# TV of the law from the target: what the report says, or the fraction behind it.
TV = {
    "transformers#32867": F(1, 3),
    "transformers#32867, specinfer": F(1, 3),
    "transformers#32867, drawn from": F(1, 3),
    "transformers#47932": F(1, 5),
    "vllm#10198": F(1, 5),
    "Spec-RL#14": F(2, 25),
    "lattice#243": F(1),
    "ATOM#2318": F(1, 2),
    "EAGLE#110": F(49, 100),
    "llama.cpp#5625, sorted": F(3, 50),
    "llama.cpp#5625, merged": F(3, 112),
    "transformers#45979": F(1, 20),
    "sglang, threshold 0.5": F(1, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_inexact_with_the_law_it_emits(name):
    case = CASES[name]
    marginals = emitted(case)
    assert verdict(marginals, row(case.target)) is Verdict.INEXACT
    assert float(marginals.gap[0]) == 0.0
    assert distance(marginals.placed[0], case.law) <= allowance(marginals, case.n)


@pytest.mark.parametrize("name", TV)
def test_the_total_variation_is_the_reported_one(name):
    case = CASES[name]
    assert total_variation(case.law, case.target) == TV[name]
    marginals = emitted(case)
    low, high = tv_interval(marginals, row(case.target))
    assert abs(float(low[0]) - float(TV[name])) <= allowance(marginals, case.n)
    assert abs(float(high[0]) - float(TV[name])) <= allowance(marginals, case.n)


def test_the_four_digits_of_the_oracle_cases():
    assert abs(float(total_variation(CASES["EAGLE#74"].law, P4)) - 0.0434) <= FOUR_DIGITS
    assert abs(float(total_variation(MERGED, P4)) - 0.0268) <= FOUR_DIGITS
    # On random pairs of five tokens, skipping duplicates was inexact by at most 0.114.
    assert 0 < total_variation(SKIPPED, P4) < F(114, 1000)


@pytest.mark.parametrize(("threshold", "tv"), [(0.5, 0.5), (0.3, 0.7)])
def test_a_target_only_threshold_costs_up_to_its_complement(threshold, tv):
    # A sibling with p(x) = threshold is always accepted: [1, 0] instead of [threshold, 1 - threshold].
    target, draft = np.array([[threshold, 1 - threshold]]), np.array([[0.75, 0.25]])
    marginals = operational_marginals(TargetOnly(threshold), target, draft, 1)
    assert verdict(marginals, target) is Verdict.INEXACT
    assert abs(float(tv_interval(marginals, target)[0][0]) - tv) <= allowance(marginals, 1)


def test_transformers_28508_softmax_of_the_residual():
    # (p - q)+ = (0, 0, 1/10), rejected with probability 1/10: the softmax of that, written out.
    case = Case(SoftmaxOfResidual(), ())
    marginals = emitted(case)
    other = 0.1 / (2 + math.exp(0.1))
    law = np.array([0.5 + other, 0.3 + other, 0.1 + math.exp(0.1) * other])
    assert verdict(marginals, row(P)) is Verdict.INEXACT
    assert 0.5 * np.abs(marginals.placed[0] - law).sum() <= allowance(marginals, 1)
    assert np.abs(marginals.placed[0] - [0.5322, 0.3322, 0.1356]).max() <= FOUR_DIGITS
    assert abs(float(tv_interval(marginals, row(P))[0][0]) - 0.0644) <= FOUR_DIGITS


def test_eagle_74_three_tokens_are_too_small_a_test():
    # Oracle (test_oracle_cases.py): the wrong rule emits exactly the target here, V = 3 cannot show it.
    small = Case(DraftNotRenormalised(), (), f("1/5", "3/10", "1/2"), f("1/2", "3/10", "1/5"), 2)
    assert verdict(emitted(small), row(small.target)) is Verdict.EXACT
    assert verdict(emitted(CASES["EAGLE#74"]), row(P4)) is Verdict.INEXACT


@pytest.mark.parametrize("name", ["transformers#47932", "EAGLE#110", "transformers#32867"])
def test_a_proposal_fault_is_gone_once_the_draft_is_declared_as_drawn(name):
    case = CASES[name]
    truth = {"transformers#47932": TOP_2, "EAGLE#110": one_hot(0, 2), "transformers#32867": one_hot(0)}[name]
    honest = replace(case, draft=truth, drawn_from=None)
    assert verdict(emitted(honest), row(case.target)) is Verdict.EXACT


@pytest.mark.parametrize("rule", [UnnormalisedResidual(), LosesTheFinalDraw(1e-9), LosesTheFinalDraw(1.0)])
def test_a_rule_that_loses_mass_is_inexact(rule):
    # Every token is at or below the target, so the placed excess is 0: only the missing mass gives it away.
    marginals = operational_marginals(rule, row(P), row(Q), 1)
    assert (marginals.placed[0] <= row(P)[0] + allowance(marginals, 1)).all()
    assert verdict(marginals, row(P)) is Verdict.INEXACT


@pytest.mark.parametrize("rule", [TinyBias(), TinyBiasByToken()])
def test_a_bias_of_1e_9_is_found_among_a_thousand_tokens(rule):
    rng = np.random.default_rng(1000)
    target, draft = rng.dirichlet(np.ones(1000), size=2)[:, None, :]
    target[0, :2] = 0.001  # room for the bias; the row is normalised again
    target /= target.sum()
    marginals = operational_marginals(rule, target, draft, 1, budget=EVERYTHING)
    assert float(marginals.gap[0]) == 0.0
    # By construction the emitted law is the target with 1e-9 moved.
    assert abs(float(tv_interval(marginals, target)[0][0]) - 1e-9) <= float(marginals.rounding[0])
    assert verdict(marginals, target) is Verdict.INEXACT
    unbiased = replace(rule, bias=0.0)
    honest = operational_marginals(unbiased, target, draft, 1, budget=EVERYTHING)
    assert verdict(honest, target) is Verdict.EXACT


def test_a_tiny_bias_is_found_with_the_default_budget_too():
    target, draft = row(P4), row(Q4)
    assert verdict(operational_marginals(TinyBiasByToken(), target, draft, 2), target) is Verdict.INEXACT


def test_vllm_16952_a_rule_that_writes_in_place_is_scored_on_the_originals():
    # The rule emits (p + q)/2, as transformers#45979 does; the arrays of the caller must stay as they were.
    target, draft = row(P), row(Q)
    marginals = operational_marginals(WritesInPlace(), target, draft, 1)
    np.testing.assert_array_equal(target, row(P))
    np.testing.assert_array_equal(draft, row(Q))
    assert verdict(marginals, row(P)) is Verdict.INEXACT


@pytest.mark.parametrize("budget", ["local", "floor"])
@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
@pytest.mark.parametrize("hole", ["excluded", "literal"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_resispec_is_inexact_on_the_worked_pair_under_every_reading(redistribution, budget, hole, n):
    # Theorem 1 as printed does not hold: some q >= R keeps mass after a rejection. Law by the oracle.
    rule = ResiSpec(redistribution, budget, hole)
    target, draft = f("3/10", "4/10", "3/10"), f("6/10", "3/10", "1/10")
    right = marginal("resispec", target, draft, n, redistribution=redistribution, budget=budget, hole=hole)
    case = Case(rule, right.law, target, draft, n)
    marginals = emitted(case)
    assert verdict(marginals, row(target)) is Verdict.INEXACT
    assert distance(marginals.placed[0], right.law) <= allowance(marginals, n)


# What the table of the `kl` command says of them


def table(rule: Rule, target: tuple[F, ...], draft: tuple[F, ...], n: int = 1) -> Row:
    rows: dict[tuple[str, str], Row] = {}
    evaluate(
        by_hand(Pair(row(target), row(draft))),
        Evaluation((rule,), candidates=n, identity=False),
        rows,
        clock=Clock(),
    )
    return rows[label(rule), "operational"]


def test_mass_outside_the_support_is_reported():
    # vllm#10198: p itself is emitted, the target is p under top-p 0.8; token 2 has 1/5 and may not occur.
    report = table(ScoredAgainst(tuple(map(float, P))), NUCLEUS, Q)
    assert report.overall() is Verdict.INEXACT
    assert report.kl == [math.inf]
    assert abs(report.off_support[0] - 0.2) <= report.rounding[0]
    assert report.off_support_token == [2]


def test_tokens_that_are_never_emitted_are_listed():
    # ATOM#2318: tokens 1 and 2 have 1/2 of the target's mass between them.
    report = table(ArgmaxAtAnyTemperature(), P, Q)
    assert report.never_emitted_tokens == [[1, 2]]
    assert abs(report.never_emitted[0] - 0.5) <= report.rounding[0]
    assert report.off_support == [0.0]
    # KL((1, 0, 0) || p) = log 2
    assert abs(report.kl[0] - math.log(2)) <= 2 * report.rounding[0]


def test_an_unchecked_token_has_infinite_divergence():
    report = table(NeverChecked(), one_hot(0), one_hot(1))
    assert report.kl == [math.inf]
    assert report.off_support == [1.0]
    assert report.never_emitted_tokens == [[0]]
