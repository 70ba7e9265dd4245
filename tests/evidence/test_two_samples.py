"""The two-sample test: expectation at most 1, its bound, and faults of the joint law of two tokens."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from resispec_verify.evidence.eprocess import regret
from resispec_verify.evidence.repeated_draws import PAIRS, RepeatTest, _evidence, log_expected_matches
from resispec_verify.evidence.two_samples import TwoSampleTest, _Stratum, _two_cells

ALPHA = 1e-6


def expectation(first: int, pairs: int, prompts: int, laws: list[np.ndarray], stop: float) -> float:
    """Of the evidence at the first time it is above ``stop``, or at the end, over all outcomes.

    Laws are of completions, ``(2 ** first,)``, one a prompt, the same in both streams.
    """
    completions = list(itertools.product((0, 1), repeat=first))
    total = 0.0
    for drawn in itertools.product(range(len(completions)), repeat=2 * pairs):
        test = TwoSampleTest(first, prompts, pilot=prompts)
        chance = 1.0
        for i in range(pairs):
            x, y = drawn[2 * i : 2 * i + 2]
            chance *= laws[i % prompts][x] * laws[i % prompts][y]
            test.update(i % prompts, completions[x], completions[y])
        path = test.trajectory
        at = next((i for i, log in enumerate(path) if log > stop), pairs - 1)
        total += chance * math.exp(path[at])
    return total


@pytest.mark.parametrize("law", [[0.5, 0.5], [0.8, 0.2], [0.999, 0.001]])
@pytest.mark.parametrize("stop", [0.02, 0.1, math.inf])
def test_expectation_of_single_tokens_is_at_most_1(law, stop):
    assert expectation(1, 4, 1, [np.array(law)], stop) <= 1 + 1e-12


def test_expectation_of_two_tokens_is_at_most_1():
    assert expectation(2, 3, 1, [np.array([0.6, 0.1, 0.1, 0.2])], 0.05) <= 1 + 1e-12


def test_expectation_with_a_law_for_each_prompt_is_at_most_1():
    assert expectation(1, 5, 2, [np.array([0.9, 0.1]), np.array([0.2, 0.8])], 0.05) <= 1 + 1e-12


def test_bets_alone_are_a_martingale():
    """Their expectation is 1 exactly, given the pairs without their order."""
    pairs = [((0,), (1,)), ((0,), (2,)), ((1,), (2,)), ((0,), (1,)), ((0,), (1,))]
    found = []
    for swaps in itertools.product((False, True), repeat=len(pairs)):
        test = TwoSampleTest(1)
        for swap, (x, y) in zip(swaps, pairs, strict=True):
            test.update(0, *((y, x) if swap else (x, y)))
        found.append(math.exp(test._bets.log_evidence))
    assert np.mean(found) == pytest.approx(1.0, rel=1e-12)
    assert np.std(found) > 0.05


def joint(rng: np.random.Generator, vocab: int = 8) -> np.ndarray:
    """A law of two tokens, ``(vocab, vocab)``."""
    law = np.exp(2 * rng.standard_normal((vocab, vocab)))
    return law / law.sum()


def draws(law: np.ndarray, count: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Completions of two tokens."""
    flat = rng.choice(law.size, size=count, p=law.ravel())
    return [tuple(divmod(int(x), law.shape[1])) for x in flat]


def run(laws: list[tuple[np.ndarray, np.ndarray]], pairs: int, seed: int, first: int = 2) -> TwoSampleTest:
    """The test of draws from the laws of ON and OFF at each prompt."""
    rng = np.random.default_rng(seed)
    sides = [(draws(on, pairs, rng), draws(off, pairs, rng)) for on, off in laws]
    test = TwoSampleTest(first, len(laws))
    for i in range(pairs):
        on, off = sides[i % len(laws)]
        test.update(i % len(laws), on[i], off[i])
    return test


