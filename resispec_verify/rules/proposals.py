"""How candidates are drawn: "right rule, wrong proposal" is a fault of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace

from resispec_verify.kernels.probabilities import one_hot
from resispec_verify.kernels.transport import transport_limit

__all__ = ["Greedy", "Iid", "Proposal", "WithoutReplacement"]


class Proposal(Protocol):
    """The law of the next candidate given the candidates drawn before."""

    @property
    def name(self) -> str:
        """For reports."""
        ...

    def limit(self, target: Any, draft: Any, candidates: int) -> Any:
        """Acceptance ``(...,)`` that no exact rule can exceed with these candidates; None where unknown."""
        ...

    def next(self, draft: Any, drawn: tuple[Any, ...]) -> Any:
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


@dataclass(frozen=True)
class Iid:
    """Independent draws; a token may come again."""

    name: str = "iid"

    def limit(self, target: Any, draft: Any, candidates: int) -> Any:
        """The optimal-transport value for i.i.d. candidates."""
        return transport_limit(target, draft, candidates)

    def next(self, draft: Any, drawn: tuple[Any, ...]) -> Any:
        """The draft itself, whatever was drawn before."""
        return draft


@dataclass(frozen=True)
class WithoutReplacement:
    """Each candidate from the draft restricted to the tokens not drawn yet."""

    name: str = "without-replacement"

    def limit(self, target: Any, draft: Any, candidates: int) -> Any:
        """Not known here: None."""
        return None

    def next(self, draft: Any, drawn: tuple[Any, ...]) -> Any:
        """The draft without the drawn tokens, renormalised; nothing once the support is exhausted."""
        xp = array_namespace(draft)
        for token in drawn:
            draft = xp.where(one_hot(token, draft.shape[-1], dtype=draft.dtype) > 0, 0.0, draft)
        total = xp.sum(draft, axis=-1, keepdims=True)
        return draft / xp.where(total > 0, total, 1.0)


@dataclass(frozen=True)
class Greedy:
    """The draft's best tokens in turn, drawn without any randomness (top-k siblings of a tree)."""

    name: str = "fixed"

    def limit(self, target: Any, draft: Any, candidates: int) -> Any:
        """The target's mass on the candidates: an exact rule accepts exactly when it emits one of them."""
        xp = array_namespace(target, draft)
        drawn: list[Any] = []
        mass = xp.zeros_like(target)
        for _ in range(candidates):
            chosen = self.next(draft, tuple(drawn))
            mass = mass + chosen
            drawn.append(xp.argmax(chosen, axis=-1))
        return xp.sum(xp.where(mass > 0, target, 0.0), axis=-1)

    def next(self, draft: Any, drawn: tuple[Any, ...]) -> Any:
        """One-hot of the best token not drawn yet, ties to the lowest index; 0 when all have been drawn."""
        xp = array_namespace(draft)
        for token in drawn:
            draft = xp.where(one_hot(token, draft.shape[-1], dtype=draft.dtype) > 0, -1.0, draft)
        best = one_hot(xp.argmax(draft, axis=-1), draft.shape[-1], dtype=draft.dtype)
        return xp.where(draft >= 0, best, 0.0)
