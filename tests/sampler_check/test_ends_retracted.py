"""A fault at an end of the uniforms is taken back where the same comes without one later."""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.sampler_check.battery import Input
from resispec_verify.sampler_check.check import CheckSettings, check_sampler

# More than the rows of any call at the ends, and fewer than those of later ones.
MANY = 500
PAIR = Input("pair", np.array([0.0, 0.4, 0.6]), np.array([0.2, 0.4, 0.4]))


def sampler(target, draft, rng, *, many: int):
    """Token 0, which is impossible, at a uniform of 0; and in a call of many rows."""
    coins = rng.random(len(target))
    tokens = np.where(coins < 0.4, 1, 2)
    tokens[coins == 0.0] = 0
    if len(target) > many:
        tokens[0] = 0
    return tokens


@pytest.mark.parametrize(
    ("many", "kind", "verdict"), [(MANY, "support", "not-tested"), (1 << 30, "boundary", "fault")]
)
def test_what_also_comes_without_an_end_is_not_blamed_on_one(many, kind, verdict):
    result = check_sampler(
        lambda *given: sampler(*given, many=many),
        CheckSettings(draws=60_000, search=False, seconds=60),
        inputs=[PAIR],
    )

    assert result.verdict == "rejected"
    assert result.witness is not None
    assert result.witness["kind"] == kind
    assert result.ends is not None
    assert result.ends["verdict"] == verdict
