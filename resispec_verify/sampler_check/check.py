"""Is somebody's sampler lossless? Draws from it, tested against the target with a stated error rate.

A run is a family of tests whose number is fixed in advance, each anytime-valid at an even share of ``alpha``:
by the union bound a lossless sampler is rejected with probability at most ``alpha`` in the whole run, however
early it stops. That holds over the pairs that the search proposes as well: they are at most `SEARCHED`, each
is tested on fresh draws, and given the pair each of its tests errs with at most its share. The probability is
over seeds; a seed gives the same draws each time. Not being rejected proves nothing; the result says which
total variation would have been found.

Two findings have no error rate: a token of probability 0 never comes from a lossless sampler, and at the ends
of the uniforms it is looked at what comes out, not how often.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.evidence.statistical import detectable
from resispec_verify.sampler_check.battery import Chain, Input, Models, Tree
from resispec_verify.sampler_check.calls import Caller, SamplerError, SamplerHangs
from resispec_verify.sampler_check.ends import EndsTest
from resispec_verify.sampler_check.outcome import ERROR, row_of, witness_of
from resispec_verify.sampler_check.pace import LEAST, Pace
from resispec_verify.sampler_check.probes import (
    MORE_PAIRINGS,
    Finding,
    Probe,
    evenness,
    law_reason,
    seed_of,
)
from resispec_verify.sampler_check.schedule import reach, rounds
from resispec_verify.sampler_check.search import LEAST_DRAWS, MOST_DRAWS, PAIRS, search_pairs
from resispec_verify.sampler_check.settings import CheckResult, CheckSettings
from resispec_verify.sampler_check.sources.styles import STYLES, arguments_of, handing_of, inputs_of

__all__ = ["CheckResult", "CheckSettings", "check_sampler"]

# Draws and calls at each of them: what is looked for, shared randomness, shows within a few hundred.
SMALL_BATCH_DRAWS = 2048
SMALL_BATCH_CALLS = 512
# Pairs of the search that are tested.
SEARCHED = 3
# Vocabulary up to which uniforms at their ends are tried.
NARROW = 64
# Of the time that is left once the inputs were reached, what uniforms at their ends may take.
ENDS = 1 / 8
# Level at which counts of calls vary so much, or so little, that a wrong law may as well be dependence.
UNEVEN = 0.01


def check_sampler(
    sampler: Callable[..., Any],
    settings: CheckSettings | None = None,
    *,
    inputs: Sequence[Input | Chain | Tree | Models] | None = None,
) -> CheckResult:
    """Draw from a sampler and test what it emits.

    Parameters
    ----------
    sampler : callable
        Called by style; rows are independent trials, probabilities are float64 arrays unless ``give``,
        ``dtype`` and ``arrays`` say otherwise, ``rng`` is a `numpy.random.Generator`.

        - "tokens": ``(target, draft, rng)``, ``(rows, V)`` each; it draws its own candidates.
        - "candidates": ``(target, draft, candidates, rng)``, ``candidates (rows, n)``.
        - "uniforms": the same with ``uniforms (rows, n + 1)`` for ``rng``: one for the test of each
          candidate, and the last for the draw after them. All three return the emitted tokens ``(rows,)``, or
          those and the index of the accepted candidate, n for none.
        - "block": ``(targets, drafts, path, rng)`` with ``targets (rows, L + 1, V)``, ``drafts (rows, L, V)``
          and the drafted ``path (rows, L)``; it returns the emitted tokens ``(rows, L + 1)``, padded with -1
          after the accepted prefix and the token that follows it. With ``flat``,
          ``(targets, drafts, path, lengths, rng)``: rows one after the other, ``lengths (rows + 1,)`` the
          cumulative lengths of the paths, 0 first; as many columns as the longest path of the call, and one.
        - "tree": ``(targets, drafts, tokens, parents, rng)`` with ``tokens (rows, N)``, ``parents (N,)``, -1
          for children of the root, and ``targets``, ``drafts (rows, N + 1, V)``: row 0 after the prompt, row
          i + 1 after node i. It returns ``(rows, depth + 1)``, padded alike. Both this and "block" may return
          a tuple, with how many candidates were accepted ``(rows,)``.
        - "text": ``(target, draft, prompt, length, rng)`` with models that are called with a text of integers
          ``(..., T)`` and give the laws ``(..., T, V)`` of the token after each, and ``prompt (rows, k)``. It
          returns ``length`` new tokens a row; more are cut.
    settings : CheckSettings, optional
    inputs : sequence of Input, Chain, Tree or Models, optional
        By style. Default: its fixed battery.

    Returns
    -------
    CheckResult

    Raises
    ------
    InputError
        Settings that do not fit the inputs. What the sampler does wrong is in the result.
    """
    settings = settings or CheckSettings()
    return _Run(sampler, settings, inputs).result()


def _called_as(settings: CheckSettings) -> str:
    """How a sampler is called, for one that is made for another interface."""
    return (
        f"{settings.style}: sampler({', '.join(arguments_of(settings))}); for another interface give --style "
        "(style= in Python)"
    )


class _Run:
    """One run: its probes, in the order in which a fault is cheapest to see."""

    def __init__(self, sampler: Callable[..., Any], settings: CheckSettings, inputs: Any) -> None:
        self.settings = settings
        self.caller = Caller(sampler, settings.call_seconds, _called_as(settings))
        self.style, self.handing = STYLES[settings.style], handing_of(settings)
        self.searching = settings.search and self.style.searched
        self.inputs: list[Any] = list(inputs_of(settings.style) if inputs is None else inputs)
        if not self.inputs:
            raise InputError("no inputs to check the sampler on; give at least one pair")
        for one in self.inputs:
            if not isinstance(one, self.style.takes):
                raise InputError(f"input {one.name!r} does not fit the style {settings.style!r}")
        self.sources = self._sources()
        self.small, self.probes = self._probes()
        of_a_pair = 2 + (settings.rule is not None)
        self.tests = sum(probe.tests for probe in self.small + self.probes)
        self.tests += SEARCHED * of_a_pair * self.searching
        self.alpha = settings.alpha / self.tests
        for probe in self.small + self.probes:
            probe.alpha = self.alpha
        self.not_reached: list[str] = []
        self.errors: list[tuple[str, str]] = []  # of what is no probe, and where
        self.extra = 0  # draws outside of the probes
        self.ends: EndsTest | None = None

    def _sources(self) -> list[Any]:
        found = [source for one in self.inputs for source in self._of(one)]
        for source in found:
            if (reason := getattr(source, "uncertain", None)) is not None:
                self.caller.note(reason)
        return found

    def _of(self, one: Any) -> list[Any]:
        return self.style.sources(one, self.settings, self.handing)

    def _probes(self) -> tuple[list[Probe], list[Probe]]:
        """Streams of draws in small batches, on the first input; and in large ones, on all."""
        chosen, seed = self.settings, self.settings.seed
        paces = [Pace()]
        paces += [Pace(paces[0]) for _ in self.sources]  # of the other inputs, and of two of them mixed
        large = [
            Probe(source, max(1, round(chosen.draws * one.share)), 1.0, seed, pace=pace)
            for source, one, pace in zip(self.sources, self._repeated(), paces, strict=False)
        ]
        most = min(SMALL_BATCH_DRAWS, chosen.draws)
        small = [
            Probe(self.sources[0], min(most, SMALL_BATCH_CALLS * rows), 1.0, seed, rows, pace=paces[0])
            for rows in chosen.batches
        ]
        if (mixed := self._mixed()) is not None:
            large.append(Probe(mixed, max(1, chosen.draws // 8), 1.0, seed, pace=paces[-1]))
        return small, large

    def _repeated(self) -> list[Any]:
        times = len(self.sources) // len(self.inputs)
        return [one for one in self.inputs for _ in range(times)]

    def _mixed(self) -> Any:
        """Rows of several inputs; not for samplers that see one pair a call."""
        if self.style.mixed is None or getattr(self.caller.sampler, "one_pair_a_call", False):
            return None
        return self.style.mixed(self.sources)

    def result(self) -> CheckResult:
        """Do it all."""
        chosen, started = self.settings, time.monotonic()
        self.caller.until = started + chosen.seconds
        found, hung = None, []
        try:
            found = self._found()
            if found is not None:
                found = found[0], self._explained(*found)
        except SamplerHangs as failure:
            hung = [str(failure)]
        if not hung and found is None:
            self.not_reached += [
                one.name for one in self.probes if one.error is None and self._bound(one) >= 1.0
            ]
        failed = hung + self._failed()
        if not failed and found is None and not any(probe.fit.draws for probe in self.probes):
            failed = [f"no input was reached in {chosen.seconds:g} s; give more seconds"]
        if self.ends is not None:
            self.ends.retract(found and found[1], [one.error for one in self.probes + self.small])
        end = self.ends.failing(chosen.fail_ends) if self.ends and not found else None
        why = found[1] if found else end
        verdict = "rejected" if why else "error" if failed else "not-rejected"
        late = "time" if self.caller.late else "draws"
        return CheckResult(
            verdict, ([why.reason] if why else []) + failed + self.caller.notes, self._draws(),
            chosen.alpha, self.alpha, self.tests, chosen.power, chosen.seed,
            detectable_tv=None if found else self._detectable(),
            witness=witness_of(*found, chosen.seed, ERROR / self.tests) if found
            else end.witness(chosen.seed) if end else None,
            inputs=[
                row_of(one, chosen.power) for one in self.small + self.probes if one.fit.draws or one.error
            ],
            not_reached=[] if found else self.not_reached,
            ends=self._ends(verdict),
            stopped=late if verdict == "not-rejected" else verdict,
            seconds=time.monotonic() - started,
        )  # fmt: skip

    def _found(self) -> tuple[Probe, Finding] | None:
        """All inputs a little, then what is special on some, then all inputs as far as time goes."""
        caller, power = self.caller, self.settings.power
        found = (
            reach(caller, self.probes, power)
            or self._boundary()
            or reach(caller, self.small, power)
            or rounds(caller, self.small + self.probes, power)
        )
        if found is None and self.searching and not all(probe.error for probe in self.probes):
            found = self._search()
        return found

    def _failed(self) -> list[str]:
        """What the sampler raised, each once, with where."""
        where: dict[str, tuple[list[str], list[int]]] = {}
        failed = [(one.error, one.source.name, one.rows) for one in self.probes + self.small]
        for error, name, rows in [*failed, *((error, name, None) for error, name in self.errors)]:
            if error is not None:
                names, batches = where.setdefault(error, ([], []))
                if rows is None:
                    names.append(name)
                else:
                    batches.append(rows)
        return [f"{error} (on {self._places(*found)})" for error, found in where.items()]

    def _places(self, names: list[str], batches: list[int]) -> str:
        """The first of some inputs and how many more; and the sizes of small batches, those of the first."""
        told = names[:1]
        if len(names) > 1:
            told = [f"{names[0]} and {len(names) - 1} more input{'s' * (len(names) > 2)}"]
        if batches:
            small = f"{self.sources[0].name} with {', '.join(map(str, batches))} rows a call"
            told.append(f"on {small}" if told else small)
        return ", and ".join(told)

    def _draws(self) -> int:
        return self.extra + sum(probe.fit.draws + probe.tried for probe in self.small + self.probes)

    def _boundary(self) -> tuple[Probe, Finding] | None:
        """Uniforms at their ends, where ordinary ones were tried before: what shows without an odd uniform is
        not to be blamed on one. For a slow sampler, a share of the time.
        """
        if not self.settings.boundary:
            return None
        narrow = [one for one in self.probes if one.source in self.sources and one.source.vocab <= NARROW]
        seconds = ENDS * (self.caller.until - time.monotonic())
        self.ends = EndsTest(self.caller, narrow, self.settings.seed, seconds)
        found = self.ends.run()
        self.extra += self.ends.draws
        self.errors += [
            (error, f"{name}, where no uniform was at an end") for error, name in self.ends.errors
        ]
        if found is None and self.ends.cut:
            self.not_reached.append(f"all uniforms at their ends on {', '.join(self.ends.cut)}")
        return found

    def _ends(self, verdict: str) -> dict[str, Any] | None:
        """What happened at the ends, or that the run ended before them; None where they were left out."""
        if not self.settings.boundary:
            return None
        if self.ends is not None:
            return self.ends.to_dict(self.settings.fail_ends)
        ended = "was rejected" if verdict == "rejected" else "ended"
        empty = EndsTest(self.caller, [], self.settings.seed, 0.0)
        return empty.to_dict(self.settings.fail_ends, f"the run {ended} before them")

    def _search(self) -> tuple[Probe, Finding] | None:
        """The worst pairs for this sampler, each tested on fresh draws."""
        chosen, caller = self.settings, self.caller
        limit = self._searched()
        if limit is None:
            self.not_reached.append("the search")
            return None
        try:
            found, drawn = search_pairs(
                caller, lambda pair: self._of(pair)[0], seed_of(chosen.seed, "search"), SEARCHED, limit=limit
            )
        except SamplerHangs:
            raise
        except SamplerError as error:
            self.errors.append((str(error), "a pair of the search"))
            return None
        self.extra += drawn
        fresh = [
            Probe(self._of(pair)[0], max(1, chosen.draws // 4), self.alpha, chosen.seed) for pair in found
        ]
        finding = rounds(caller, fresh, chosen.power)
        self.errors += [(one.error, one.name) for one in fresh if one.error is not None]
        if finding is not None:
            self.probes.append(finding[0])
            return finding
        self.extra += sum(probe.fit.draws + probe.tried for probe in fresh)
        if caller.late:
            self.not_reached.append("the end of the search")
        return None

    def _searched(self) -> int | None:
        """Draws of a pair of the search for which there is time; None where they would show nothing."""
        known = [one.pace for one in self.probes if one.pace.known and one.error is None]
        seconds = self.caller.until - time.monotonic()
        limit = min(self.settings.draws, MOST_DRAWS)
        while limit >= min(self.settings.draws, LEAST_DRAWS):
            each = known[0].seconds(limit) if known else 0.0
            if PAIRS * each <= seconds / 2 and each <= self.caller.limit / 4:
                return limit
            limit //= 2
        return None

    def _explained(self, probe: Probe, finding: Finding) -> Finding:
        """A wrong law may be dependence: rows that share randomness are counted as if they did not.

        The verdict stands; only its reason is asked for. Independent draws of a wrong law are called
        dependent with probability at most alpha. Dependence at no distance that is tried is not named, and
        the reason leaves it open where counts of fresh calls vary unlike those of independent rows.
        """
        if finding.kind != "law":
            return finding
        seconds = max(LEAST, (self.caller.until - time.monotonic()) / 8)
        rows, calls = min(max(64, probe.rows or 64), max(2, probe.source.most_rows)), 128
        while rows > 2 and calls * probe.pace.seconds(rows) > seconds:
            rows //= 2
        fresh = Probe(
            probe.source, 1, self.settings.alpha, self.settings.seed + 1, rows, pairings=MORE_PAIRINGS
        )
        drawn: list[np.ndarray] = []
        with contextlib.suppress(SamplerError):
            drawn = self.caller.some(
                lambda: fresh.timed(self.caller, fresh.rng, rows).index, calls, time.monotonic() + seconds
            )
            self.extra += rows * len(drawn)
            fresh.fit.update(np.concatenate(drawn))
            fresh.look_for_dependence(np.stack(drawn))
        if fresh.dependent:
            return fresh.independence()
        enough = len(drawn) >= calls // 4
        if enough and evenness(np.stack(drawn), fresh.swaps[0].cell) > UNEVEN:
            return finding
        return replace(finding, reason=law_reason(probe.source.kind, independent=False))

    def _detectable(self) -> float | None:
        """At worst over the inputs with enough draws to exclude anything; 1 if there are none."""
        bounds = [self._bound(probe) for probe in self.probes if probe.fit.draws]
        return max((bound for bound in bounds if bound < 1.0), default=1.0 if bounds else None)

    def _bound(self, probe: Probe) -> float:
        return detectable(probe.fit, self.alpha, self.settings.power).tv
