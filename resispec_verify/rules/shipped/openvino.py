"""OpenVINO GenAI's validation of a draft: a coarse coin on the wrong quotient, a correction one row late.

openvinotoolkit/openvino.genai, ``src/cpp/src/sampling/sampler.cpp``, ``Sampler::validate_candidate`` and
``Sampler::sample_from_sequence_group``; the same at tag 2026.3.0.0 and at da1db864 (August 2026). With
``do_sample`` and a draft model, at the i-th drafted token x:

* the target draws a token y of its own from its law p at that place;
* x is accepted if ``k / 100 <= q(x) / p(y)``, k uniform on the 101 whole numbers 0..100: the draft's
  probability of x over the target's probability of y, so that tokens the draft is sure of pass;
* after the first rejection the loop goes on to the next row, the target's law *after x*, draws a token from
  it, and puts that in the place of x. After the last drafted token that is the row of the free token.

``get_p_prime``, which reads like the residual, changes the log-probability reported and no token.

Guarantee: none, although it follows Leviathan et al. by its own account: an even match of p and q does not
pass for sure, a token of target probability 0 may, and what replaces a token is drawn from another place.
Assumptions: the path is drawn from the declared drafts; a quotient that equals k / 100 up to rounding counts
as equal. Deviations: single precision is not imitated. Not modelled: in the first round of a text, before
the target has emitted anything, x is accepted if it is y, with the same correction; with prompt lookup, and
with greedy decoding, that is the test everywhere, and y is emitted instead of x, which is `token-match`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.rules.path_rule import PathRule

__all__ = ["OpenVINO"]

_STEPS = 100  # the coin is one of 0, 1, ..., 100 over it


@dataclass(frozen=True)
class OpenVINO(PathRule):
    """The draft's probability against that of the target's own token, and the row after."""

    name = "openvino"
    claims_exact = True
    source = "OpenVINO GenAI 2026.3, validate_candidate"
    place = 230

    def outcome(self, targets: Array, drafts: Array, path: Any) -> tuple[Array, Array]:
        """See `PathRule.outcome`."""
        xp = array_namespace(targets, drafts, path)
        length = path.shape[-1]
        reach = xp.ones(path.shape[:-1], dtype=targets.dtype, device=targets.device)
        lengths = []
        for i in range(length):
            own = targets[..., i, :]
            offered = at(drafts[..., i, :], path[..., i : i + 1])
            accept = xp.sum(own * _passes(offered, own), axis=-1)  # over the token that the target drew
            lengths.append(reach * (1.0 - accept))
            reach = reach * accept
        lengths.append(reach)
        late = targets[..., 1:, :]
        return xp.stack(lengths, axis=-1), xp.concat([late, targets[..., length:, :]], axis=-2)


def _passes(offered: Array, own: Array) -> Array:
    """Share of the coins that are at most ``offered (..., 1) / own (..., V)``."""
    xp = array_namespace(offered, own)
    below = offered < own
    quotient = xp.where(below, offered / xp.where(below, own, 1.0), 1.0)
    equal = 1.0 + 4.0 * float(xp.finfo(own.dtype).eps)  # roundings of the two laws and of the quotient
    return (xp.floor(_STEPS * quotient * equal) + 1.0) / (_STEPS + 1.0)
