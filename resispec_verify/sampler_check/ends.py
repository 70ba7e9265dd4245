"""Uniforms at their ends: whatever comes out must be possible, and a fault is weighed by how seldom it is.

A uniform is 0, or the largest number below 1, once in ``2**53`` draws (float64) or ``2**24`` (float32). A
generator that gives them often (`EndsGenerator`) shows what a sampler does there. It is looked at what comes
out, not how often: a token of probability 0, or an exception. Each end, and each type of uniform, is tried by
itself, and then numbers ever farther from the end, so that it is known how likely the fault is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from resispec_verify.sampler_check.calls import Caller, SamplerError, SamplerHangs
from resispec_verify.sampler_check.generators import DIGITS, DrawLog, EndsGenerator
from resispec_verify.sampler_check.outcome import interval_of
from resispec_verify.sampler_check.probes import Finding, Probe, seed_of

__all__ = ["EndFault", "EndsTest"]

ENDS = ("lowest", "highest", "both")
# Rows of the calls at each end. Few rows: a sampler that draws a row at a time then meets several of them.
ROWS = (8, 32, 4, 32, 32, 1, 32, 32)
# How far from the end, in powers of two, a fault is looked for: where a float64 rounds to 1 in float32; the
# last float32 below 1; where it rounds to 1 in 16 bits; and where no end is near.
DISTANCES = {"float64": (26, 24, 13, 6), "float32": (13, 6), "float16": (6,), "bfloat16": (6,)}
FAR = 6
# A float64 above 1 - 2**-25 rounds to 1 in float32: the least probability that counts as float32's.
_FLOAT32 = -25
_SMALL = 256  # entries of the arguments that are told
_SMALL_LAW = 32


@dataclass
class EndFault:
    """A fault at an end of the uniforms.

    Attributes
    ----------
    end : {"lowest", "highest", "both"}
        "both": it takes one uniform at each.
    dtype : str
        Of the uniforms; several, where it takes one of each.
    distance : int or None
        The fault is there up to ``2**-distance`` from the end; None: at the end alone.
    log2_probability : int
        Of a uniform being there.
    input : str
    rows, draws, impossible : int
        Rows of the call; rows drawn with uniforms there, and how many had the fault.
    token : int or None
        What was emitted although its target probability is 0; None: the sampler failed.
    what : str
        The fault, in words.
    numbers : list of (method, dtype, values)
        What the sampler drew in that call, from the first on.
    arguments : list or None
        What it was called with besides the generator, where that is small.
    laws : dict
        ``target`` and ``draft``, where the input has them and they are small.
    """

    end: str
    dtype: str
    distance: int | None
    log2_probability: int
    input: str
    rows: int
    draws: int
    impossible: int
    token: int | None
    what: str
    numbers: list[tuple[str, str, list[float]]]
    arguments: list[Any] | None
    laws: dict[str, list[float]]

    @property
    def often(self) -> str:
        """How often a uniform is there."""
        return f"once in 2^{-self.log2_probability} draws at {self.dtype}"

    @property
    def rounds(self) -> bool:
        """Whether it is there where a float64 rounds to 1 in float32, and not at the last float32 below."""
        return self.end == "highest" and self.dtype == "float64" and self.distance == 26

    @property
    def reason(self) -> str:
        """One line."""
        if self.rounds:
            return (
                f"{self.what}, only when a uniform rounds to 1.0 in float32 ({self.often}): draw it by "
                "rng.random(dtype=numpy.float32), which is below 1, or serve it by "
                "resispec_verify.testing.served_from"
            )
        if self.end == "both":
            where = f"some uniforms are exactly 0 and others {_highest(self.dtype)} ({self.often})"
        elif self.distance is not None:
            near = f"2^-{self.distance}" if self.end == "lowest" else f"1 - 2^-{self.distance}"
            where = f"a uniform is as near to its end as {near} ({self.often})"
        else:
            exactly = "0" if self.end == "lowest" else _highest(self.dtype)
            where = f"a uniform is exactly {exactly} ({self.often})"
        return f"{self.what}, only when {where}"

    def fails(self, which: str) -> bool:
        """Whether it fails a run; ``which`` is `CheckSettings.fail_ends`."""
        return which == "all" or (which == "float32" and self.log2_probability >= _FLOAT32)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        digits = DIGITS.get(self.dtype)
        uniform = {"lowest": 0.0, "highest": 1.0 - 2.0**-digits if digits else None}.get(self.end)
        found = asdict(self) | {"uniform": uniform, "probability": 2.0**self.log2_probability}
        return found | {"often": self.often, "reason": self.reason}

    def witness(self, seed: int) -> dict[str, Any]:
        """As of other faults, for `CheckResult.witness`."""
        share = self.impossible / self.draws
        seen = [] if self.token is None else [{"what": self.what, "target": 0.0, "seen": share}]
        return {
            "kind": "boundary", "input": self.input, "rows": self.rows, "draws": self.draws, "seed": seed,
            # Draws with uniforms that are not uniform have no frequencies to speak of.
            "tv_seen": None, **interval_of(None, 0.0), "dependence": None, "differences": seen,
            "never_emitted": [], "numbers": self.numbers, **self.laws,
        }  # fmt: skip


class EndsTest:
    """The sampler at the ends of its uniforms, on all narrow inputs.

    Parameters
    ----------
    caller : Caller
    probes : sequence of Probe
        Of the inputs; one that was not measured yet, or on which the sampler failed, is left out. A source
        has a ``law`` and ``draw(caller, rng, rows, theirs)``.
    seed : int
    seconds : float
        What it may take.

    Attributes
    ----------
    faults : list of EndFault
    errors : list of (str, str)
        What the sampler raised although no uniform was at an end, and on which input.
    cut : list of str
        Inputs on which there was no time for all.
    draws : int
    """

    def __init__(self, caller: Caller, probes: Sequence[Probe], seed: int, seconds: float) -> None:
        self.caller, self.seed, self.seconds = caller, seed, seconds
        self.inputs = [probe.source.name for probe in probes if probe.error is None]
        self.probes = [probe for probe in probes if probe.error is None and probe.pace.known]
        self.faults: list[EndFault] = []
        self.errors: list[tuple[str, str]] = []
        self.not_reached, self.cut = list(self.inputs), list(self.inputs)
        self.draws = 0
        self.used: set[tuple[str, str]] = set()
        self.not_served: list[str] = []
        self.seeds = False
        self.plain_fault = False
        self._weighed: set[tuple[str, str, str | None]] = set()

    def run(self) -> tuple[Probe, Finding] | None:
        """Try the ends in rounds, a call of each input at each end; a token that needs no end is returned."""
        until = time.monotonic() + self.seconds
        left, mixed = list(self.probes), []
        for number, rows in enumerate(ROWS):
            for probe in list(left):
                source, ahead = probe.source, len(ENDS) * probe.pace.seconds(rows)
                if time.monotonic() + ahead > until or self.caller.late:
                    left.remove(probe)
                    continue
                calls = self._calls(source, [_Call(end, rows, number) for end in ENDS])
                mixed += [(source, one) for one in calls if one.what is not None and one.end == "both"]
                for one in calls:
                    wrong = one.what is not None and one.end != "both"
                    if wrong and (found := self._weigh(source, one)) is not None:
                        return found
                if source.name in self.not_reached:
                    self.not_reached.remove(source.name)
                failed = any(name == source.name for _, name in self.errors)
                drawn = any(one.log.used for one in calls)
                if number + 1 == len(ROWS) or failed or not drawn:  # nothing to put at an end, or no more
                    self.cut.remove(source.name)
                    left.remove(probe)
        return self._of_both(mixed)

    def _of_both(self, mixed: list[tuple[Any, _Call]]) -> tuple[Probe, Finding] | None:
        """What was wrong where both ends came: of one of them after all, or of both together."""
        for source, both in [] if self.faults else mixed:
            sides = [_Call(end, both.rows, 100 + i) for end in ENDS[:2] for i in range(len(ROWS))]
            for one in [*self._calls(source, sides, stop=True), both]:
                wrong = one.what is not None and not self.faults
                if wrong and (found := self._weigh(source, one)) is not None:
                    return found
        return None

    def _weigh(self, source: Any, first: _Call) -> tuple[Probe, Finding] | None:
        """How far from which end a fault reaches, for each type of uniform, or for all of them at once."""
        end, dtypes = first.end, first.log.dtypes
        if not dtypes:
            return self._ordinary(source, first)
        for dtype in [*dtypes, None] if len(dtypes) > 1 else dtypes:
            key = (source.name, end, dtype)
            # All types at once are tried where no one of them is enough.
            known = any(fault.end == end and dtype in (fault.dtype, None) for fault in self.faults)
            if known or key in self._weighed:
                continue
            self._weighed.add(key)
            tried = [first, *(_Call(end, rows, len(ROWS) + i) for i, rows in enumerate(ROWS))]
            seen = self._calls(source, [one.again(dtype) for one in tried], stop=True)
            if seen[-1].what is None:
                continue
            distance = None
            for farther in DISTANCES[dtype] if dtype else (FAR,):
                # The same calls, with other numbers in place of the ends.
                near = self._calls(source, [one.again(dtype, farther) for one in seen], stop=True)
                if near[-1].what is None:
                    break
                distance = farther
                if farther == FAR:
                    return self._ordinary(source, near[-1])
            self.faults.append(self._fault(source, (end, dtype, distance), seen, dtypes))
        return None

    def _ordinary(self, source: Any, one: _Call) -> tuple[Probe, Finding] | None:
        """What needs no end is an ordinary fault, and certain: these uniforms are possible."""
        if one.token is None:
            if (one.what, source.name) not in self.errors:
                self.errors.append((one.what or "", source.name))
            return None
        probe = Probe(source, 0, 1.0, self.seed)
        probe.fit.update(one.index)
        self.plain_fault = True
        return probe, Finding("support", one.what or "", one.token)

    def _fault(
        self, source: Any, where: tuple[str, str | None, int | None], calls: list[_Call], dtypes: list[str]
    ) -> EndFault:
        """The fault, seen in a call of one row if there is one."""
        end, dtype, distance = where
        single = self._calls(source, [_Call(end, 1, -1 - i, dtype) for i in range(64)], stop=True)[-1]
        shown = calls[-1] if single.what is None else single
        if dtype is None:  # it takes one of each type
            log2 = -sum(DIGITS[each] for each in dtypes)
        elif (end, dtype, distance) == ("highest", "float64", 26):
            log2 = _FLOAT32
        else:
            log2 = -(distance or DIGITS[dtype]) * (2 if end == "both" else 1)
        pair, laws = getattr(source, "pair", None), {}
        if pair is not None and len(pair.target) <= _SMALL_LAW:
            laws = {"target": pair.target.tolist(), "draft": pair.draft.tolist()}
        return EndFault(
            end, dtype or " and ".join(dtypes), distance, log2, source.name, shown.rows,
            sum(call.rows for call in calls), sum(call.impossible for call in calls), shown.token,
            shown.what or "", shown.log.numbers, shown.arguments, laws,
        )  # fmt: skip

    def _calls(self, source: Any, calls: list[_Call], *, stop: bool = False) -> list[_Call]:
        """Make calls, all of them or up to the first that has a fault; those that were made."""
        caller, made = self.caller, []
        plain = caller.sampler

        def watched(*arguments: Any) -> Any:
            made[-1].arguments = _told(arguments)
            return plain(*arguments)

        def job() -> None:
            for one in calls:
                made.append(one)
                self._call(source, one)
                if stop and one.what is not None:
                    return

        caller.sampler = watched
        try:
            caller.run(job)
        except SamplerHangs as error:
            raise SamplerHangs(f"{error} (on {source.name}, uniforms at their ends)") from None
        finally:
            caller.sampler = plain
        return made

    def _call(self, source: Any, one: _Call) -> None:
        # The same for all types and distances, so that nothing changes but the ends.
        seed = seed_of(self.seed, "ends", source.name, one.end, one.rows, one.number)
        ours = np.random.default_rng(seed.spawn(1)[0])
        theirs = EndsGenerator(seed, one.end, dtype=one.dtype, distance=one.distance)
        one.log = theirs.log
        try:
            one.index = source.draw(self.caller, ours, one.rows, theirs).index
        except SamplerError as error:  # not that a call hangs: that ends the run
            one.what = str(error)
        self._judge(source, one, theirs)

    def _judge(self, source: Any, one: _Call, theirs: EndsGenerator) -> None:
        if theirs.took_words:
            one.log.used.add(("bit_generator", "float64"))
        self.draws += one.rows
        self.used |= one.log.used
        self.seeds |= one.log.seeds
        self.not_served += [name for name in one.log.not_served if name not in self.not_served]
        impossible = source.law[one.index] == 0
        one.impossible = one.rows if one.what is not None else int(impossible.sum())
        if one.what is None and impossible.any():
            one.token = int(one.index[impossible][0])
            one.what = f"{source.describe(one.token)} is emitted although its target probability is 0"

    def failing(self, which: str) -> EndFault | None:
        """The likeliest of the faults that fail a run; ``which`` is `CheckSettings.fail_ends`."""
        found = [fault for fault in self.faults if fault.fails(which)]
        return max(found, key=lambda fault: fault.log2_probability, default=None)

    def to_dict(self, which: str) -> dict[str, Any]:
        """The verdict, JSON-ready; ``which`` is `CheckSettings.fail_ends`."""
        faults = sorted(self.faults, key=lambda fault: -fault.log2_probability)
        tested = self.used and not self.plain_fault
        dtypes = sorted({dtype for _, dtype in self.used}, key=lambda dtype: -DIGITS[dtype])
        return {
            "verdict": "fault" if faults else "no-fault" if tested else "not-tested",
            "reason": "; ".join(fault.reason for fault in faults) or self._reason(),
            "fails": any(fault.fails(which) for fault in faults),
            "dtypes": dtypes,
            "methods": sorted({method for method, _ in self.used}),
            "takes_seeds": self.seeds,
            "not_served": self.not_served,
            "inputs": [name for name in self.inputs if name not in self.not_reached],
            "not_reached": self.not_reached,
            "draws": self.draws,
            "faults": [fault.to_dict() | {"fails": fault.fails(which)} for fault in faults],
        }

    def _reason(self) -> str | None:
        """Why the ends were not tested, or not all; and the remedy."""
        if self.plain_fault:
            return "a fault that needs no end came first"
        if not self.inputs:
            return "every input has a wide vocabulary, or the sampler fails on it"
        if not self.draws:
            return "there was no time for it"
        serve = "resispec_verify.testing.served_from(rng) around the call serves them"
        if not self.used:
            why = f"the sampler {'takes only a seed' if self.seeds else 'draws no uniforms'} from rng"
            missed = f" (not served: {', '.join(self.not_served)})" if self.not_served else ""
            return f"{why}{missed}; {serve}"
        if self.not_served:
            return f"not those of {', '.join(self.not_served)}, which are not served"
        return f"not those that it draws from a seed; {serve}" if self.seeds else None


@dataclass
class _Call:
    """A call with uniforms at their ends, and what was wrong with it."""

    end: str
    rows: int
    number: int
    dtype: str | None = None
    distance: int | None = None
    log: DrawLog = field(default_factory=DrawLog)
    index: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    what: str | None = None
    token: int | None = None
    impossible: int = 0
    arguments: list[Any] | None = None

    def again(self, dtype: str | None, distance: int | None = None) -> _Call:
        """The same call, at a distance from the ends, or for one type of uniform."""
        return _Call(self.end, self.rows, self.number, dtype, distance)


def _told(arguments: tuple[Any, ...]) -> list[Any] | None:
    """Arrays as lists, if they are few numbers; generators are left out."""
    told = [argument for argument in arguments if not isinstance(argument, np.random.Generator)]
    with contextlib.suppress(Exception):  # models, tensors of a device
        arrays = [np.array(argument) for argument in told]
        numbers = all(array.dtype.kind in "biuf" for array in arrays)
        if numbers and sum(array.size for array in arrays) <= _SMALL:
            return [array.tolist() for array in arrays]
    return None


def _highest(dtype: str) -> str:
    return f"1 - 2^-{DIGITS[dtype]}" if dtype in DIGITS else "the largest below 1"
