"""How candidates are drawn: "right rule, wrong proposal" is a fault of its own.

Limits come from compiled kernels, which are imported where they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import one_hot

__all__ = ["Greedy", "Iid", "Pairs", "Proposal", "WithoutReplacement", "strike_out"]


class Proposal(Protocol):
    """The law of the next candidate given the candidates drawn before."""

    @property
    def name(self) -> str:
        """For reports."""
        ...

    def limit(self, target: Array, draft: Array, candidates: int) -> Array:
        """Acceptance ``(...,)`` that no exact rule can exceed with these candidates; None where unknown."""
        ...

    def next(self, draft: Array, drawn: tuple[Any, ...]) -> Array:
        """Probabilities ``(..., V)`` of the next candidate.

        Parameters
        ----------
        draft : array (..., V)
            The distribution the candidates are drawn from.
        drawn : tuple of integer arrays (...,)
            Candidates drawn before, all of them rejected.

        Returns
        -------
        array (..., V)
            May sum to less than 1: the rest is the probability that there is no further candidate.
        """
        ...


def strike_out(rows: Array, tokens: Array) -> Array:
    """Rows ``(..., V)`` with one entry each set to 0, at ``tokens (...,)``; the shapes broadcast."""
    xp = array_namespace(rows, tokens)
    return xp.where(one_hot(tokens, rows.shape[-1], dtype=rows.dtype) > 0, 0.0, rows)


@dataclass(frozen=True)
class Iid:
    """Independent draws; a token may come again."""

    name: str = "iid"

    def limit(self, target: Array, draft: Array, candidates: int) -> Array:
        """The optimal-transport value for i.i.d. candidates."""
        from resispec_verify.kernels.optimal.transport import transport_limit

        return transport_limit(target, draft, candidates)

    def next(self, draft: Array, drawn: tuple[Any, ...]) -> Array:
        """The draft itself, whatever was drawn before."""
        return draft


@dataclass(frozen=True)
class WithoutReplacement:
    """Each candidate from the draft restricted to the tokens not drawn yet."""

    #: No token comes twice: there are at most V candidates.
    distinct = True
    name: str = "without-replacement"

    def limit(self, target: Array, draft: Array, candidates: int) -> Array:
        """The value of the best prefix, in ascending order of p/q."""
        from resispec_verify.kernels.optimal.candidate_limits import without_replacement_limit

        return without_replacement_limit(target, draft, candidates)

    def next(self, draft: Array, drawn: tuple[Any, ...]) -> Array:
        """The draft without the drawn tokens, renormalised; nothing once the support is exhausted."""
        xp = array_namespace(draft)
        for token in drawn:
            draft = strike_out(draft, token)
        total = xp.sum(draft, axis=-1, keepdims=True)
        return draft / xp.where(total > 0, total, 1.0)


@dataclass(frozen=True)
class Greedy:
    """The draft's best tokens in turn, drawn without any randomness (top-k siblings of a tree)."""

    #: No token comes twice: there are at most V candidates.
    distinct = True
    name: str = "fixed"

    def limit(self, target: Array, draft: Array, candidates: int) -> Array:
        """The target's mass on the candidates: an exact rule accepts exactly when it emits one of them."""
        xp = array_namespace(target, draft)
        drawn: list[Any] = []
        mass = xp.zeros_like(target)
        for _ in range(candidates):
            chosen = self.next(draft, tuple(drawn))
            mass = mass + chosen
            drawn.append(xp.argmax(chosen, axis=-1))
        return xp.sum(xp.where(mass > 0, target, 0.0), axis=-1)

    def next(self, draft: Array, drawn: tuple[Any, ...]) -> Array:
        """One-hot of the best token not drawn yet, ties to the lowest index; 0 when all have been drawn."""
        xp = array_namespace(draft)
        for token in drawn:
            draft = xp.where(one_hot(token, draft.shape[-1], dtype=draft.dtype) > 0, -1.0, draft)
        best = one_hot(xp.argmax(draft, axis=-1), draft.shape[-1], dtype=draft.dtype)
        return xp.where(draft >= 0, best, 0.0)


@dataclass(frozen=True)
class Pairs:
    """SpecHub's two candidates: the draft's best token (the hub) and any other, in either order.

    With a the hub: ``Q(i, a) = q(i)`` and ``Q(a, i) = q(a) q(i) / (1 - q(a))``. So the first candidate is a
    plain draw, and the second is the hub unless the hub came first. A draft with one token in its support
    gives one candidate.
    """

    #: No token comes twice.
    distinct = True
    name: str = "pairs"

    def limit(self, target: Array, draft: Array, candidates: int) -> Array:
        """Of two candidates; None for another number."""
        from resispec_verify.kernels.optimal.candidate_limits import pairs_limit

        return pairs_limit(target, draft) if candidates == 2 else None

    def next(self, draft: Array, drawn: tuple[Any, ...]) -> Array:
        """The draft; then the hub, or after the hub the rest of the draft; then nothing."""
        xp = array_namespace(draft)
        if not drawn:
            return draft
        first, *more = drawn
        if more:
            return xp.zeros_like(draft)
        best = xp.argmax(draft, axis=-1)
        hub = one_hot(best, draft.shape[-1], dtype=draft.dtype)
        others = xp.where(hub > 0, 0.0, draft)
        total = xp.sum(others, axis=-1, keepdims=True)
        others = others / xp.where(total > 0, total, 1.0)
        return xp.where((first == best)[..., None], others, hub)

    def tuples(self, draft: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every pair that has mass, ``(T, 2)`` tokens and ``(T,)`` probabilities, for one row ``(V,)``.

        A missing second candidate is -1.
        """
        hub = int(np.argmax(draft))
        others = np.flatnonzero(draft)
        others = others[others != hub]
        if others.size == 0:
            return np.asarray([[hub, -1]]), draft[hub : hub + 1]
        hubs = np.full_like(others, hub)
        tokens = np.concatenate([np.stack([others, hubs], axis=-1), np.stack([hubs, others], axis=-1)])
        weights = draft[others]
        return tokens, np.concatenate([weights, draft[hub] * (weights / weights.sum())])
