"""Candidates that must differ: what they are drawn from must have that many tokens.

Without replacement, ranked, or in SpecHub's pairs no token comes twice. Where what the candidates are
*really* drawn from (the proposal, which need not be the declared draft) has fewer tokens of probability above
0, no engine can have had n candidates, and figures for n would be figures for fewer. A filter, temperature 0
and underflow count alike: ranks among tokens of probability 0 are not known. Independent draws may repeat a
token, so any number of them is possible.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.rules import Rule
from resispec_verify.tables.reading import PairBatch

__all__ = ["check_support", "check_vocabulary"]


def check_vocabulary(rules: Iterable[Rule], candidates: int, vocab: int, where: str) -> None:
    """Refuse more different candidates than a vocabulary has tokens: what a file tells before it is read.

    Raises
    ------
    InputError
        Names ``where``, the rule and the remedy.
    """
    for rule in rules:
        if (n := _different(rule, candidates)) > vocab:
            raise InputError(
                f"{where}: rule {rule.name!r} draws {n} different candidates, more than the "
                f"{_tokens(vocab)} of the vocabulary; {_remedy(rule, vocab)}"
            )


def check_support(rules: Iterable[Rule], candidates: int, batch: PairBatch) -> None:
    """Refuse more different candidates than there are tokens to draw them from, at any position of a batch.

    Parameters
    ----------
    candidates : int
        n; cut to the most that a rule verifies.
    batch : PairBatch
        Counted once for all rules; an empty source means values given by hand.

    Raises
    ------
    InputError
        Names the position of the batch with the fewest tokens.
    """
    rules = tuple(rules)
    if max((_different(rule, candidates) for rule in rules), default=0) < 2:
        return  # every law has one token
    pair, source = batch.pair, batch.source
    xp = array_namespace(pair.drawn_from)
    sizes = to_numpy(xp.sum(xp.astype(pair.drawn_from > 0, xp.int32), axis=-1))
    i = int(np.argmin(sizes))
    size = int(sizes[i])
    where = f"{source}: position {batch.positions[i]}" if source else "--draft"
    for rule in rules:
        if (n := _different(rule, candidates)) > size:
            law, wider = "draft", "widen --temperature, --top-k, --top-p or --min-p"
            if pair.proposal is not None:
                law, wider = "proposal", "widen --proposal-temperature, -top-k or -top-p"
            if not source:
                wider = "give a draft with more"
            have = "has" if size == 1 else "have"
            raise InputError(
                f"{where}: rule {rule.name!r} draws {n} different candidates, but only {_tokens(size)} of "
                f"the {law} {have} a probability above 0; {_remedy(rule, size)}, or {wider}"
            )


def _different(rule: Rule, candidates: int) -> int:
    """How many candidates of a rule must differ: all, or 0 where a token may come again."""
    if not getattr(rule.proposal, "distinct", False):
        return 0
    return rule.verifiable(candidates)


def _tokens(size: int) -> str:
    return "1 token" if size == 1 else f"{size} tokens"


def _remedy(rule: Rule, size: int) -> str:
    return "leave the rule out" if rule.least_candidates > size else f"lower --candidates to {size}"
