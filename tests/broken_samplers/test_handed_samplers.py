"""Uniforms, logits, flat batches, reserved tokens: exact samplers pass, faults are found within stated
draws.
"""

from __future__ import annotations

import statistics

import handed_samplers as s
import numpy as np
import pytest
import samplers

from resispec_verify.sampler_check.battery import Input, chains, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler

SEEDS = range(3)
PAIRS = ("base", "v4", "equal", "zeros", "peaked")


def run(sampler, inputs=None, **settings):
    chosen = {"draws": 10_000, "search": False, "batches": (8,), **settings}
    given = None if inputs is None else [one if isinstance(one, Input) else named(one) for one in inputs]
    return check_sampler(sampler, CheckSettings(**chosen), inputs=given)


UNIFORMS = {"style": "uniforms"}
HALF = {"give": "logits", "dtype": "float16"}
EXACT = {
    "uniforms": (s.specinfer, UNIFORMS),
    "uniforms-float32": (s.specinfer, UNIFORMS | {"dtype": "float32"}),
    "logits": (s.from_logits, {"give": "logits"}),
    "logits-float32": (s.from_logits, {"give": "logits", "dtype": "float32"}),
    "logits-float16": (s.from_logits, HALF),
    "log-probabilities-float16": (s.from_logits, {"give": "log-probabilities", "dtype": "float16"}),
    "log-probabilities": (s.takes_logits_for_log_probabilities, {"give": "log-probabilities"}),
    "probabilities-float32": (samplers.speculative, {"dtype": "float32"}),
    "offset": (s.with_reserved, {"offset": 1}),
    "offset-3": (samplers.speculative, {"offset": 3}),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_samplers_are_not_rejected(name):
    sampler, settings = EXACT[name]
    result = run(sampler, PAIRS, **settings)
    assert (result.verdict, result.reasons) == ("not-rejected", [])


# Sampler, input, settings, most draws on it (median over seeds, error rate 1e-9 a run), kind of finding.
FAULTS = {
    "coin-reused": (s.coin_reused, "v4", UNIFORMS | {"candidates": 1}, 4000, "law"),
    "accepts-at-zero": (s.accepts_at_zero, "zeros", UNIFORMS, 5000, "boundary"),
    "temperature-float16": (s.wrong_temperature, "v4", HALF, 80_000, "law"),
    "temperature-float32": (s.wrong_temperature, "v4", HALF | {"dtype": "float32"}, 80_000, "law"),
    "not-normalised": (s.takes_logits_for_log_probabilities, "base", {"give": "logits"}, 5000, "law"),
    "forgets-the-offset": (s.forgets_the_offset, "base", {"offset": 1}, 1000, "support"),
    "clamps": (s.clamps, "base", {"offset": 1}, 1000, "law"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_within_its_budget(name):
    sampler, on, settings, budget, kind = FAULTS[name]
    found = [run(sampler, [on], seed=seed, **{"draws": 400_000, **settings}) for seed in SEEDS]
    assert {(one.verdict, one.witness["kind"]) for one in found} == {("rejected", kind)}
    assert statistics.median(one.witness["draws"] for one in found) <= budget


# Flat batches


def flat(sampler, **settings):
    chosen = {"style": "block", "flat": True, "draws": 10_000, "batches": (8,), "boundary": False}
    return check_sampler(sampler, CheckSettings(**{**chosen, **settings}))


@pytest.mark.parametrize("ragged", [False, True])
def test_flat_batches_of_the_standard_rule_are_not_rejected(ragged):
    result = flat(s.flat, ragged=ragged)
    assert (result.verdict, result.reasons) == ("not-rejected", [])


@pytest.mark.parametrize("sampler", [s.flat_forgets_the_extra_rows, s.flat_off_by_one])
def test_cumulative_lengths_that_are_off_are_found(sampler):
    result = flat(sampler, ragged=True)
    assert (result.verdict, result.witness["kind"]) == ("rejected", "law")
    assert result.witness["draws"] <= 4000


# Accepted lengths


def blocks(give, **settings):
    """A right sampler of blocks whose answer ``give`` changes, with its accepted lengths."""

    def sampler(targets, drafts, path, rng):
        out = samplers.block_speculative(targets, drafts, path, rng)
        return give(out, (out >= 0).sum(axis=1) - 1, path)

    return check_sampler(
        sampler, CheckSettings(style="block", draws=4000, batches=(8,), **settings), inputs=chains()[2:3]
    )


@pytest.mark.parametrize("ragged", [False, True])
def test_accepted_lengths_that_agree_change_nothing(ragged):
    result = blocks(lambda out, accepted, path: (out, accepted), ragged=ragged)
    assert (result.verdict, result.reasons) == ("not-rejected", [])


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda out, accepted, path: (out, np.minimum(accepted + 1, 3)), "it must emit those and one more"),
        (lambda out, accepted, path: (out, np.zeros_like(accepted)), "says that 0 tokens were accepted and"),
        (lambda out, accepted, path: (_other(out, accepted), accepted), "where the path has"),
        (lambda out, accepted, path: (out, accepted + 4), "outside of 0..3"),
        (lambda out, accepted, path: (out, accepted[:-1]), "accepted lengths of shape"),
    ],
)
def test_accepted_lengths_that_contradict_the_tokens_are_an_error(give, said):
    result = blocks(give)
    assert result.verdict == "error"
    assert said in result.reason


def _other(out, accepted):
    """Another token in place of an accepted one."""
    changed = out.copy()
    changed[accepted > 0, 0] = (changed[accepted > 0, 0] + 1) % 3
    return changed
