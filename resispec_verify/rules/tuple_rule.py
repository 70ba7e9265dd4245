"""Rules that look at all candidates of a position before they accept one of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import NoReturn

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.rules.interface import Rule, State

__all__ = ["TupleRule"]


class TupleRule(Rule):
    """A rule that decides about the whole tuple: which candidate is emitted, or none.

    What is emitted when none is must have one law whatever the tuple was, `Rule.final`: the target minus
    what the tuples emit.
    """

    depends_on = "tuple"

    @abstractmethod
    def emitted(self, state: State, tuples: Array) -> Array:
        """Probability, given the tuple, that its j-th candidate is the token emitted.

        Parameters
        ----------
        state : State
            Of one position: arrays ``(V,)``.
        tuples : integer array (T, n)
            Candidates in the order drawn; -1 where there was no further candidate.

        Returns
        -------
        array (T, n)
            Rows sum to at most 1; the rest is the probability that none is emitted.
        """

    def emitted_law(self, state: State, drawn_from: Array, candidates: int) -> Array:
        """Mass emitted as a candidate, by token, ``(V,)``, where a rule can sum all tuples in closed form.

        Candidates are i.i.d. from ``drawn_from (V,)``, and each of them emits as much as any other. None (the
        default) where every tuple must be listed.
        """
        return None

    def accept(self, state: State) -> NoReturn:
        """Not defined: acceptance depends on the other candidates. See `emitted`."""
        raise InputError(f"{self.name} decides about all its candidates at once, not one after the other")

    def reject(self, state: State, tokens: Array) -> NoReturn:
        """Not defined, like `accept`."""
        self.accept(state)
