"""Rows of two pairs in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.evidence.eprocess import FitTest, Grouping
from resispec_verify.sampler_check.calls import Caller
from resispec_verify.sampler_check.sources.drawing import draw_candidates
from resispec_verify.sampler_check.sources.drawn import Drawn, drawn_of

__all__ = ["AND", "ROWS_OF", "MixedSource", "mixed"]

#: Of the name: rows of base and v4.
ROWS_OF, AND = "rows of ", " and "
# Width of the pairs that are mixed at most.
_NARROW = 64


class MixedSource:
    """Rows of two pairs of one width in one call; what is drawn is numbered ``which * V + token``.

    Parameters
    ----------
    first, second : TokenSource
    """

    kind = "token"

    def __init__(self, first: Any, second: Any) -> None:
        self.name = f"{ROWS_OF}{first.name}{AND}{second.name}"
        self.sources, self.proposal, self.handing = (first, second), first.proposal, first.handing
        # As many candidates as both drafts can give.
        self.candidates = min(
            (s.candidates for s in (first, second) if s.candidates is not None), default=None
        )
        self.law = np.concatenate([first.law, second.law]) / 2

    def fit(self) -> FitTest:
        """Both laws; which of them a row has is a fair coin of ours."""
        return FitTest(self.law, [Grouping.of("tokens", np.arange(len(self.law)), self.law)])

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return 1024

    def draw(self, caller: Caller, rng: np.random.Generator, rows: int) -> Drawn:
        """One call."""
        which = rng.integers(2, size=rows)
        given = {
            name: np.stack([source.copies.rows[name] for source in self.sources])[which]
            for name in ("target", "draft")
        }
        if self.candidates is not None:
            both = [draw_candidates(rng, s.draft, rows, self.candidates, self.proposal) for s in self.sources]
            given["candidates"] = np.where((which == 0)[:, None], *both)
            given |= self.handing.coins(rng, rows, self.candidates)
        result = self.handing.call(caller, given, rng)
        vocab = len(self.sources[0].law)
        tokens = drawn_of(result, rows, vocab, self.candidates).index
        return Drawn(which * vocab + tokens)

    def describe(self, token: int) -> str:
        """A token, in words."""
        vocab = len(self.sources[0].law)
        return f"token {token % vocab} in a row of {self.sources[token // vocab].name!r}"


def mixed(sources: list[Any]) -> MixedSource | None:
    """Of the first two that have one width and different targets, if there are two."""
    by_width: dict[int, Any] = {}
    for source in sources:
        other = by_width.setdefault(len(source.law), source)
        if not np.array_equal(other.law, source.law) and len(source.law) <= _NARROW:
            return MixedSource(other, source)
    return None
