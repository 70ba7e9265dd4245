"""Where draws come from: a call of the sampler becomes integers of one known law.

An integer is the emitted token, or the number of a sequence of tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resispec_verify.evidence.eprocess import FitTest, Grouping
from resispec_verify.evidence.statistical import fit_test
from resispec_verify.sampler_check.battery import Chain, Input
from resispec_verify.sampler_check.calls import Caller, SamplerError, tokens_of

__all__ = ["BlockSource", "Drawn", "MixedSource", "TokenSource"]

# Elements of one input of a call (rows x vocab): 2 MiB an array, so that the copies stay in cache.
_CALL_ELEMENTS = 1 << 18
_MOST_ROWS = 1 << 14


class Drawn(NamedTuple):
    """What one call gave: integers with a known law ``(rows,)``; the index of the accepted candidate, if
    reported.
    """

    index: np.ndarray
    accepted: np.ndarray | None = None


class _Copies:
    """The inputs of calls: copies of rows, made again where the sampler wrote into them."""

    def __init__(self, **rows: np.ndarray) -> None:
        self.rows = rows
        self.given: dict[str, np.ndarray] = {}

    def arrays(self, rows: int) -> list[np.ndarray]:
        """Writable copies of each row, ``(rows, V)``."""
        for name, row in self.rows.items():
            held = self.given.get(name)
            if held is None or len(held) < rows:
                self.given[name] = np.tile(row, (rows, 1))
        return [self.given[name][:rows] for name in self.rows]

    def check(self, caller: Caller, rows: int) -> None:
        """Note what was written, and restore it.

        A comparison, and no product with weights: above some 10,000 entries BLAS starts threads for one,
        which on a busy machine cost milliseconds a call.
        """
        for name, row in self.rows.items():
            if not (self.given[name][:rows] == row).all():
                caller.note(f"writes into its input {name}")
                del self.given[name]


class TokenSource:
    """One token a row, for one pair.

    Parameters
    ----------
    pair : Input
    candidates : int or None
        Hand in so many candidates a row; None: the sampler draws its own.
    proposal : str
        How candidates are drawn: "iid", "without-replacement" or "top".
    acceptance : array (n + 1,) or None
        The certified probability that each candidate is the one accepted, and that none is.
    """

    kind = "token"

    def __init__(self, pair: Input, *, candidates: int | None = None, proposal: str = "iid",
                 acceptance: np.ndarray | None = None) -> None:  # fmt: skip
        self.name, self.pair, self.law = pair.name, pair, pair.target
        self.candidates, self.proposal, self.acceptance = candidates, proposal, acceptance
        self._copies = _Copies(target=pair.target, draft=pair.draft)

    def fit(self) -> FitTest:
        """A fresh test of what is drawn."""
        return fit_test(self.pair.target, self.pair.draft)

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return max(1, min(_MOST_ROWS, _CALL_ELEMENTS // len(self.law)))

    def draw(
        self, caller: Caller, rng: np.random.Generator, rows: int, theirs: np.random.Generator | None = None
    ) -> Drawn:
        """One call; ``theirs`` is the generator that the sampler gets, where it is not ``rng``."""
        arguments: list[Any] = self._copies.arrays(rows)
        if self.candidates is not None:
            chosen = draw_candidates(rng, self.pair.draft, rows, self.candidates, self.proposal)
            arguments.append(chosen.copy())
        result = caller.call(*arguments, theirs or rng)
        self._copies.check(caller, rows)
        if self.candidates is not None and not np.array_equal(arguments[2], chosen):
            caller.note("writes into its input candidates")
        known = None if self.acceptance is None else len(self.acceptance) - 1
        return _drawn(result, rows, len(self.law), known if self.candidates is None else self.candidates)

    def describe(self, token: int) -> str:
        """A token, in words."""
        return f"token {token}"


def _drawn(result: Any, rows: int, vocab: int, candidates: int | None) -> Drawn:
    """Tokens, or a tuple of tokens and the index of the accepted candidate; no other tuple."""
    if isinstance(result, tuple) and len(result) == 2 and not any(map(np.isscalar, result)):
        tokens, accepted = result
        most = vocab if candidates is None else candidates
        return Drawn(tokens_of(tokens, rows, vocab), tokens_of(accepted, rows, most + 1, what="accepted"))
    return Drawn(tokens_of(result, rows, vocab))


def draw_candidates(
    rng: np.random.Generator, draft: np.ndarray, rows: int, n: int, proposal: str
) -> np.ndarray:
    """Candidates ``(rows, n)``: i.i.d. from the draft, without replacement, or its top n tokens."""
    if proposal == "top":
        return np.tile(np.argsort(-draft, kind="stable")[:n], (rows, 1))
    if proposal == "iid":
        cumulative = np.cumsum(draft)
        found = np.searchsorted(cumulative, rng.random((rows, n)) * cumulative[-1], side="right")
        return np.minimum(found, np.flatnonzero(draft)[-1])
    # The n largest of log q plus Gumbel noise are a draw without replacement, in its order.
    with np.errstate(divide="ignore"):
        keys = np.log(draft) + rng.gumbel(size=(rows, len(draft)))
    return np.argsort(-keys, axis=-1, kind="stable")[:, :n]


class MixedSource:
    """Rows of two pairs of one width in one call; what is drawn is numbered ``which * V + token``."""

    kind = "token"

    def __init__(self, first: TokenSource, second: TokenSource) -> None:
        self.name = f"rows of {first.name} and {second.name}"
        self.pairs, self.proposal = (first.pair, second.pair), first.proposal
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
        target = np.stack([pair.target for pair in self.pairs])[which]
        draft = np.stack([pair.draft for pair in self.pairs])[which]
        arguments: list[Any] = [target.copy(), draft.copy()]
        if self.candidates is not None:
            both = [draw_candidates(rng, p.draft, rows, self.candidates, self.proposal) for p in self.pairs]
            arguments.append(np.where((which == 0)[:, None], *both))
        result = caller.call(*arguments, rng)
        vocab = len(self.pairs[0].target)
        tokens = _drawn(result, rows, vocab, self.candidates).index
        return Drawn(which * vocab + tokens)

    def describe(self, token: int) -> str:
        """A token, in words."""
        vocab = len(self.pairs[0].target)
        return f"token {token % vocab} in a row of {self.pairs[token // vocab].name!r}"


class BlockSource:
    """A drafted path of L tokens a row is verified; what is emitted is continued by the target to L + 1
    tokens.

    A block is lossless if its emitted prefix, followed by tokens of the target, has the target's joint law.
    """

    kind = "block"

    def __init__(self, chain: Chain, *, ragged: bool = False) -> None:
        self.name, self.chain, self.ragged = chain.name, chain, ragged
        length, vocab, _ = chain.draft.shape
        self.length, self.vocab = length, vocab
        law = chain.target[0, 0]
        for i in range(1, length + 1):
            last = np.arange(len(law)) % vocab
            law = (law[:, None] * chain.target[i][last]).ravel()
        self.law = law

    def fit(self) -> FitTest:
        """Over all sequences, each token by itself, and each two neighbours."""
        index, v, n = np.arange(len(self.law)), self.vocab, self.length + 1
        token = [index // v ** (n - 1 - i) % v for i in range(n)]
        found = [Grouping.of("sequences", index, self.law)]
        found += [Grouping.of(f"token {i + 1}", token[i], self.law) for i in range(n)]
        if n > 2:
            found += [
                Grouping.of(f"tokens {i + 1} and {i + 2}", token[i] * v + token[i + 1], self.law)
                for i in range(n - 1)
            ]
        return FitTest(self.law, [found[0], *(grouping for grouping in found[1:] if grouping.cells > 1)])

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return max(1, min(_MOST_ROWS, _CALL_ELEMENTS // (self.vocab * (self.length + 1))))

    def draw(
        self, caller: Caller, rng: np.random.Generator, rows: int, theirs: np.random.Generator | None = None
    ) -> Drawn:
        """One call; ``theirs`` is the generator that the sampler gets, where it is not ``rng``."""
        L, V = self.length, self.vocab
        path = np.zeros((rows, L), dtype=np.int64)
        before = np.zeros(rows, dtype=np.int64)
        targets, drafts = np.empty((rows, L + 1, V)), np.empty((rows, L, V))
        for i in range(L):
            targets[:, i], drafts[:, i] = self.chain.target[i][before], self.chain.draft[i][before]
            before = path[:, i] = _rows_of(rng, drafts[:, i])
        targets[:, L] = self.chain.target[L][before]
        if self.ragged:
            _cut(rng, path, targets, drafts)
        given: list[Any] = [targets.copy(), drafts.copy(), path.copy()]
        result = caller.call(*given, theirs or rng)
        for name, mine, held in zip(
            ("targets", "drafts", "path"), (targets, drafts, path), given, strict=True
        ):
            if not np.array_equal(mine, held):
                caller.note(f"writes into its input {name}")
        emitted = tokens_of(result, rows, V, columns=L + 1)
        return Drawn(self._completed(rng, emitted, path))

    def _completed(self, rng: np.random.Generator, emitted: np.ndarray, path: np.ndarray) -> np.ndarray:
        there = emitted >= 0
        if not there[:, 0].all():
            raise SamplerError("emitted nothing in some row; at least one token is always emitted")
        if (there[:, 1:] & ~there[:, :-1]).any():
            raise SamplerError("returned tokens after a -1; -1 stands for nothing from there on")
        most = (path >= 0).sum(axis=1) + 1
        too_long = there.sum(axis=1) > most
        if too_long.any():
            row = int(np.argmax(too_long))
            raise SamplerError(
                f"emitted {int(there[row].sum())} tokens for a path of {int(most[row]) - 1}; at most one "
                "more than the path can be"
            )
        index = np.zeros(len(emitted), dtype=np.int64)
        before = index
        for i in range(self.length + 1):
            fresh = _rows_of(rng, self.chain.target[i][before])
            before = np.where(there[:, i], emitted[:, i], fresh)
            index = index * self.vocab + before
        return index

    def describe(self, token: int) -> str:
        """A sequence, in words."""
        v, n = self.vocab, self.length + 1
        return "sequence " + " ".join(str(token // v ** (n - 1 - i) % v) for i in range(n))


def _cut(rng: np.random.Generator, path: np.ndarray, targets: np.ndarray, drafts: np.ndarray) -> None:
    """Shorten paths at random: -1 for tokens, rows of zeros for what is not there."""
    rows, length = path.shape
    keep = rng.integers(1, length + 1, size=rows)
    gone = np.arange(length) >= keep[:, None]
    path[gone] = -1
    drafts[gone] = 0.0
    targets[:, 1:][gone] = 0.0


def _rows_of(rng: np.random.Generator, law: np.ndarray) -> np.ndarray:
    """One draw from each row."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (rng.random(len(law)) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)
