"""A drafted path of L tokens a row: the style block."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.evidence.eprocess import FitTest
from resispec_verify.rules.stopping import StopPolicy
from resispec_verify.sampler_check.battery.chains import CHAINS, Chain, chain
from resispec_verify.sampler_check.calls import Caller, SamplerError
from resispec_verify.sampler_check.sources.drawing import rows_of
from resispec_verify.sampler_check.sources.drawn import Drawn, rows_within
from resispec_verify.sampler_check.sources.handing import PLAIN, Handing
from resispec_verify.sampler_check.sources.sequences import Sequences, emitted_of
from resispec_verify.sampler_check.sources.style import Style

__all__ = ["BLOCK", "RAGGED", "BlockSource"]

#: After the name of an input whose paths have different lengths, and of one that a policy cuts.
RAGGED = ", ragged"
CUT = ", cut"


class BlockSource:
    """A drafted path of L tokens a row is verified; what is emitted is continued by the target to L + 1
    tokens.

    A block is lossless if its emitted prefix, followed by tokens of the target, has the target's joint law.

    Parameters
    ----------
    chain : Chain
    ragged : bool
        Paths of different lengths.
    stop : StopPolicy, optional
        Paths are as long as it keeps of them, the first token always.
    flat : bool
        Rows one after the other, with cumulative lengths, instead of padding. A path may then be empty, but
        not all in a call.
    handing : Handing
    offset : int
    """

    kind = "block"

    def __init__(self, chain: Chain, *, ragged: bool = False, stop: StopPolicy | None = None,
                 flat: bool = False, handing: Handing = PLAIN, offset: int = 0) -> None:  # fmt: skip
        self.name = chain.name + (RAGGED if ragged else CUT if stop else "")
        self.about = chain.about
        self.ragged, self.stop, self.flat, self.handing = ragged, stop, flat, handing
        shifted = chain.shifted(offset) if offset else chain
        self.target, targets = handing.laws(shifted.target)
        self.draft, self.drafts = handing.laws(shifted.draft)
        self.length, self.vocab, _ = self.draft.shape
        self.sequences = Sequences(targets[0, 0], list(targets[1:]), self.name)
        self.law = self.sequences.law

    def fit(self) -> FitTest:
        """Over all sequences, each token by itself, and each two neighbours."""
        return self.sequences.fit(apart=1)

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return rows_within(self.vocab * (self.length + 1))

    def draw(
        self, caller: Caller, rng: np.random.Generator, rows: int, theirs: np.random.Generator | None = None
    ) -> Drawn:
        """One call; ``theirs`` is the generator that the sampler gets, where it is not ``rng``."""
        L, V = self.length, self.vocab
        path = np.zeros((rows, L), dtype=np.int64)
        before = np.zeros(rows, dtype=np.int64)
        seen = np.empty((rows, L, V)) if self.stop else None
        targets = np.empty((rows, L + 1, V), self.target.dtype)
        drafts = np.empty((rows, L, V), self.draft.dtype)
        for i in range(L):
            targets[:, i], drafts[:, i] = self.target[i][before], self.draft[i][before]
            laws = drafts[:, i] if self.draft is self.drafts else self.drafts[i][before]
            before = path[:, i] = rows_of(rng, laws)
            if seen is not None:
                seen[:, i] = laws
        targets[:, L] = self.target[L][before]
        most = self._lengths(rng, path, seen)
        if (most < L).any():
            _shorten(most, path, targets, drafts)
        given = {"targets": targets, "drafts": drafts, "path": path}
        if self.flat:
            given = _flattened(given, most)
        given |= self.handing.coins(theirs or rng, rows, L)
        result = self.handing.call(caller, given, theirs or rng)
        columns = int(most.max()) + 1 if self.flat else L + 1
        emitted, accepted = emitted_of(result, rows, V, columns, most)
        if accepted is not None:
            _check_accepted(emitted, accepted, path)
        whole = np.full((rows, L + 1), -1, dtype=np.int64)
        whole[:, :columns] = emitted
        return Drawn(self.sequences.completed(rng, whole))

    def _lengths(self, rng: np.random.Generator, path: np.ndarray, drafts: Any) -> np.ndarray:
        """How long each path is when it is handed over."""
        rows, length = path.shape
        if self.stop is not None:
            return np.maximum(rows_of(rng, self.stop.kept(drafts, path)), 1)
        if not self.ragged:
            return np.full(rows, length)
        keep = rng.integers(0 if self.flat else 1, length + 1, size=rows)
        keep[0] = max(1, keep[0]) if not keep.any() else keep[0]
        return keep

    def describe(self, token: int) -> str:
        """A sequence, in words."""
        return self.sequences.describe(token)


def _shorten(keep: np.ndarray, path: np.ndarray, targets: np.ndarray, drafts: np.ndarray) -> None:
    """-1 for the tokens that are not kept, rows of zeros for what is not there."""
    gone = np.arange(path.shape[1]) >= keep[:, None]
    path[gone] = -1
    drafts[gone] = 0.0
    targets[:, 1:][gone] = 0.0


def _flattened(given: dict[str, np.ndarray], lengths: np.ndarray) -> dict[str, np.ndarray]:
    """The rows one after the other without their padding, and where they begin: 0, L_1, L_1 + L_2, ..."""
    columns = np.arange(given["targets"].shape[1])
    there = columns < lengths[:, None]
    return {
        "targets": given["targets"][columns <= lengths[:, None]],
        "drafts": given["drafts"][there[:, :-1]],
        "path": given["path"][there[:, :-1]],
        "lengths": np.concatenate([[0], np.cumsum(lengths)]),
    }


def _check_accepted(emitted: np.ndarray, accepted: np.ndarray, path: np.ndarray) -> None:
    """The tokens that are said to be accepted must be those of the path."""
    claimed = np.arange(path.shape[1]) < accepted[:, None]
    wrong = claimed & (emitted[:, : path.shape[1]] != path)
    if wrong.any():
        row, i = (int(axis[0]) for axis in np.nonzero(wrong))
        raise SamplerError(
            f"says that {int(accepted[row])} tokens were accepted, but emits token {int(emitted[row, i])} at "
            f"position {i + 1} where the path has {int(path[row, i])} (row {row})"
        )


def _sources(one: Chain, settings: Any, handing: Handing) -> list[BlockSource]:
    more = {"flat": settings.flat, "handing": handing, "offset": settings.offset}
    found = [BlockSource(one, **more)]
    if settings.ragged:
        found.append(BlockSource(one, ragged=True, **more))
    if settings.stop is not None:
        found.append(BlockSource(one, stop=settings.stop, **more))
    return found


BLOCK = Style(
    "block", ("targets", "drafts", "path"), Chain, CHAINS, chain, _sources,
    options=("ragged", "stop", "flat", "uniforms"),
)  # fmt: skip
