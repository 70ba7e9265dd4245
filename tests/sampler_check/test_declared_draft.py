"""Are candidates drawn from the draft that is declared?"""

from __future__ import annotations

import numpy as np

from resispec_verify.sampler_check.draft import check_declared_draft


def draft_of(drawn, declared):
    drawn, logits = np.asarray(drawn, float), np.log(np.asarray(declared, float))

    def draw(rng):
        return rng.choice(len(drawn), size=2, p=drawn), np.stack([logits, logits])

    return draw


def test_a_draft_that_is_declared_as_drawn_is_not_rejected():
    result = check_declared_draft(draft_of([0.4, 0.3, 0.3], [0.4, 0.3, 0.3]), draws=2000)
    assert result.verdict == "not-rejected"
    assert 0 < result.detectable_tv < 0.2


def test_a_truncated_draft_declared_whole_is_rejected():
    result = check_declared_draft(draft_of([4 / 7, 3 / 7, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1]), draws=2000)
    assert result.verdict == "rejected"
    assert "token 2" in result.witness["never_emitted"]


def test_a_draft_that_changes_between_calls_is_an_error():
    def draw(rng):
        return [0], rng.normal(size=(1, 4))

    assert "another draft" in check_declared_draft(draw).reason
