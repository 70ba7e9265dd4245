"""Every sampler fault of the public reports is found within its budget; every exact sampler passes.

Stated budgets, as draws on the pair, at an error rate of 1e-9 a run, median over seeds: 5,000 for faults on
three tokens, 20,000 on four. The laws in the comments are those of the exact oracle
(`tests/oracle/test_oracle_cases.py`).
"""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import samplers as s

from resispec_verify.rules import make_rule
from resispec_verify.sampler_check.battery import Input, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler

SEEDS = range(3)


def pair(target, draft) -> Input:
    return Input("custom", np.array(target, float), np.array(draft, float))


BASE, V4 = named("base"), named("v4")

# sampler, pair, most draws (median over seeds), kind of finding
FAULTS = {
    "transformers-32867": (s.drafts_greedily, BASE, 5000, "law"),
    "transformers-47932": (
        s.drafts_from_top_2,
        pair([0.5, 0.3, 0.2, 0.0], [0.4, 0.3, 0.2, 0.1]),
        5000,
        "law",
    ),
    "vllm-10198": (s.scored_against([0.5, 0.3, 0.2]), pair([0.625, 0.375, 0.0], BASE.draft), 5000, "support"),
    "spec-rl-14": (s.redraws_from_target, BASE, 5000, "law"),
    "transformers-28508": (s.softmax_of_residual, BASE, 5000, "law"),
    "vllm-16952": (s.writes_in_place, BASE, 5000, "law"),
    "lattice-243": (s.never_checked, pair([1.0, 0.0, 0.0], [0.2, 0.7, 0.1]), 5000, "support"),
    "atom-2318": (s.argmax_at_any_temperature, BASE, 5000, "law"),
    "eagle-110": (s.drafts_greedily, pair([0.51, 0.49], [0.51, 0.49]), 5000, "law"),
    "eagle-74": (s.draft_not_renormalised, V4, 20000, "law"),
    "llama.cpp-5625-sorted": (s.sorted_candidates, V4, 20000, "law"),
    "llama.cpp-5625-merged": (s.merged_candidates, V4, 20000, "law"),
    "vllm-54282": (s.shared_gumbel, pair([0.1, 0.6, 0.3], [0.7, 0.1, 0.2]), 20000, "law"),
    "vllm-50440": (s.one_seed_for_every_row, BASE, 5000, "independence"),
    "one-seed-for-every-call": (s.one_seed_for_every_call, BASE, 5000, "independence"),
    "transformers-45979": (s.blend, BASE, 5000, "law"),
    "specinfer-skip-duplicates": (s.skips_duplicates, V4, 20000, "law"),
    "llama-cpp": (s.drafts_greedily, V4, 20000, "law"),
    "sglang-thresholds": (s.target_only(0.5), V4, 20000, "law"),
    "medusa": (s.medusa, V4, 20000, "law"),
    "resispec": (s.emits_law_of(make_rule("resispec"), 3), V4, 20000, "law"),
    "vllm-27077": (s.divides_by_temperature, named("one-hot"), 5000, "support"),
    "accepts-at-zero": (s.accepts_at_zero, named("zeros"), 5000, "boundary"),
    "left-inverse": (s.left_inverse, named("zeros"), 5000, "boundary"),
}

# Exact, whatever their users say.
EXACT = [
    s.speculative, s.token_match, s.soft_draw_tested_as_one_hot, s.top_1_tested_as_one_hot, s.top_2_declared,
    s.specinfer, s.sequoia, s.target_only(1.0), s.single_precision,
]  # fmt: skip


def run(sampler, inputs, **settings):
    return check_sampler(
        sampler, CheckSettings(**{"search": False, "draws": 50_000, **settings}), inputs=inputs
    )


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_within_its_budget(name):
    sampler, on, budget, kind = FAULTS[name]
    found = [run(sampler, [on], seed=seed) for seed in SEEDS]
    assert {result.verdict for result in found} == {"rejected"}
    assert {result.witness["kind"] for result in found} == {kind}
    assert statistics.median(result.witness["draws"] for result in found) <= budget


def test_each_call_with_the_same_coins_is_dependence_not_a_wrong_law():
    # Sequoia's code draws its coins once: every marginal is right, and the joint law over steps is not.
    assert run(s.ReusesItsCoins(), [BASE]).witness["kind"] == "independence"


@pytest.mark.parametrize("sampler", EXACT, ids=lambda f: f.__qualname__.split(".")[0])
def test_exact_samplers_are_not_rejected(sampler):
    result = run(sampler, [BASE, V4, named("equal"), named("zeros"), named("peaked")], draws=20_000)
    assert (result.verdict, result.reasons) == ("not-rejected", [])


def test_one_law_for_all_rows_shows_when_rows_differ():
    result = run(s.first_row_for_all, [V4, named("equal")])
    assert (result.verdict, result.witness["input"]) == ("rejected", "rows of v4 and equal")
    assert run(s.speculative, [V4, named("equal")]).verdict == "not-rejected"


def test_tokens_never_emitted_are_listed():
    witness = run(s.argmax_at_any_temperature, [BASE]).witness
    assert witness["never_emitted"] == ["token 1", "token 2"]


def test_a_wrong_rule_may_pass_on_three_tokens():
    # EAGLE#74: on this pair of three tokens the unnormalised draft makes no difference.
    three = pair([0.2, 0.3, 0.5], [0.5, 0.3, 0.2])
    assert run(s.draft_not_renormalised, [three], draws=20_000).verdict == "not-rejected"
    assert run(s.draft_not_renormalised, [V4]).verdict == "rejected"


