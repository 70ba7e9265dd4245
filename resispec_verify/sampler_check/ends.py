"""Uniforms at their ends: whatever comes out must be possible, and a fault is weighed by how seldom it is.

A uniform is 0, or the largest number below 1, once in ``2**53`` draws (float64) or ``2**24`` (float32). A
generator that gives them often (`EndsGenerator`) shows what a sampler does there. It is looked at what comes
out, not how often: a token of probability 0, or an exception. Each end, and each type of uniform, is tried by
itself. Of a call that has a fault, uniforms are taken back from the end as long as the fault stays, so that
it is known how many it takes together; and by bisection it is found how near the end they must be.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from resispec_verify.sampler_check.calls import Caller, SamplerError, SamplerHangs
from resispec_verify.sampler_check.end_faults import EndFault
from resispec_verify.sampler_check.generators import DIGITS, DrawLog, EndsGenerator
from resispec_verify.sampler_check.probes import Finding, Probe, seed_of

__all__ = ["EndsTest"]

ENDS = ("lowest", "highest", "both")
# Rows of the calls at each end. Few rows: a sampler that draws a row at a time then meets several of them.
ROWS = (8, 32, 4, 32, 32, 1, 32, 32)
# What comes once in 2^16 draws is ordinary: the 2^20 draws that an input gets by default meet it, and no type
# of uniform with more than 16 digits has an end there.
ORDINARY = 16
_FRESH = 31  # calls that are made besides to see how often a fault comes where uniforms are at an end
_NEAR = 7  # of these, in which numbers farther from the end are tried
_SINGLE = 64  # calls of one row in which a fault is looked for
_SMALL = 256  # entries of the arguments that are told
_SMALL_LAW = 32


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
            seen = self._calls(source, [one.like(dtype=dtype) for one in tried], stop=True)
            if seen[-1].what is None:
                continue
            single = self._calls(source, [_Call(end, 1, -1 - i, dtype) for i in range(_SINGLE)], stop=True)
            least = self._least(source, seen[-1] if single[-1].what is None else single[-1])
            # A fault that stays when no uniform is at an end is one of a sampler that draws elsewhere too.
            far = self._at(source, least, least.nearest_ordinary) if least.at_ends else least
            if far.what is not None:
                return self._ordinary(source, far)
            self.faults.append(self._fault(source, least))
        return None

    def _least(self, source: Any, call: _Call) -> _Call:
        """The same call with as few uniforms at an end as still give the fault: none can be left out."""
        kept, best = list(call.log.placed.items()), call
        size = len(kept)
        while kept and not self.caller.late:
            size, start = -(-size // 2), 0
            while start < len(kept):
                rest = kept[:start] + kept[start + size :]
                tried = self._calls(source, [call.like(at=dict(rest))])[-1]
                if tried.what is not None:
                    kept, best = rest, tried
                else:
                    start += size
            if size == 1:
                break
        return best

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

    def _at(self, source: Any, least: _Call, distance: int | None) -> _Call:
        """Of the call and some like it, the same uniforms at a distance: one with a fault, or the last."""
        calls = [least.like(distance=distance, number=number) for number in least.numbers[: 1 + _NEAR]]
        return self._calls(source, calls, stop=True)[-1]

    def _fault(self, source: Any, least: _Call) -> EndFault:
        """How far from the end the fault reaches, how likely that is, and how often the fault comes there."""
        sides, dtypes = {high for high, _ in least.at_ends}, {dtype for _, dtype in least.at_ends}
        distance = None
        if len(dtypes) == 1:
            (digits,) = (DIGITS[dtype] for dtype in dtypes)
            without, there = least.nearest_ordinary, digits
            while there - without > 1:
                middle = (there + without) // 2
                if self._at(source, least, middle).what is None:
                    without = middle
                else:
                    there = middle
            distance = there if there < digits else None
        shown = self._at(source, least, distance)
        shown = least if shown.what is None else shown
        again = self._calls(source, [shown.like(number=2000 + i) for i in range(_FRESH)])
        pair, laws = getattr(source, "pair", None), {}
        if pair is not None and len(pair.target) <= _SMALL_LAW:
            laws = {"target": pair.target.tolist(), "draft": pair.draft.tolist()}
        calls = [shown, *again]
        return EndFault(
            end="both" if len(sides) > 1 else ENDS[sides.pop()],
            dtype=" and ".join(sorted(dtypes, key=lambda dtype: -DIGITS[dtype])),
            distance=distance,
            uniforms=len(least.at_ends),
            log2_probability=-sum(distance or DIGITS[dtype] for _, dtype in least.at_ends),
            input=source.name,
            rows=shown.rows,
            calls=len(calls),
            failed=sum(call.what is not None for call in calls),
            draws=sum(call.rows for call in calls),
            impossible=sum(call.impossible for call in calls),
            token=shown.token,
            what=shown.what or "",
            numbers=shown.log.numbers,
            arguments=shown.arguments,
            laws=laws,
        )

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
        # The same for all types, distances and places, so that nothing changes but the ends.
        seed = seed_of(self.seed, "ends", source.name, one.end, one.rows, one.number)
        ours = np.random.default_rng(seed.spawn(1)[0])
        theirs = EndsGenerator(seed, one.end, dtype=one.dtype, distance=one.distance, at=one.at)
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

    def retract(self, found: Finding | None, errors: Sequence[str | None]) -> None:
        """Take back what came without an end as well, later in the run: it is not to be blamed on one."""
        support = found is not None and found.kind == "support"
        self.faults = [
            fault
            for fault in self.faults
            if not (support if fault.token is not None else fault.what in errors)
        ]
        self.plain_fault |= support

    def failing(self, which: str) -> EndFault | None:
        """The likeliest of the faults that fail a run; ``which`` is `CheckSettings.fail_ends`."""
        found = [fault for fault in self.faults if fault.fails(which)]
        return max(found, key=lambda fault: fault.log2_probability, default=None)

    def to_dict(self, which: str, before: str | None = None) -> dict[str, Any]:
        """The verdict, JSON-ready; ``which`` is `CheckSettings.fail_ends`, ``before`` how the run ended where
        it did so before the ends.
        """
        faults = sorted(self.faults, key=lambda fault: -fault.log2_probability)
        tested = self.used and not self.plain_fault and not self.errors
        dtypes = sorted({dtype for _, dtype in self.used}, key=lambda dtype: -DIGITS[dtype])
        return {
            "verdict": "fault" if faults else "no-fault" if tested else "not-tested",
            "reason": "; ".join(fault.reason for fault in faults) or before or self._reason(),
            "fails": any(fault.fails(which) for fault in faults),
            "dtypes": dtypes,
            "methods": sorted({method for method, _ in self.used}),
            "takes_seeds": self.seeds,
            "not_served": self.not_served,
            "inputs": [name for name in self.inputs if name not in self.not_reached],
            "not_reached": self.not_reached,
            "cut": self.cut,
            "draws": self.draws,
            "faults": [fault.to_dict() | {"fails": fault.fails(which)} for fault in faults],
        }

    def _reason(self) -> str | None:
        """Why the ends were not tested, or not all; and the remedy."""
        if self.plain_fault:
            return "a fault that needs no end came"
        if self.errors:
            return f"the sampler {self.errors[0][0]} where no uniform was at an end"
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
    at: dict[tuple[int, int], tuple[bool, str]] | None = None
    log: DrawLog = field(default_factory=DrawLog, init=False)
    index: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    what: str | None = field(default=None, init=False)
    token: int | None = field(default=None, init=False)
    impossible: int = field(default=0, init=False)
    arguments: list[Any] | None = field(default=None, init=False)

    def like(self, **changed: Any) -> _Call:
        """The same call, not made yet, at another distance, with other uniforms at the ends, ..."""
        return replace(self, **changed)

    @property
    def at_ends(self) -> list[tuple[bool, str]]:
        """Of each uniform at an end, whether it is the high one, and the type."""
        return list((self.log.placed if self.at is None else self.at).values())

    @property
    def numbers(self) -> list[int]:
        """Of this call and of others that are like it but for their ordinary uniforms."""
        return [self.number, *range(1000, 1000 + _NEAR)]

    @property
    def nearest_ordinary(self) -> int:
        """The distance at which so many uniforms together are an ordinary event."""
        least = min((DIGITS[dtype] for _, dtype in self.at_ends), default=1)
        return max(1, min(ORDINARY // max(1, len(self.at_ends)), least - 1))


def _told(arguments: tuple[Any, ...]) -> list[Any] | None:
    """Arrays as lists, if they are few numbers; generators are left out."""
    told = [argument for argument in arguments if not isinstance(argument, np.random.Generator)]
    with contextlib.suppress(Exception):  # models, tensors of a device
        arrays = [np.array(argument) for argument in told]
        numbers = all(array.dtype.kind in "biuf" for array in arrays)
        if numbers and sum(array.size for array in arrays) <= _SMALL:
            return [array.tolist() for array in arrays]
    return None
