"""What a rejection of several positions says: which position is off, and what its groups are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from resispec_verify.sampler_check.battery.chains import CHAINS, chain
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.frequencies import written
from resispec_verify.sampler_check.lines import bounds, lines
from resispec_verify.sampler_check.positions import first_off
from resispec_verify.sampler_check.sources import BlockSource

BLOCK = CheckSettings(style="block", draws=20000, search=False, boundary=False, batches=())


def emits_path(targets, drafts, path, rng):
    return np.concatenate([path, np.full((len(path), 1), -1)], axis=1)


def wrong_bonus(targets, drafts, path, rng):
    """Right at every position but the last, whose token comes from the law of the first."""
    rows, length = path.shape
    found = np.full((rows, length + 1), -1)
    for r in range(rows):
        for i in range(length):
            p, q, x = targets[r, i], drafts[r, i], path[r, i]
            if rng.random() * q[x] >= p[x]:
                left = np.maximum(p - q, 0.0)
                found[r, i] = rng.choice(len(p), p=left / left.sum())
                break
            found[r, i] = x
        else:
            found[r, length] = rng.choice(targets.shape[2], p=targets[r, 0])
    return found


def test_the_token_after_the_path_is_named_with_its_laws():
    result = check_sampler(wrong_bonus, BLOCK, inputs=[chain("bonus")])
    off = json.loads(json.dumps(result.witness))["first_off"]
    assert (off["position"], off["positions"], len(off["prefix"])) == (2, 2, 1)
    (before,) = off["prefix"]
    assert off["target_law"] == [[0.9, 0.1], [0.2, 0.8]][before]
    assert off["target"] == pytest.approx(0.5 * off["target_law"][off["token"]])
    assert off["draft_law"] is None
    # The seen law is a mixture of the target's, after a rejection, and of the first token's, 0.5.
    assert abs(off["seen_law"][0] - 0.5) < abs(off["target_law"][0] - 0.5)
    text = "\n".join(lines(result))
    assert "'bonus' (vocabulary 2, a path of 1; the token after it has another law than the first)" in text
    assert f"of the draws begin with {before} {off['token']}, target {off['target']:.4f}" in text
    assert f"laws of that position after {before}: target [" in text


def test_the_first_position_that_is_off_is_the_first():
    result = check_sampler(emits_path, BLOCK, inputs=[chain("certain")])
    off = result.witness["first_off"]
    assert (off["position"], off["prefix"]) == (1, [])
    assert (off["target_law"], off["draft_law"]) == ([1.0, 0.0, 0.0], pytest.approx([0.2, 0.7, 0.1]))


def test_groups_of_sequences_say_what_they_have_in_common():
    result = check_sampler(emits_path, BLOCK, inputs=[chain("random-3")])
    told = [row["what"] for row in result.witness["grouping"]["differences"]]
    assert told
    assert all(what.startswith("sequence") and "alike" not in what for what in told)
    assert any("*" in what for what in told)


def test_nothing_is_named_by_chance():
    source = BlockSource(chain("random-3"))
    counts = np.random.default_rng(0).multinomial(100_000, source.law)
    assert first_off(source, counts, 0.01) is None


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_says_what_it_is(name):
    one = chain(name)
    assert one.about.startswith(f"vocabulary {one.draft.shape[2]}, a path of {len(one.draft)}")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0.0000"), (5e-9, "5e-09"), (9.4e-5, "9.4e-05"), (1e-4, "0.0001"), (0.0934, "0.0934"),
        (1.0, "1.0000"), (1 - 1e-6, "1 - 1e-06"), (0.9999, "0.9999"),
    ],
)  # fmt: skip
def test_rounding_hides_no_fact(value, said):
    assert written(value) == said


def test_bounds_name_their_inputs():
    def right(target, draft, rng):
        return [rng.choice(len(p), p=p) for p in target]

    result = check_sampler(right, CheckSettings(draws=3000, search=False, batches=(), boundary=False))
    assert " on 'one-hot' and of " in bounds(result) or " on 'both-one-hot' and of " in bounds(result)
    assert f"a total variation of {bounds(result)} would have been found" in "\n".join(lines(result))


def test_a_crash_says_nothing_of_ends_and_counts_inputs():
    def crashes(target, draft, rng):
        raise ValueError("no")

    result = check_sampler(crashes, CheckSettings(draws=3000, search=False))
    assert "Ends of the uniforms" not in "\n".join(lines(result))
    assert result.ends["verdict"] == "not-tested"
    (reason,) = result.reasons
    listed = [row["input"] for row in result.inputs if row["rows"] is None]
    assert (
        f"(on {listed[0]} and {len(listed) - 1} more inputs, and on base with 1, 2, 4, 8, 64 rows" in reason
    )


def test_a_forgotten_return_is_named():
    result = check_sampler(lambda target, draft, rng: None, CheckSettings(draws=300, search=False))
    assert result.reasons[0].startswith("returned None for tokens; is a return missing?")


def test_another_argument_than_expected_is_told():
    def on_uniforms(target, draft, uniforms):
        return uniforms[:, 0]

    (reason,) = check_sampler(on_uniforms, CheckSettings(draws=300, search=False)).reasons
    assert "not subscriptable" in reason
    assert "; called as tokens: sampler(target, draft, rng)" in reason


def test_a_title_for_continuous_integration_reads_as_a_demand():
    from resispec_verify.report.answers import check_cases
    from resispec_verify.report.cases import github_lines

    def greedy(target, draft, rng):
        return target.argmax(axis=-1)

    cases = check_cases("engine.py:greedy", check_sampler(greedy, CheckSettings(draws=600, search=False)))
    assert cases[0].demand == "must not be rejected"
    assert "must not be rejected" in github_lines(cases)[0].partition("::error ")[2].partition("::")[0]