def test_the_default_budget_finds_a_target_sharpened_a_little():
    # p ** 1.05 on the base pair: TV .0084, KL 1.66e-4 nats.
    result = run(s.sharpened, [BASE], draws=CheckSettings().draws)
    assert result.verdict == "rejected"


def test_spechub_that_forces_acceptance_is_found_on_the_peaked_pair():
    # TV at most 1e-3, all of it on tokens of probability 6e-4 together.
    result = run(s.emits_law_of(make_rule("spechub-force"), 2), [named("peaked")], draws=400_000)
    assert (result.verdict, result.witness["kind"]) == ("rejected", "law")


def test_writing_into_the_inputs_is_a_reason_and_not_the_end():
    result = run(s.blind, [BASE], draws=5000)
    assert (result.verdict, result.reasons) == ("not-rejected", ["writes into its input target"])
    result = run(s.writes_in_place, [BASE])
    assert result.verdict == "rejected"
    assert "writes into its input target" in result.reasons


@pytest.mark.parametrize(
    ("sampler", "on", "where"),
    [
        # It rejects with probability 1e-7, so that it fails already at the last uniform of float32.
        (s.no_fallback, "equal", "1 - 2^-24 or above (at least once in 2^24 draws at float64)"),
        (s.runs_over_the_end, "tenths", "exactly 1 - 2^-53 (once in 2^53 draws at float64)"),
    ],
)
def test_faults_at_the_ends_of_the_uniforms_that_leave_the_vocabulary(sampler, on, where):
    result = run(sampler, [named(on)], draws=2000)
    assert (result.verdict, result.ends["verdict"]) == ("rejected", "fault")
    assert "outside of 0.." in result.reasons[0]
    assert f"only when a uniform is {where}" in result.reasons[0]
    # Without injected uniforms one could wait for 2**53 draws.
    assert run(s.runs_over_the_end, [named("tenths")], draws=2000, boundary=False).verdict == "not-rejected"


# Candidates handed in


def test_acceptance_by_candidate_is_compared_with_the_rule():
    given = {"style": "candidates", "rule": make_rule("specinfer")}
    assert run(s.specinfer_handed_in, [BASE, V4], **given).verdict == "not-rejected"
    result = run(s.first_candidate_only, [V4], **given)
    assert (result.verdict, result.witness["kind"]) == ("rejected", "acceptance")
    # Its tokens are right: without the rule there is nothing to reject.
    assert run(s.first_candidate_only, [V4], style="candidates").verdict == "not-rejected"


# Paths


def blocks(sampler, **settings):
    return check_sampler(sampler, CheckSettings(style="block", **{"draws": 40_000, **settings}))


@pytest.mark.parametrize("ragged", [False, True])
def test_blocks_of_the_standard_rule_are_not_rejected(ragged):
    assert blocks(s.block_speculative, ragged=ragged).verdict == "not-rejected"


@pytest.mark.parametrize("sampler", [s.bonus_from_parent, s.one_coin_for_the_path, s.first_never_checked])
def test_faults_of_the_joint_law_are_found(sampler):
    # EAGLE#47, Sequoia's coins along a path, lattice#243
    result = blocks(sampler)
    assert result.verdict == "rejected"
    assert result.witness["draws"] <= 20_000


def test_the_marginal_of_eagle_47_is_exact_and_its_joint_is_not():
    from resispec_verify.sampler_check.battery import chains
    from resispec_verify.sampler_check.calls import Caller
    from resispec_verify.sampler_check.sources import BlockSource

    source = BlockSource(chains()[0])
    fit = source.fit()
    first = next(g for g in fit.groupings if g.name == "token 1")
    caller = Caller(s.bonus_from_parent, 60.0)
    index = caller.run(lambda: source.draw(caller, np.random.default_rng(0), 16_384).index)
    seen = np.bincount(first.cell[index], minlength=2) / len(index)
    # Five standard deviations of a frequency of 1/2.
    assert abs(seen[0] - first.law[0]) <= 5 * 0.5 / np.sqrt(len(index))
    fit.update(index)
    assert fit.log_evidence > 20.7


def test_padding_used_as_an_index_is_an_error():
    # flashinfer#879: at most one token more than the path can be emitted.
    result = blocks(s.pads_as_tokens, ragged=True)
    assert result.verdict == "error"
    assert "at most one more" in result.reasons[0]


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 1000), marks=pytest.mark.slow)], ids=len)
def test_a_clean_sampler_raises_no_alarm(seeds):
    # A larger alpha than the default, so that the test can fail at all: .1 alarms are expected at most.
    settings = {"draws": 1024, "alpha": 1e-4, "batches": (8,), "boundary": False}
    assert all(run(s.speculative, [V4], seed=seed, **settings).verdict == "not-rejected" for seed in seeds)


def test_the_search_finds_what_the_battery_does_not_show():
    def sampler(target, draft, rng):
        """Right, but for a draft that is nearly certain of a token that the target does not want."""
        odd = (draft.max(axis=-1) > 0.9) & (s.at(target, draft.argmax(axis=-1)) < 0.3)
        return np.where(odd, s.redraws_from_target(target, draft, rng), s.speculative(target, draft, rng))

    given = {"draws": 16_384, "boundary": False}
    assert run(sampler, [BASE, V4], **given).verdict == "not-rejected"
    result = run(sampler, [BASE, V4], search=True, **given)
    assert (result.verdict, result.witness["input"]) == ("rejected", "found by the search")
    assert run(s.speculative, [BASE, V4], search=True, **given).verdict == "not-rejected"
