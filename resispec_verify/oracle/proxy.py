"""ResiSpec's GetProxy (Algorithm 1, lines 17-23) in exact rationals, with every reading of it.

References
----------
ResiSpec: Algorithm 1 (GetProxy), Eq. 11-13, and Steps 1-3 of its description.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .laws import Law, as_law, normalise

__all__ = ["Proxy", "get_proxy"]


@dataclass(frozen=True)
class Proxy:
    """What GetProxy computes; the names are Algorithm 1's.

    Attributes
    ----------
    r : tuple of Fraction, length V
        Reserved residual mass, ``0 <= r <= target``, summing to `Z` (lines 19 and 21).
    s : tuple of Fraction, length V
        Injected mass; it lives at the rejected token alone, so that ``k = draft`` there.
    k : tuple of Fraction, length V
        The proxy ``target - r + s`` (line 22).
    Z : Fraction
        The budget, after capping.
    Delta : Fraction
        The mass lost by clipping, which line 21 redistributes (line 20).
    capped : bool
        Whether the wanted budget exceeded the mass off the rejected token.
    excess : Fraction
        ``sum k - 1``; zero for Algorithm 1's own budget, with the rejected token left out of line 21.
    residual : tuple of Fraction, length V
        The next target, ``(target - k)_+`` normalised (line 12).
    """

    r: Law
    s: Law
    k: Law
    Z: Fraction
    Delta: Fraction
    capped: bool
    excess: Fraction
    residual: Law


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")


def _budget(target: Law, draft: Law, rejected: int, budget: str) -> tuple[Fraction, bool]:
    """Line 18, or Eq. 13 with Z* over the current target; then capped at the mass off the hole."""
    wanted = abs(draft[rejected] - target[rejected])
    if budget == "floor":
        wanted = max(wanted, min(R / q for R, q in zip(target, draft, strict=True) if q > 0))
    room = sum(target, Fraction(0)) - target[rejected]
    return min(wanted, room), wanted > room


def _spread(target: Law, draft: Law, rejected: int, Z: Fraction, r: Law, hole: str) -> Law:
    """Line 21 as printed: Delta in proportion to the remaining capacity ``target - r``."""
    capacity = [R - kept for R, kept in zip(target, r, strict=True)]
    if hole == "excluded":
        capacity[rejected] = Fraction(0)
    Delta, room = Z - sum(r), sum(capacity, Fraction(0))
    if Delta == 0:
        return r
    return tuple(kept + Delta * free / room for kept, free in zip(r, capacity, strict=True))


def _raise_level(target: Law, draft: Law, rejected: int, Z: Fraction, r: Law, hole: str) -> Law:
    """Step 2's water-filling: raise the level of ``min(level draft, target)`` until the sum is Z.

    The level is found by trying every set of full tokens, a prefix of the tokens in order of
    ``target / draft``. When all tokens that the draft covers are full, the rest goes to the others in
    proportion to the target.
    """
    tokens = [x for x in range(len(target)) if hole == "literal" or x != rejected]
    covered = sorted((x for x in tokens if draft[x] > 0), key=lambda x: target[x] / draft[x])
    raised = [Fraction(0)] * len(target)
    full = Fraction(0)
    for count, x in enumerate(covered):
        level = (Z - full) / sum(draft[y] for y in covered[count:])
        if level * draft[x] <= target[x]:
            for y in covered:
                raised[y] = min(level * draft[y], target[y])
            return tuple(raised)
        full += target[x]
    for x in covered:
        raised[x] = target[x]
    others = [x for x in tokens if draft[x] == 0]
    room = sum((target[x] for x in others), Fraction(0))
    if full < Z:
        for x in others:
            raised[x] = (Z - full) * target[x] / room
    return tuple(raised)


def get_proxy(
    target: Sequence[Any],
    draft: Sequence[Any],
    rejected: int,
    *,
    redistribution: str = "proportional",
    budget: str = "local",
    hole: str = "excluded",
) -> Proxy:
    """Compute ResiSpec's proxy after `rejected` was refused (Algorithm 1, lines 17-23).

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The *current* target R and the draft q.
    rejected : int
        The rejected token x0.
    redistribution : {"proportional", "water-filling"}
        How Delta is put back: in proportion to the remaining capacity (line 21), or by raising the
        level of ``min(level q, R)`` (Step 2).
    budget : {"local", "floor"}
        ``Z = |q(x0) - R(x0)|`` (line 18), or ``max(Z*, |q(x0) - R(x0)|)`` (Eq. 13) with
        ``Z* = min_{q > 0} R / q``. Either is capped at the mass of R off x0. With normalised laws the
        local budget never needs it: ``q(x0) - R(x0) <= 1 - R(x0)``.
    hole : {"excluded", "literal"}
        Whether line 21 leaves x0 out, so that r(x0) = 0 survives, or is read literally and puts mass
        there too. The next residual is zero at x0 either way.

    Returns
    -------
    Proxy
        All intermediate quantities.

    Raises
    ------
    ValueError
        If a law, the token or an option is invalid.

    Notes
    -----
    Where ``target - k`` has no positive part the next residual falls back to the current target. That
    happens when both laws are zero at x0, so x0 was not drawn from the declared draft; and, in the reading
    "water-filling" with the hole "literal", when x0 takes the whole budget back: target (1/2, 1/2), draft
    (1, 0), x0 = 0.
    """
    _check("redistribution", redistribution, ("proportional", "water-filling"))
    _check("budget", budget, ("local", "floor"))
    _check("hole", hole, ("excluded", "literal"))
    R, q = as_law(target, name="target"), as_law(draft, name="draft")
    if len(R) != len(q) or not 0 <= rejected < len(R):
        raise ValueError(f"need equal lengths and a token below them, got {len(R)}, {len(q)}, {rejected}")
    Z, capped = _budget(R, q, rejected, budget)
    clipped = tuple(Fraction(0) if x == rejected else min(Z * q[x], R[x]) for x in range(len(R)))  # line 19
    redistribute = _spread if redistribution == "proportional" else _raise_level
    r = redistribute(R, q, rejected, Z, clipped, hole)
    s = tuple(q[x] - (R[x] - r[x]) if x == rejected else Fraction(0) for x in range(len(R)))
    k = tuple(R[x] - r[x] + s[x] for x in range(len(R)))  # line 22
    residual = normalise([max(a - b, Fraction(0)) for a, b in zip(R, k, strict=True)], fallback=R)
    return Proxy(r, s, k, Z, Z - sum(clipped), capped, sum(k, Fraction(0)) - 1, residual)
