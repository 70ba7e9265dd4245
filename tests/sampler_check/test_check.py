"""`check`: styles, time limits, bad samplers, what the error rate covers."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest
from check_helpers import good

from resispec_verify.errors import InputError
from resispec_verify.sampler_check.battery import Input, named
from resispec_verify.sampler_check.calls import Caller, SamplerError
from resispec_verify.sampler_check.check import CheckSettings, check_sampler

QUICK = CheckSettings(draws=600, search=False, batches=(1, 8))
BASE = [named("base")]


def leaves(target, draft, rng):
    sys.exit(0)


def raises(target, draft, rng):
    raise ValueError("two\nlines")


BAD = {
    "raised ValueError: two lines": raises,
    "raised SystemExit: 0": leaves,
    "of shape (5,)": lambda p, q, rng: np.zeros(5, dtype=int),
    "returned None for tokens; is a return missing?": lambda p, q, rng: None,
    "entry 3, outside of 0..2": lambda p, q, rng: np.full(len(p), 3),
    "entry -1, outside of 0..2": lambda p, q, rng: np.full(len(p), -1),
    "NaN": lambda p, q, rng: np.full(len(p), np.nan),
    "of type float64, not integers": lambda p, q, rng: np.zeros(len(p)),
    "of type bool, not integers": lambda p, q, rng: np.zeros(len(p), dtype=bool),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_sampler_that_fails_is_an_error_with_its_reason(reason):
    result = check_sampler(BAD[reason], QUICK, inputs=BASE)
    assert (result.verdict, result.stopped) == ("error", "error")
    assert reason in result.reason
    assert "\n" not in result.reason
    assert result.detectable_tv is None


def test_a_sampler_that_hangs_is_an_error():
    def hangs(target, draft, rng):
        time.sleep(5)

    started = time.monotonic()
    result = check_sampler(hangs, CheckSettings(call_seconds=0.2), inputs=BASE)
    assert result.verdict == "error"
    assert "did not return within 0.2 s" in result.reason
    assert time.monotonic() - started < 4


def test_a_sampler_gets_copies_and_is_scored_on_the_originals():
    def zeroes(target, draft, rng):
        tokens = good(target, draft, rng)
        target[:], draft[:] = 0.0, np.nan
        return tokens

    result = check_sampler(zeroes, QUICK, inputs=BASE)
    assert result.verdict == "not-rejected"
    assert result.reasons == ["writes into its input target", "writes into its input draft"]


def test_what_is_not_rejected_says_what_would_have_been_found():
    result = check_sampler(good, QUICK, inputs=BASE)
    assert result.verdict == "not-rejected"
    assert 0 < result.detectable_tv < 1
    assert result.alpha_per_test * result.tests <= result.alpha
    found = json.loads(json.dumps(result.result(), allow_nan=False))
    assert {"verdict", "reason", "draws", "alpha", "detectable_tv", "witness"} <= set(found)
    assert "exact" not in json.dumps(found)


def test_the_time_ends_a_run():
    settings = CheckSettings(seconds=0.5, draws=1 << 40, boundary=False, batches=())
    result = check_sampler(good, settings, inputs=BASE)
    assert (result.verdict, result.stopped) == ("not-rejected", "time")


def test_nothing_is_claimed_about_inputs_that_were_not_reached():
    from resispec_verify.sampler_check.lines import lines

    def slow(target, draft, rng):
        time.sleep(0.3 if len(target[0]) == 4 else 0.0)
        return good(target, draft, rng)

    settings = CheckSettings(seconds=0.7, draws=600, batches=(), boundary=False, search=False)
    names = ("base", "v4", "equal", "zeros")
    result = check_sampler(slow, settings, inputs=[named(name) for name in names])
    reached = {row["input"]: row["detectable_tv"] for row in result.inputs}
    assert result.not_reached
    assert not set(result.not_reached) & set(reached)
    assert set(names) <= set(result.not_reached) | set(reached)
    assert result.detectable_tv == max(reached.values()) < 1.0
    assert any(line.startswith("Not reached: ") for line in lines(result))


def test_a_run_that_reached_nothing_is_an_error():
    result = check_sampler(good, CheckSettings(seconds=1e-6), inputs=BASE)
    assert (result.verdict, result.detectable_tv) == ("error", None)
    assert "no input was reached" in result.reason


def test_a_run_can_be_repeated():
    one, two = (check_sampler(good, QUICK, inputs=BASE).result() for _ in range(2))
    assert {k: v for k, v in one.items() if k != "seconds"} == {
        k: v for k, v in two.items() if k != "seconds"
    }
    other = check_sampler(good, CheckSettings(draws=600, search=False, batches=(1, 8), seed=1), inputs=BASE)
    assert other.inputs != one["inputs"]


def test_tokens_may_be_a_torch_tensor():
    torch = pytest.importorskip("torch")
    result = check_sampler(lambda p, q, rng: torch.from_numpy(good(p, q, rng)), QUICK, inputs=BASE)
    assert result.verdict == "not-rejected"


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"power": 1.0}, {"draws": 0}, {"style": "x"}, {"seed": -1},
                                   {"seconds": 0.0}, {"proposal": "x"}, {"batches": (0,)}])  # fmt: skip
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError):
        CheckSettings(**wrong)


def test_inputs_must_fit_the_style():
    with pytest.raises(InputError, match="does not fit the style"):
        check_sampler(good, CheckSettings(style="block"), inputs=BASE)


def test_what_a_job_raises_comes_through():
    caller = Caller(raises, 1.0)
    with pytest.raises(SamplerError, match="ValueError"):
        caller.run(lambda: caller.call(None, None, None))


def test_an_input_of_ones_own_from_python():
    own = Input("mine", np.array([0.2, 0.8]), np.array([0.8, 0.2]))
    assert check_sampler(lambda p, q, rng: good(q, p, rng), QUICK, inputs=[own]).verdict == "rejected"


@pytest.mark.parametrize("proposal", ["iid", "without-replacement"])
def test_candidates_that_are_handed_in_have_the_law_of_their_proposal(proposal):
    from resispec_verify.evidence.statistical import fit_test
    from resispec_verify.sampler_check.sources import draw_candidates

    draft = np.array([0.4, 0.3, 0.0, 0.2, 0.1])
    first, second = draft[:, None], draft[None, :]
    law = first * second
    if proposal == "without-replacement":
        law = np.where(np.eye(5) > 0, 0.0, law / (1.0 - first))
    tests = []
    for due in (law, np.outer(draft, np.full(5, 0.2))):  # its twin, a law that is not theirs
        tests.append(fit_test(due.ravel()))
        drawn = draw_candidates(np.random.default_rng(0), draft, 20_000, 2, proposal)
        tests[-1].update(drawn[:, 0] * 5 + drawn[:, 1])
    assert tests[0].log_evidence < 20.7 < tests[1].log_evidence


def test_the_top_candidates_are_those_of_the_draft():
    from resispec_verify.sampler_check.sources import draw_candidates

    drawn = draw_candidates(np.random.default_rng(0), np.array([0.2, 0.5, 0.3]), 2, 2, "top")
    assert drawn.tolist() == [[1, 2], [1, 2]]


# What the error rate covers


@pytest.mark.parametrize("rule", [None, "specinfer"])
def test_alpha_is_split_over_all_tests_that_can_reject(monkeypatch, rule):
    # Every test of the run, those of the pairs of the search included, is counted: no more than `tests` of
    # them can reject, each at no more than alpha / tests.
    from resispec_verify.rules import make_rule
    from resispec_verify.sampler_check import check as module

    made = []

    class Counted(module.Probe):
        def step(self, caller):
            made.append(self)
            super().step(caller)

    monkeypatch.setattr(module, "Probe", Counted)
    monkeypatch.setattr("resispec_verify.sampler_check.search.STARTS", 4)
    settings = CheckSettings(
        draws=300, batches=(1, 8), boundary=False, style="candidates", rule=rule and make_rule(rule)
    )

    def sampler(target, draft, candidates, rng):
        return good(target, draft, rng), np.full(len(target), candidates.shape[1])

    result = check_sampler(sampler, CheckSettings(**{**vars(settings), "rule": None}), inputs=BASE)
    assert result.verdict == "not-rejected"
    distinct = {id(probe): probe for probe in made}.values()
    assert sum(probe.source.name == "found by the search" for probe in distinct) == module.SEARCHED
    assert sum(probe.tests for probe in distinct) == result.tests
    assert {probe.alpha for probe in distinct} == {result.alpha_per_test}
    assert result.alpha_per_test * result.tests <= result.alpha * (1 + 2**-50)
    with_rule = module._Run(sampler, settings, BASE)
    most = 2 + (rule is not None)
    assert with_rule.tests == 2 * len(with_rule.small) + most * (1 + module.SEARCHED)


def test_what_no_uniform_between_the_ends_shows_has_no_error_rate():
    from resispec_verify.sampler_check.lines import lines

    def at_zero(target, draft, rng):
        return np.where(rng.random(len(target)) == 0.0, 0, good(target, draft, rng))

    zeros = [Input("none at 0", np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.25, 0.25]))]
    result = check_sampler(at_zero, QUICK, inputs=zeros)
    assert (result.verdict, result.witness["kind"], result.witness["tv_seen"]) == (
        "rejected",
        "boundary",
        None,
    )
    text = "\n".join(lines(result))
    assert "No error rate is involved" in text
    assert "probability at most" not in text
    assert "TV between" not in text
    assert "TV of" not in text
    # The same at a uniform in four is an ordinary fault, and no odd uniform is blamed for it.
    often = check_sampler(
        lambda p, q, rng: np.where(rng.random(len(p)) < 0.25, 0, good(p, q, rng)), QUICK, inputs=zeros
    )
    assert often.witness["kind"] == "support"
    assert not any("uniform" in line for line in lines(often))


def test_blocks_are_tried_at_the_ends_of_the_uniforms_too():
    from resispec_verify.sampler_check.battery import chains

    def at_zero(targets, drafts, path, rng):
        tokens = np.array([[rng.choice(targets.shape[-1], p=row[0])] for row in targets])
        zero = rng.random(len(path)) == 0.0
        rest = np.full((len(path), path.shape[1]), -1)
        return np.concatenate([np.where(zero[:, None], path[:, :1], tokens), rest], axis=1)

    settings = CheckSettings(style="block", draws=600, batches=())
    result = check_sampler(at_zero, settings, inputs=[chains()[1]])
    assert (result.verdict, result.witness["kind"]) == ("rejected", "boundary")


def test_a_law_of_one_token_is_no_statement_about_groups():
    from resispec_verify.sampler_check.lines import lines

    law = np.eye(40)[3]
    result = check_sampler(good, QUICK, inputs=[Input("certain", law, np.full(40, 1 / 40))])
    # Mass m elsewhere is missed by n draws with probability (1 - m)^n.
    draws = next(row["draws"] for row in result.inputs if row["rows"] is None)
    assert (1 - result.detectable_tv) ** draws == pytest.approx(1 - result.power)
    assert not any("groups" in line for line in lines(result))


def test_one_group_of_many_tokens_claims_nothing():
    from resispec_verify.evidence.statistical import detectable, fit_test

    uniform = fit_test(np.full(4096, 1 / 4096))
    uniform.update(np.arange(4096))
    assert detectable(uniform, 1e-9, 0.99).cells > 1


def test_a_rule_that_cannot_be_compared_is_said():
    from resispec_verify.rules import make_rule

    settings = CheckSettings(draws=600, search=False, batches=(), rule=make_rule("specinfer"))
    result = check_sampler(good, settings, inputs=BASE)
    assert result.verdict == "not-rejected"
    assert "the rule's acceptance was not compared" in result.reason
    with pytest.raises(InputError, match="drawn without-replacement, not iid"):
        CheckSettings(style="candidates", rule=make_rule("sequoia"))
    with pytest.raises(InputError, match="at most 1 candidates"):
        CheckSettings(style="candidates", rule=make_rule("speculative"))
    with pytest.raises(InputError, match="not in block"):
        CheckSettings(style="block", rule=make_rule("speculative"))


def test_an_acceptance_of_which_a_part_is_missing_is_not_compared(monkeypatch):
    # An outcome of probability 1e-10 taken for impossible would reject at far more than 1e-9 in a run of 1e6.
    from resispec_verify.evidence import enumeration
    from resispec_verify.rules import make_rule
    from resispec_verify.sampler_check.sources.tokens import certified_acceptance

    rule, pair = make_rule("specinfer"), BASE[0]
    law = certified_acceptance(rule, pair.target, pair.draft, 2)
    assert law.sum() == pytest.approx(1.0)
    whole = enumeration.operational_marginals

    def partly(*arguments, **options):
        found = whole(*arguments, **options)
        found.unexpanded[..., -1] += 1e-10
        return found

    monkeypatch.setattr(enumeration, "operational_marginals", partly)
    assert certified_acceptance(rule, pair.target, pair.draft, 2) is None


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_tuple_is_tokens_and_accepted(rows):
    # Two tokens in a tuple are not tokens and accepted, whatever the number of rows.
    from resispec_verify.sampler_check.sources.drawn import drawn_of

    with pytest.raises(SamplerError, match="a tuple is"):
        drawn_of(tuple([0] * rows), rows, 3, 2)
    assert drawn_of([0] * rows, rows, 3, 2).accepted is None
    assert drawn_of(([0] * rows, [1] * rows), rows, 3, 2).accepted.tolist() == [1] * rows


def test_boundary_and_steps_end_with_the_time():
    def slow(target, draft, rng):
        time.sleep(0.05)
        return good(target, draft, rng)

    started = time.monotonic()
    check_sampler(slow, CheckSettings(seconds=0.5, batches=(1,)))
    assert time.monotonic() - started < 25  # 112 calls on each of nine inputs would take 50 s
