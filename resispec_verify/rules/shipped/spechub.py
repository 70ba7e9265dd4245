"""SpecHub: two candidates, one of which is always the draft's best token, verified as a pair.

Sun et al., SpecHub, arXiv 2411.05289 (Section 4; the order of the steps is spelled out in the published
code). With the hub ``a = argmax q``, pairs are drawn with ``Q(i, a) = q(i)`` and ``Q(a, i) = q(a) q(i) / (1
- q(a))``. The target's mass is given out in four steps, each ``min`` of what is left of it and of the
pairs:

1. under (i, a), i is accepted with ``min(1, p(i) / Q(i, a))``;
2. under (a, i), i is accepted with ``min(1, p'(i) / Q(a, i))``, p' being what step 1 left;
3. under (a, i) with i rejected, a is accepted with ``min(1, p(a) / sum of what is left of the (a, i))``;
4. under (i, a) with i rejected, a is accepted likewise from what step 3 left of p(a).

When both are rejected the token is drawn from what is left of p. Guarantee: exact, n = 2 only. Assumptions:
ties for the hub go to the lowest index; a draft with a single token gives that one candidate. Deviations:
none for pairs with the hub. A pair that the proposal cannot draw is tested as if its first candidate had
come with the hub, and its second is never accepted.

`SpecHubForce` is the published code with its guard "to avoid numerical issues": when ``p(a) > 1 - 1e-3`` it
accepts a at once. That is not exact: the emitted law is the one-hot of a, at a TV of ``1 - p(a) < 1e-3``.
(The code compares the target itself, before anything is taken from it.)
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import at, one_hot
from resispec_verify.kernels.elementwise.residuals import normalize, ratio_or_all
from resispec_verify.rules.interface import State
from resispec_verify.rules.proposals import Pairs
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = ["SpecHub", "SpecHubForce"]

_FORCED_ABOVE = 1 - 1e-3  # of the published code


def _share(wanted: Array, offered: Array) -> tuple[Array, Array]:
    """``min(wanted, offered)``, and the share of the offer that it is (0 where nothing is offered)."""
    xp = array_namespace(wanted, offered)
    taken = xp.minimum(wanted, offered)
    return taken, xp.where(offered > 0, taken / xp.where(offered > 0, offered, 1.0), 0.0)


@dataclass(frozen=True)
class SpecHub(TupleRule):
    """SpecHub's verification of a pair, as the paper states it."""

    name = "spechub"
    claims_exact = True
    source = "SpecHub (Sun et al. 2024, arXiv 2411.05289)"
    place = 80
    most_candidates = 2
    least_candidates = 2
    proposal = Pairs()

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """The four steps, for every token at once."""
        xp = array_namespace(target, draft)
        hub = xp.argmax(draft, axis=-1, keepdims=True)
        here = one_hot(hub[..., 0], draft.shape[-1], dtype=draft.dtype) > 0
        hub_draft = xp.sum(xp.where(here, draft, 0.0), axis=-1, keepdims=True)
        hub_target = xp.sum(xp.where(here, target, 0.0), axis=-1, keepdims=True)
        first = xp.where(here, 0.0, draft)  # Q(i, a)
        others = xp.sum(first, axis=-1, keepdims=True)
        second = hub_draft * first / xp.where(others > 0, others, 1.0)  # Q(a, i)
        wanted = xp.where(here, 0.0, target)
        taken, accept_first = _share(wanted, first)
        wanted, left_first = wanted - taken, xp.sum(first - taken, axis=-1, keepdims=True)
        taken, accept_second = _share(wanted, second)
        wanted, left_second = wanted - taken, xp.sum(second - taken, axis=-1, keepdims=True)
        # A draft with one token gives the hub alone.
        left_second = xp.where(others > 0, left_second, hub_draft)
        taken, hub_first = _share(hub_target, left_second)
        hub_target = hub_target - taken
        taken, hub_second = _share(hub_target, left_first)
        left = xp.where(here, hub_target - taken, wanted)
        extra = {
            "hub": hub, "first": accept_first, "second": accept_second, "hub_first": hub_first,
            "hub_second": hub_second, "left": normalize(left, target),
            "room": xp.sum(left, axis=-1, keepdims=True),
        }  # fmt: skip
        return State(target, draft, extra=extra)

    def emitted(self, state: State, tuples: Array) -> Array:
        """Under (i, a): i, else a. Under (a, i): i, else a, though a was drawn first."""
        xp = array_namespace(state.residual)
        one, two = tuples[:, 0], tuples[:, 1]
        hub, extra = state.extra["hub"], state.extra
        accept_one = xp.where((one >= 0) & (one != hub), at(extra["first"], xp.clip(one, 0, None)), 0.0)
        accept_two = xp.where((one == hub) & (two >= 0), at(extra["second"], xp.clip(two, 0, None)), 0.0)
        hub_one = xp.where(one == hub, (1.0 - accept_two) * extra["hub_first"], 0.0)
        hub_two = xp.where((one != hub) & (two == hub), (1.0 - accept_one) * extra["hub_second"], 0.0)
        return xp.stack([accept_one + hub_one, accept_two + hub_two], axis=-1)

    def final(self, state: State) -> Array:
        """What the four steps leave of the target."""
        return state.extra["left"]

    def final_condition(self, state: State) -> Array:
        """What the four steps leave is divided by its sum."""
        xp = array_namespace(state.residual)
        return ratio_or_all(xp.sum(state.residual, axis=-1, keepdims=True), state.extra["room"])


@dataclass(frozen=True)
class SpecHubForce(SpecHub):
    """SpecHub's code: the hub is accepted at once when its target exceeds 1 - 1e-3."""

    name = "spechub-force"
    source = "SpecHub's code (arXiv 2411.05289), with its numerical guard"
    place = 90

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """SpecHub's steps, overruled where the guard holds."""
        state = super().start(target, draft, candidates)
        xp = array_namespace(target)
        hub = state.extra["hub"]
        forced = at(target, hub) > _FORCED_ABOVE
        extra = dict(state.extra)
        for name in ("first", "second"):
            extra[name] = xp.where(forced, 0.0, extra[name])
        for name in ("hub_first", "hub_second"):
            extra[name] = xp.where(forced, 1.0, extra[name])
        return State(target, draft, extra=extra)
