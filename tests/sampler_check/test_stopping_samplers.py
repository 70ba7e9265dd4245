"""Samplers that cut the drafted path by a policy of their own, under the style block."""

from __future__ import annotations

import numpy as np
import pytest
from stopping_sampler import draw, ragged

from resispec_verify.errors import InputError
from resispec_verify.rules import Block
from resispec_verify.rules.stopping import (
    AfterVerification,
    DrawnProbability,
    Entropy,
    StopPolicy,
    TopProbability,
)
from resispec_verify.sampler_check.battery.chains import chain
from resispec_verify.sampler_check.check import CheckSettings, check_sampler


def with_policy(policy: StopPolicy):
    """Block verification of what the policy keeps."""

    def sampler(targets, drafts, path, rng):
        kept = policy.kept(drafts, path).argmax(axis=1)
        rows, length = path.shape
        tokens = np.full((rows, length + 1), -1)
        after = policy.then if isinstance(policy, AfterVerification) else None
        for count in range(length + 1):
            mine = np.flatnonzero(kept == count)
            seen = length if after else count
            lengths, laws = Block().outcome(targets[mine, : seen + 1], drafts[mine, :seen], path[mine, :seen])
            accepted = draw(lengths, rng)
            for row, number, law in zip(mine, accepted, laws, strict=True):
                most = min(number, count)
                cut = number > count or (after == "target" and number == count)
                tokens[row, :most] = path[row, :most]
                last = targets[row, most] if cut else law[most]
                tokens[row, most] = draw(last[None], rng)[0]
        return tokens

    return sampler


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        (TopProbability(0.5), "not-rejected"),
        (TopProbability(0.5, reads="after"), "rejected"),
        (Entropy(1.0), "not-rejected"),
        (Entropy(1.0, reads="after"), "rejected"),
        (DrawnProbability(0.3), "not-rejected"),
        (DrawnProbability(0.3, token="dropped"), "rejected"),
        (AfterVerification(DrawnProbability(0.3)), "not-rejected"),
        (AfterVerification(TopProbability(0.6)), "not-rejected"),
        (AfterVerification(TopProbability(0.6), then="correction"), "rejected"),
        (AfterVerification(DrawnProbability(0.3, token="dropped")), "rejected"),
    ],
)
def test_the_fair_are_not_rejected_and_the_others_are(policy, verdict):
    settings = CheckSettings(style="block", draws=8000, batches=(), alpha=1e-6, boundary=False, search=False)
    result = check_sampler(with_policy(policy), settings, inputs=[chain("random-3"), chain("random-4")])
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        (TopProbability(0.5), "not-rejected"),
        (TopProbability(0.5, reads="after"), "rejected"),
        (Entropy(0.8), "not-rejected"),
        (Entropy(1.05), "not-rejected"),
        (Entropy(1.05, reads="after"), "rejected"),
        (DrawnProbability(0.25), "not-rejected"),
        (DrawnProbability(0.25, token="dropped"), "rejected"),
    ],
)
def test_an_exact_verifier_behind_a_policy(policy, verdict):
    settings = CheckSettings(
        style="block", draws=8000, batches=(), alpha=1e-6, boundary=False, search=False, stop=policy
    )
    result = check_sampler(ragged, settings, inputs=[chain("random-3")])
    assert result.verdict == verdict
    assert any("random-3, cut" in str(row) for row in result.inputs)


def test_policies_are_for_blocks_and_cut_before():
    with pytest.raises(InputError, match="stop is for the style block, not for tokens"):
        CheckSettings(stop=TopProbability(0.5))
    for given in ("entropy", AfterVerification(Entropy(0.5))):
        with pytest.raises(InputError, match="stop must be a policy that cuts before verification"):
            CheckSettings(style="block", stop=given)  # type: ignore[arg-type]
