"""Rules that verify one drafted path of several tokens at once, by a protocol of their own.

They need the target's law after every prefix of the path, so a flat dump, which has one position at a time,
is not enough.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from resispec_verify.arrays import Array
from resispec_verify.rules.interface import Described

__all__ = ["PathRule"]


class PathRule(Described):
    """A rule over a path of L drafted tokens; frozen and pure like `Rule`."""

    @abstractmethod
    def outcome(self, targets: Array, drafts: Array, path: Any) -> tuple[Array, Array]:
        """How many tokens are accepted, and what follows them.

        Parameters
        ----------
        targets : array (..., L + 1, V)
            The target's law after 0, ..., L tokens of the path.
        drafts : array (..., L, V)
            The laws that the path's tokens were drawn from.
        path : integer array (..., L)
            The drafted tokens.

        Returns
        -------
        lengths : array (..., L + 1)
            Probability that exactly 0, ..., L tokens are accepted.
        corrections : array (..., L + 1, V)
            Row i: the law of the token emitted after exactly i accepted ones.
        """
