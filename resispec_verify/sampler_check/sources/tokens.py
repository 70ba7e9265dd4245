"""One token a row, for one pair: the styles tokens, candidates and uniforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.evidence.eprocess import FitTest
from resispec_verify.evidence.statistical import fit_test
from resispec_verify.sampler_check.battery.pairs import Input, battery_names, named
from resispec_verify.sampler_check.calls import Caller
from resispec_verify.sampler_check.sources.drawing import draw_candidates
from resispec_verify.sampler_check.sources.drawn import Drawn, drawn_of, rows_within
from resispec_verify.sampler_check.sources.handing import PLAIN, Copies, Handing
from resispec_verify.sampler_check.sources.mixed import mixed
from resispec_verify.sampler_check.sources.style import Style

__all__ = ["CANDIDATES", "TOKENS", "UNIFORMS", "TokenSource", "certified_acceptance"]


class TokenSource:
    """One token a row, for one pair.

    Parameters
    ----------
    pair : Input
    candidates : int or None
        Hand in so many candidates a row, at most as many as the proposal can draw; None: the sampler draws
        its own.
    proposal : str
        How candidates are drawn: "iid", "without-replacement" or "top".
    rule : Rule or None
        Whose certified acceptance a reported one is compared with.
    most : int
        Candidates of the rule where none are handed in.
    handing : Handing
    offset : int
        Tokens in front that are reserved; see `Input.shifted`.

    Attributes
    ----------
    law, draft : float64 array (V,)
        Of the numbers that are handed over.
    acceptance : array (n + 1,) or None
        The certified probability that each candidate is the one accepted, and that none is.
    vocab : int
    uncertain : str or None
        Why there is no acceptance to compare with.
    """

    kind = "token"

    def __init__(self, pair: Input, *, candidates: int | None = None, proposal: str = "iid", rule: Any = None,
                 most: int = 1, handing: Handing = PLAIN, offset: int = 0) -> None:  # fmt: skip
        self.name, self.pair, self.proposal, self.handing = pair.name, pair, proposal, handing
        shifted = pair.shifted(offset) if offset else pair
        target, self.law = handing.laws(shifted.target)
        draft, self.draft = handing.laws(shifted.draft)
        self.vocab = len(self.law)
        self.copies = Copies(handing, target=target, draft=draft)
        if candidates is not None and proposal != "iid":
            candidates = min(candidates, int(np.count_nonzero(self.draft)))
        self.candidates = candidates
        self.acceptance = certified_acceptance(rule, self.law, self.draft, candidates or most)
        self.uncertain = None
        if rule is not None and self.acceptance is None:
            self.uncertain = f"the acceptance of {rule.name} on {pair.name} takes too long to certify"

    def fit(self) -> FitTest:
        """A fresh test of what is drawn."""
        return fit_test(self.law, self.draft)

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return rows_within(self.vocab)

    def draw(
        self, caller: Caller, rng: np.random.Generator, rows: int, theirs: np.random.Generator | None = None
    ) -> Drawn:
        """One call; ``theirs`` is the generator that the sampler gets, where it is not ``rng``."""
        laws = self.copies.arrays(rows)
        if self.candidates is None:
            result = caller.call(*laws, theirs or rng)
        else:
            own = {"candidates": draw_candidates(rng, self.draft, rows, self.candidates, self.proposal)}
            own |= self.handing.coins(theirs or rng, rows, self.candidates)
            result = self.handing.call(caller, own, theirs or rng, before=laws)
        self.copies.check(caller, rows)
        known = None if self.acceptance is None else len(self.acceptance) - 1
        return drawn_of(result, rows, self.vocab, known if self.candidates is None else self.candidates)

    def describe(self, token: int) -> str:
        """A token, in words."""
        return f"token {token}"


def certified_acceptance(rule: Any, target: np.ndarray, draft: np.ndarray, n: int) -> np.ndarray | None:
    """The law of the accepted candidate, n for none, by enumeration of all paths; None if there are too many.

    Nothing may be missing: an outcome of probability 1e-9 that is taken for impossible would reject a right
    sampler more often than at the default alpha.
    """
    if rule is None:
        return None
    from resispec_verify.evidence.enumeration import Budget, operational_marginals

    everything = Budget(gap=0.0, until_decided=False)
    marginals = operational_marginals(rule, target[None], draft[None], n, budget=everything)
    if float(np.asarray(marginals.gap)[0]) > 0.0 or max(marginals.acceptance_error, default=0.0) > 0.0:
        return None
    accepted = np.asarray(marginals.acceptance, np.float64)[0]
    return np.append(accepted, max(0.0, 1.0 - float(accepted.sum())))


def _drawn_by_the_sampler(pair: Input, settings: Any, handing: Handing) -> list[TokenSource]:
    more = {"rule": settings.rule, "most": settings.candidates, "offset": settings.offset}
    return [TokenSource(pair, handing=handing, **more)]


def _handed_in(pair: Input, settings: Any, handing: Handing) -> list[TokenSource]:
    more = {"rule": settings.rule, "proposal": settings.proposal, "offset": settings.offset}
    return [TokenSource(pair, candidates=settings.candidates, handing=handing, **more)]


_PAIRS: dict[str, Any] = {
    "takes": Input, "names": battery_names(), "named": named, "rule": True, "searched": True, "mixed": mixed,
}  # fmt: skip
TOKENS = Style("tokens", ("target", "draft"), sources=_drawn_by_the_sampler, **_PAIRS)
_PAIRS |= {"sources": _handed_in, "proposals": ("iid", "without-replacement", "top")}
CANDIDATES = Style("candidates", ("target", "draft", "candidates"), **_PAIRS)
UNIFORMS = Style("uniforms", ("target", "draft", "candidates"), uniforms=True, **_PAIRS)
