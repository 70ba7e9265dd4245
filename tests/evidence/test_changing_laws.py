"""Draws from known laws that change: the evidence is a supermartingale, and grows where a law is wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from resispec_verify.evidence import changing_laws
from resispec_verify.evidence.changing_laws import ChangingLaws


def law_after(history, vocab=3):
    """A law that depends on what was drawn before, and another to bet on."""
    rng = np.random.default_rng([len(history), *history])
    return rng.dirichlet(np.ones(vocab)), rng.dirichlet(np.ones(vocab))


def run(sequence, slack=0.0):
    test = ChangingLaws(["another"])
    for t, y in enumerate(sequence):
        law, other = law_after(sequence[:t])
        test.add(law * math.exp(-slack), law * math.exp(slack), y, [other])
    return test


@pytest.mark.parametrize("batch", [1, 1 << 15])
@pytest.mark.parametrize(("slack", "pull"), [(0.0, 0.0), (0.02, 1.0), (0.02, -1.0), (0.3, 1.0), (0.3, -1.0)])
def test_the_expected_evidence_is_at_most_one_for_every_law_inside_the_rounding(
    monkeypatch, batch, slack, pull
):
    """All 3^5 sequences, the law pulled towards or away from the bet as far as the rounding goes."""
    monkeypatch.setattr(changing_laws, "_BATCH_ELEMENTS", batch)
    expectation = total = 0.0
    for sequence in itertools.product(range(3), repeat=5):
        chance = 1.0
        for t, y in enumerate(sequence):
            law, other = law_after(sequence[:t])
            moved = law * np.exp(pull * slack * np.sign(other - law))
            chance *= moved[y] / moved.sum()
        total += chance
        expectation += chance * math.exp(run(sequence, slack).trajectory[-1])
    assert total == pytest.approx(1.0, abs=1e-12)
    assert expectation <= 1 + 1e-12
    if slack == 0:
        assert expectation == pytest.approx(1.0, abs=1e-12)


def test_batches_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    sequence = rng.integers(3, size=50).tolist()
    whole = run(sequence, 0.01)
    monkeypatch.setattr(changing_laws, "_BATCH_ELEMENTS", 1)
    single = run(sequence, 0.01)
    assert single.trajectory == pytest.approx(whole.trajectory, abs=1e-12)
    assert single.detectable(0.01, 0.9) == pytest.approx(whole.detectable(0.01, 0.9), rel=1e-12)
    assert single.leading == whole.leading


def test_always_the_same_token_is_found_within_thirty_draws():
    """Chance 2^-n; what the average over the bets and the learning cost is the rest."""
    test = ChangingLaws([])
    for _ in range(40):
        test.add(np.array([0.5, 0.5]), np.array([0.5, 0.5]), 0, [])
    assert test.found_at(1e-6) <= 30


def test_an_impossible_draw_is_infinite_evidence_at_once():
    test = ChangingLaws([])
    for y in (0, 2, 0):
        test.add(np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.5, 0.0]), y, [])
    assert test.impossible == 1
    assert test.found_at(1e-300) == 2


def test_laws_that_rounding_leaves_open_show_nothing():
    """Half of the mass may be gone: whatever comes, nothing is learned and nothing claimed."""
    test = ChangingLaws(["another"])
    for _ in range(200):
        test.add(np.array([0.1, 0.1]), np.array([0.5, 0.5]), 0, [np.array([0.9, 0.1])])
    assert test.detectable(1e-6, 0.99) == 1.0
    # Tokens by id would learn a TV of 1/2; that is less than what rounding may do.
    assert test.found_at(1e-6) is None


def test_the_total_variation_that_is_promised_is_found():
    """p = (1/2, 1/2), drawn with the promised TV: 300 seeds miss it no more often than 1 in 100 may."""
    draws, missed = 600, 0
    right = ChangingLaws([])
    for y in np.random.default_rng(0).integers(2, size=draws):
        right.add(np.array([0.5, 0.5]), np.array([0.5, 0.5]), int(y), [])
    tv = right.detectable(1e-4, 0.99)
    assert 0.1 < tv < 0.2
    for seed in range(300):
        wrong = ChangingLaws([])
        for y in np.random.default_rng(seed).random(draws) >= 0.5 + tv:
            wrong.add(np.array([0.5, 0.5]), np.array([0.5, 0.5]), int(y), [])
        missed += wrong.found_at(1e-4) is None
    assert missed <= 3