@pytest.mark.parametrize("prompts", [1, 3])
def test_clean_streams_are_rarely_rejected_though_looked_at_after_every_pair(prompts):
    rejected = repeats = 0
    for seed in range(200):
        rng = np.random.default_rng((seed, prompts))
        laws = [(law, law) for law in (joint(rng, 4) for _ in range(prompts))]
        test = run(laws, 120, seed)
        rejected += test.found_at(0.05) is not None
        repeats += any(one.found_at(0.05) is not None for one in test.repeated.values())
        assert test.log_evidence == max(0.0, test.trajectory.max())
    assert rejected < 10
    assert repeats < 20  # two streams


def apart(tv: float, seed: int, vocab: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Laws of ON and OFF: the first token is the same, the second is a draft's with some probability."""
    rng = np.random.default_rng(seed)
    off = joint(rng, vocab)
    draft = joint(rng, vocab)
    wrong = off.sum(axis=1, keepdims=True) * draft / draft.sum(axis=1, keepdims=True)
    most = 0.5 * np.abs(wrong - off).sum()
    assert most >= tv
    return off + tv / most * (wrong - off), off


@pytest.mark.parametrize(("tv", "most"), [(0.5, 250), (0.2, 1200), (0.1, 5000)])
def test_a_draft_in_the_place_of_the_target_is_found(tv, most):
    for seed in range(3):
        on, off = apart(tv, seed)
        test = run([(on, off)], most, seed)
        found = test.found_at(ALPHA)
        assert found is not None
        print(f"TV {tv}: {found} pairs; chi-square with as many: p = {chi_square(on, off, found, seed):.1e}")


def chi_square(on: np.ndarray, off: np.ndarray, pairs: int, seed: int) -> float:
    """Its p with a fixed number of pairs, which are others."""
    rng = np.random.default_rng((seed, 1))
    table = np.stack([rng.multinomial(pairs, law.ravel() / law.sum()) for law in (on, off)])
    common = table.sum(axis=0) >= 10
    merged = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
    return float(chi2_contingency(merged[:, merged.sum(axis=0) > 0])[1])  # type: ignore[arg-type]


def test_many_prompts_with_the_same_fault_are_found_together():
    laws = [apart(0.5, 0)] * 8
    assert run(laws, 400, 0).found_at(ALPHA) is not None


@pytest.mark.parametrize("cells", [2, 4, 16])
def test_universal_inference_gains_what_the_bound_says_whatever_the_draws(cells):
    rng = np.random.default_rng(cells)
    for _ in range(50):
        stratum, total = _Stratum(cells), 0.0
        f, g = rng.dirichlet(np.full(cells, 0.3), size=2)
        n = int(rng.integers(1, 300))
        for x, y in zip(rng.choice(cells, n, p=f), rng.choice(cells, n, p=g), strict=True):
            total += stratum.update(int(x), int(y))
        tv = 0.5 * np.abs(np.subtract(stratum.on, stratum.off)).sum() / n
        assert total >= n * tv**2 - 2 * regret(n, cells) - 1e-9


def test_the_evidence_of_one_prefix_is_that_of_two_cells():
    stratum = _Stratum(2)
    total = sum(stratum.update(x, y) for x, y in [(0, 1), (0, 0), (1, 1), (0, 1), (0, 1)])
    assert _two_cells(stratum.on[0], stratum.off[0], 5) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("prompts", [1, 4])
def test_what_is_called_detectable_is_found(prompts):
    """A fault in four cells, just above the bound, with at least the power that was stated."""
    pairs, alpha, power = 800, 1e-3, 0.9
    off = np.array([[0.4, 0.3], [0.2, 0.1]])
    stated = run([(off, off)] * prompts, pairs, 0).detectable(alpha, power)
    assert stated.length == 2
    assert stated.cells == 4
    moved = off + (stated.tv + 0.01) * np.array([[-1.0, 0.0], [0.0, 1.0]])
    assert moved.min() >= 0
    found = [run([(moved, off)] * prompts, pairs, seed).found_at(alpha) for seed in range(20)]
    assert sum(at is not None for at in found) >= power * len(found)


def test_the_bound_is_the_formula_of_the_documentation():
    off = np.array([[0.4, 0.3], [0.2, 0.1]])
    test = run([(off, off)], 532, 0)
    threshold = math.log(1e6) + math.log(2 * 4) + 2 * regret(500, 4)
    expected = (math.sqrt(threshold) + math.sqrt(math.log(100))) / math.sqrt(500)
    assert test.detectable(1e-6, 0.99).tv == pytest.approx(expected, rel=1e-12)
    assert TwoSampleTest(2).detectable(1e-6, 0.99).tv == 1.0


def test_the_witness_marks_what_is_beyond_noise_and_nothing_else():
    off = np.array([[0.4, 0.2], [0.2, 0.2]])
    on = off + np.array([[-0.3, 0.3], [0.0, 0.0]])
    found = run([(on, off)], 400, 0).witness(ALPHA)
    marked = [one for one in found if one.beyond_noise]
    assert {one.tokens: (one.on, one.off) for one in marked} == {
        (0, 0): pytest.approx((0.1, 0.4), abs=0.06),
        (0, 1): pytest.approx((0.5, 0.2), abs=0.06),
    }
    assert not any(one.beyond_noise for one in run([(off, off)], 400, 0).witness(ALPHA))


def test_a_completion_that_ended_differs_from_one_that_went_on():
    test = TwoSampleTest(3)
    for _ in range(60):
        test.update(0, (1, 2), (1, 2, 3))
    assert test.found_at(ALPHA) is not None


def test_tokens_beyond_the_first_do_not_count():
    test = TwoSampleTest(2)
    for i in range(100):
        test.update(0, (1, 2, i), (1, 2, -i))
    assert test.log_evidence == 0.0


@pytest.mark.parametrize("weight", [4.0, 64.0])
def test_expected_matches_are_those_of_all_arrangements(weight):
    x, y = (0, 0, 1, 2, 3), (0, 1, 1, 0, 3)
    every = [
        weight ** sum(a == b for a, b in zip(x, order, strict=True)) for order in itertools.permutations(y)
    ]
    assert log_expected_matches(x, y, weight) == pytest.approx(math.log(np.mean(every)), rel=1e-12)


def test_expectation_of_a_block_of_independent_draws_is_1():
    total = np.zeros(2)
    for drawn in itertools.product((0, 1), repeat=2 * PAIRS):
        chance = math.prod(0.7 if one else 0.3 for one in drawn)
        total += chance * np.exp(_evidence(drawn[0::2], drawn[1::2]))
    assert total == pytest.approx(np.ones(2), rel=1e-12)


@pytest.mark.parametrize("batch", [2, 3, 4, 8])
@pytest.mark.parametrize("shift", [0, 1])
def test_equal_seeds_in_a_batch_are_found_within_tens_of_completions(batch, shift):
    rng = np.random.default_rng(0)
    law = joint(rng, 30)
    test = RepeatTest()
    seeds = [one for one in draws(law, 200, rng) for _ in range(batch)]
    for one in seeds[shift : shift + 200]:
        test.update("prompt", one)
    found = test.found_at(ALPHA)
    assert found is not None
    assert found <= 100


@pytest.mark.parametrize("batch", [4, 8, 16, 32])
def test_batches_with_the_seeds_of_the_batch_before_are_found(batch):
    test = RepeatTest()
    once = draws(joint(np.random.default_rng(0), 30), batch, np.random.default_rng(1))
    for one in once * (200 // batch):
        test.update("prompt", one)
    found = test.found_at(ALPHA)
    assert found is not None
    assert found <= 100
    assert test.distinct == len(set(once))


def test_draws_that_are_all_equal_are_no_evidence():
    test = RepeatTest()
    for _ in range(200):
        test.update("prompt", (1, 2))
    assert test.log_evidence == pytest.approx(0.0, abs=1e-9)
    assert (test.equal, test.neighbours) == (199, 199)
