"""What a question is asked about: arrays, paths of dumps, or dumps that are open already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify import inputs
from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.distributions import Pair, Sampling, pair_from_logits
from resispec_verify.dumps import FlatDump, open_dump, turned
from resispec_verify.dumps.opening import PathLike
from resispec_verify.errors import InputError
from resispec_verify.inputs import shown
from resispec_verify.tables.input_kind import refuse_applied
from resispec_verify.tables.reading import PairBatch, Reading, logits_of, pairs_of, positions_at_once

__all__ = ["Asked", "PathLike"]

#: What rows can be said to be.
KINDS = ("logits", "probabilities", "log-probabilities")

# Sums of laws miss 1 by less than this, those stored in bfloat16 included (2**-9 of each entry). Which rows
# are laws is decided by it; how well they must sum to 1 is decided by `inputs.laws`.
_NEAR_ONE = 1e-2
# Nor do they lie further below 0: what a subtraction in float32 leaves of numbers up to 1 is off by less.
_NEAR_ZERO = 8 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Asked:
    """Where the pairs come from, and how they are made.

    Attributes
    ----------
    target : array (..., V), path, sequence of paths, or FlatDump
    draft : array (..., V) or None
        None with dumps, which hold it.
    proposal : array (..., V), Sampling or None
        What candidates are really drawn from, where it is not the declared draft: rows like those of the
        draft, or a sampling of the draft's logits.
    sampling : Sampling, sequence of Sampling, or None
    input : {"logits", "probabilities", "log-probabilities"} or None
    positions : slice, range or None
    """

    target: Any
    draft: Any = None
    proposal: Any = None
    sampling: Sampling | Sequence[Sampling] | None = None
    input: str | None = None
    positions: slice | range | None = None

    def __post_init__(self) -> None:
        if self.input not in (None, *KINDS):
            raise InputError(f"input must be one of {', '.join(KINDS)}, got {shown(self.input)}")
        for sampling in self.samplings or ():
            if not isinstance(sampling, Sampling):
                raise InputError(
                    f"sampling must be a Sampling, such as Sampling(0.7), or several; got {shown(sampling)}"
                )
        if isinstance(self.proposal, Sampling) and self.proposal.draft is not None:
            raise InputError("proposal is a Sampling with settings of a draft; give its draft_sampling")

    @property
    def samplings(self) -> tuple[Sampling, ...] | None:
        """All samplings; None for what a dump states, or temperature 1."""
        if self.sampling is None or isinstance(self.sampling, Sampling):
            return None if self.sampling is None else (self.sampling,)
        if not isinstance(self.sampling, Sequence):
            raise InputError(f"sampling must be a Sampling, or several; got {shown(self.sampling)}")
        if not self.sampling:
            raise InputError("sampling has no entry: give at least one, or leave it out")
        return tuple(dict.fromkeys(self.sampling))

    @property
    def span(self) -> tuple[int | None, int | None]:
        """First and last position; None is the end of the dump."""
        if self.positions is None:
            return None, None
        ends = getattr(self.positions, "start", ""), getattr(self.positions, "stop", "")
        whole_numbers = all(end is None or type(end) is int for end in ends)
        if not whole_numbers or self.positions.step not in (None, 1):
            raise InputError(
                "positions must be a slice or range of step 1, such as slice(0, 16); got "
                f"{shown(self.positions)}"
            )
        return self.positions.start, self.positions.stop

    def dumps(self) -> list[FlatDump] | None:
        """The dumps, opened; None where arrays were given.

        Raises
        ------
        InputError
            As `open_dump`; arrays beside dumps, or no draft beside an array.
        """
        given = self.target
        if isinstance(given, (str, os.PathLike, FlatDump)):
            given = [given]
        elif not _are_paths(given):
            if self.draft is None:
                raise InputError("draft is missing: give target and draft rows, or the path of a dump alone")
            return None
        if isinstance(self.draft, (str, os.PathLike)) and len(given) == 1:
            one, other = (f"np.load({str(path)!r})" for path in (given[0], self.draft))
            raise InputError(
                "target and draft are two paths, and a dump is one file with both; hand over the rows, as in "
                f"rv.verify({one}, {other}, rule=...), or save them as target_logits and draft_logits"
            )
        if self.draft is not None or not isinstance(self.proposal, (Sampling, type(None))):
            raise InputError("a dump holds its draft and proposal: give it alone")
        opened = [one if isinstance(one, FlatDump) else open_dump(one) for one in given]
        names = [os.path.realpath(dump.path) for dump in opened]
        if twice := [dump.path for i, dump in enumerate(opened) if names[i] in names[:i]]:
            raise InputError(f"{twice[0]}: given twice; its positions would count twice")
        return opened

    def reading(self) -> Reading:
        """How rows of dumps become pairs."""
        start, stop = self.span
        drawn = self.proposal if isinstance(self.proposal, Sampling) else None
        return Reading(
            self.samplings, proposal_sampling=lambda sampling: drawn, kind=self.input, start=start, stop=stop
        )

    def pairs(self) -> Iterator[PairBatch]:
        """The pairs, batch by batch."""
        dumps = self.dumps()
        if dumps is None:
            yield from self.array_pairs()
            return
        for dump in dumps:
            yield from pairs_of(dump, self.reading())

    def kind(self) -> str:
        """What the arrays are; raises as `array_pairs`."""
        return self.input or _kind(self._rows())

    def array_pairs(self) -> Iterator[PairBatch]:
        """The pairs of arrays, batch by batch and sampling by sampling; arrays stay where they live.

        Raises
        ------
        InputError
            Arrays that are no rows of logits or laws, or of which it is not certain what they are; a sampling
            of probabilities, which are used as they are.
        """
        rows = self._rows()
        kind = self.input or _kind(rows)
        if kind == "probabilities" and (self.samplings or isinstance(self.proposal, Sampling)):
            raise InputError("sampling needs logits: probabilities are used as they are; leave it out")
        if self.samplings:
            refuse_applied([self._as_dump(rows)], self.input, self.samplings, ({},))
        if kind == "log-probabilities":
            rows = {name: logits_of(kind, to_numpy(row), name, 0) for name, row in rows.items()}
        elif kind == "probabilities":
            rows = self._reshaped(inputs.laws(dimensions=None, **self._given()))
        start, stop = self._range(rows["target"].shape[0])
        size = positions_at_once(rows["target"].shape[-1])
        for first in range(start, stop, size):
            last = min(first + size, stop)
            part = {name: row[first:last, :] for name, row in rows.items()}
            for sampling in self.samplings or (Sampling(),):
                yield PairBatch(self._pair(part, kind, sampling), np.arange(first, last), sampling)

    def notes(self) -> list[str]:
        """How arrays are read, where that is not obvious."""
        note = turned(tuple(inputs.arrays(target=self.target)["target"].shape))
        return [] if note is None else [note]

    def _pair(self, rows: dict[str, Array], kind: str, sampling: Sampling) -> Pair:
        if kind == "probabilities":
            return Pair(rows["target"], rows["draft"], rows.get("proposal"))
        drawn = self.proposal if isinstance(self.proposal, Sampling) else None
        return pair_from_logits(
            rows["target"], rows["draft"], sampling=sampling, dtype="float64",
            proposal=rows.get("proposal"), proposal_sampling=drawn,
        )  # fmt: skip

    @staticmethod
    def _as_dump(rows: dict[str, Array]) -> FlatDump:
        return FlatDump("the rows", to_numpy(rows["target"]), to_numpy(rows["draft"]))

    def _given(self) -> dict[str, Any]:
        given = {"target": self.target, "draft": self.draft}
        drawn = self.proposal is not None and not isinstance(self.proposal, Sampling)
        return {**given, "proposal": self.proposal} if drawn else given

    def _rows(self) -> dict[str, Array]:
        rows = inputs.arrays(**self._given())
        shape = rows["target"].shape
        for name, row in rows.items():
            if row.shape != shape:
                raise InputError(f"target has shape {shape} but {name} has {row.shape}; they must match")
        if len(shape) == 0 or shape[-1] == 0:
            raise InputError(f"target must be rows (..., V) with at least one token, got shape {shape}")
        return self._reshaped(rows)

    @staticmethod
    def _reshaped(rows: dict[str, Array]) -> dict[str, Array]:
        xp, vocab = array_namespace(rows["target"]), rows["target"].shape[-1]
        return {name: xp.reshape(row, (-1, vocab)) for name, row in rows.items()}

    def _range(self, count: int) -> tuple[int, int]:
        start, stop = self.span
        start, stop = start or 0, count if stop is None else stop
        if not 0 <= start < stop <= count:
            raise InputError(
                f"positions {start}:{stop} are outside the arrays, which have positions 0:{count}; give a "
                "non-empty range inside it"
            )
        return start, stop


def _are_paths(given: Any) -> bool:
    kinds = (str, os.PathLike, FlatDump)
    return isinstance(given, (list, tuple)) and bool(given) and all(isinstance(one, kinds) for one in given)


def _kind(rows: dict[str, Array]) -> str:
    """What rows are: laws are not negative and sum to 1; logits hardly ever do, in any row.

    Raises
    ------
    InputError
        NaN, or rows of which either could be meant.
    """
    xp = array_namespace(rows["target"])
    for name, row in rows.items():
        if bool(xp.any(xp.isnan(row))):
            raise InputError(
                f"{name} has NaN; give finite numbers, or -inf for the logit of an impossible token"
            )
    laws = {name: _like_laws(row) for name, row in rows.items()}
    if all(bool(xp.all(like)) for like in laws.values()):
        return "probabilities"
    asked = "logits or probabilities? Say input='logits' or input='probabilities'"
    for name, like in laws.items():
        if bool(xp.any(like)):
            other = next(n for n, there in laws.items() if not bool(xp.all(there)))
            row = int(np.argmin(to_numpy(laws[other])))
            raise InputError(
                f"row {row} of {other} is no law, and there are rows of {name} that are: {asked}"
            )
    if all(bool(xp.all(row >= 0)) for row in rows.values()):
        first = float(xp.sum(rows["target"][0, :]))
        raise InputError(f"no value is negative, and row 0 of target sums to {first:.6g}, not 1: {asked}")
    return "logits"


def _like_laws(rows: Array) -> Array:
    """Which rows look like laws, up to rounding."""
    xp = array_namespace(rows)
    lowest, total = xp.min(rows, axis=-1), xp.sum(rows, axis=-1)
    return (lowest >= -_NEAR_ZERO) & (xp.abs(total - 1.0) <= _NEAR_ONE)
