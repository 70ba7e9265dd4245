"""Which stream of draws is next.

The choice depends on what was drawn, and on how long it took, before; each test has its fixed share of
alpha whatever is chosen. Where all draws that are wanted fit into the time that is left, it is the same in
every run: whatever has cost least so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from resispec_verify.evidence.statistical import detectable
from resispec_verify.sampler_check.calls import Caller, SamplerError, SamplerHangs
from resispec_verify.sampler_check.pace import LEAST, SHARE
from resispec_verify.sampler_check.probes import Finding, Probe

__all__ = ["gain", "next_probe", "reach", "rounds"]

# The law on small batches is that of an input, tested again: a gain there counts so much.
SMALL = 1 / 4


def rounds(caller: Caller, probes: Sequence[Probe], power: float) -> tuple[Probe, Finding] | None:
    """Step one probe after the other, until one rejects, all are spent, or the time is over."""
    while not caller.late and (left := [probe for probe in probes if not probe.spent]):
        probe = next_probe(left, caller.until - time.monotonic(), power)
        if (finding := _stepped(caller, probe)) is not None:
            return probe, finding
    return None


def reach(caller: Caller, probes: Sequence[Probe], power: float) -> tuple[Probe, Finding] | None:
    """Step each probe once that can find anything in the time that is left."""
    for probe in probes:
        if caller.late:
            break
        if not probe.pace.known:
            _guarded(probe, lambda probe=probe: probe.measure(caller))
        if probe.spent or gain(probe, caller.until - time.monotonic(), power) <= 0.0:
            continue
        if (finding := _stepped(caller, probe)) is not None:
            return probe, finding
    return None


def _stepped(caller: Caller, probe: Probe) -> Finding | None:
    _guarded(probe, lambda: probe.step(caller))
    return None if probe.error is not None else probe.finding()


def _guarded(probe: Probe, work: Callable[[], None]) -> None:
    """What the sampler raises ends this probe and no other; where it hangs, the run ends."""
    try:
        work()
    except SamplerHangs as error:
        raise SamplerHangs(f"{error} (on {probe.name})") from None
    except SamplerError as error:
        probe.error = str(error)


def next_probe(left: Sequence[Probe], seconds: float, power: float) -> Probe:
    """The probe whose detectable total variation falls most a second, unless there is time for all."""
    due = sum(
        one.pace.remaining(one.budget - one.fit.draws, one.rows or one.source.most_rows) for one in left
    )
    if due <= seconds:
        return min(left, key=lambda probe: probe.cost)
    return min(left, key=lambda probe: (*_rank(probe, seconds, power), probe.cost))


def _rank(probe: Probe, seconds: float, power: float) -> tuple[bool, float]:
    """What can be brought to exclude anything comes first, and inputs before the same in small batches."""
    found = gain(probe, seconds, power)
    begun = found <= 0.0 or probe.rows is not None or _found(probe, 0, power) < 1.0
    return begun, -found if probe.rows is None else -found * SMALL


def gain(probe: Probe, seconds: float, power: float) -> float:
    """How much the total variation that a probe would find falls a second, where that is most.

    It is 1 for some tens of draws and falls like their root from there: looking a single step ahead, nothing
    would ever be begun. 0 where the seconds are too few.
    """
    rows, calls = probe.planned(max(LEAST, SHARE * seconds), seconds)
    each, left = probe.pace.seconds(rows) / rows, probe.budget - probe.fit.draws
    now, best, more = _found(probe, 0, power), 0.0, min(rows * calls, left)
    while more > 0 and more * each <= seconds:
        best = max(best, (now - _found(probe, more, power)) / max(more * each, 1e-9))
        more = 0 if more == left else min(2 * more, left)
    return best


def _found(probe: Probe, more: int, power: float) -> float:
    return detectable(probe.fit, probe.alpha, power, probe.fit.draws + more).tv
