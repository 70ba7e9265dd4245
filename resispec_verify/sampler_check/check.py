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
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.evidence.statistical import detectable
from resispec_verify.sampler_check.battery import Chain, Input, Models, Tree
from resispec_verify.sampler_check.calls import Caller, SamplerError
from resispec_verify.sampler_check.ends import at_the_ends, on
from resispec_verify.sampler_check.probes import DEPENDENT, Finding, Probe, seed_of
from resispec_verify.sampler_check.search import search_pairs
from resispec_verify.sampler_check.settings import CheckResult, CheckSettings
from resispec_verify.sampler_check.sources.styles import STYLES, handing_of, inputs_of

__all__ = ["CheckResult", "CheckSettings", "check_sampler"]

# Draws and calls at each of them: what is looked for, shared randomness, shows within a few hundred.
SMALL_BATCH_DRAWS = 2048
SMALL_BATCH_CALLS = 512
# Pairs of the search that are tested.
SEARCHED = 3
# Vocabulary up to which uniforms at their ends are tried.
NARROW = 64


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
        By style. "tokens": ``sampler(target, draft, rng)`` with probabilities ``(rows, V)``, float64, and a
        `numpy.random.Generator`; rows are independent trials, and it draws its own candidates. "candidates":
        ``sampler(target, draft, candidates, rng)``, ``candidates`` ``(rows, n)``. Both return the emitted
        tokens ``(rows,)``, or those and the index of the accepted candidate, n for none. "block":
        ``sampler(targets, drafts, path, rng)`` with ``targets (rows, L + 1, V)``, ``drafts (rows, L, V)``
        and the drafted ``path (rows, L)``; it returns the emitted tokens ``(rows, L + 1)``, padded with -1
        after the accepted prefix and the token that follows it.
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


class _Run:
    """One run: its probes, in the order in which a fault is cheapest to see."""

    def __init__(self, sampler: Callable[..., Any], settings: CheckSettings, inputs: Any) -> None:
        self.settings = settings
        self.caller = Caller(sampler, settings.call_seconds)
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
        self.extra = 0  # draws outside of the probes

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
        small = [
            Probe(
                self.sources[0],
                min(SMALL_BATCH_DRAWS, SMALL_BATCH_CALLS * rows, chosen.draws),
                1.0,
                seed,
                rows,
            )
            for rows in chosen.batches
        ]
        large = [
            Probe(source, max(1, round(chosen.draws * one.share)), 1.0, seed)
            for source, one in zip(self.sources, self._repeated(), strict=True)
        ]
        if (mixed := self._mixed()) is not None:
            large.append(Probe(mixed, max(1, chosen.draws // 8), 1.0, seed))
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
        found: tuple[Probe, Finding] | None = None
        try:
            found = self._boundary() or self._rounds(self.small) or self._rounds(self.probes)
            if found is None and self.searching:
                found = self._search()
            if found is not None:
                found = found[0], self._explained(*found)
            verdict, reasons = ("rejected", [found[1].reason]) if found else ("not-rejected", [])
            self.not_reached += [probe.name for probe in self.probes if not probe.fit.draws]
            if found is None and not any(probe.fit.draws for probe in self.probes):
                raise SamplerError(f"no input was reached in {chosen.seconds:g} s; give more seconds")
        except SamplerError as failure:
            found, verdict, reasons = None, "error", [str(failure)]
        late = "time" if self.caller.late else "draws"
        return CheckResult(
            verdict, reasons + self.caller.notes, self._draws(), chosen.alpha, self.alpha, self.tests,
            chosen.power, chosen.seed,
            detectable_tv=self._detectable() if verdict == "not-rejected" else None,
            witness=None if found is None else self._witness(*found),
            inputs=[self._row(probe) for probe in self.small + self.probes if probe.fit.draws],
            not_reached=self.not_reached if verdict == "not-rejected" else [],
            stopped=late if verdict == "not-rejected" else verdict,
            seconds=time.monotonic() - started,
        )  # fmt: skip

    def _draws(self) -> int:
        return self.extra + sum(probe.fit.draws for probe in self.small + self.probes)

    def _rounds(self, probes: Sequence[Probe]) -> tuple[Probe, Finding] | None:
        """Step whichever probe has cost least so far, until one rejects or all are spent."""
        while not self.caller.late and (left := [probe for probe in probes if not probe.spent]):
            probe = min(left, key=lambda probe: probe.cost)
            with on(probe.name):
                probe.step(self.caller)
            if (finding := probe.finding()) is not None:
                return probe, finding
        return None

    def _boundary(self) -> tuple[Probe, Finding] | None:
        """Uniforms at their ends: whatever comes out must be possible."""
        if not self.settings.boundary:
            return None
        for source, ordinary in zip(self.sources, self.probes, strict=False):
            if source.vocab > NARROW:
                continue
            if self.caller.late:
                self.not_reached.append(f"uniforms at their ends on {source.name}")
                continue
            # What shows without an odd uniform is not to be blamed on one.
            with on(ordinary.name):
                ordinary.step(self.caller)
            if (finding := ordinary.finding()) is not None:
                return ordinary, finding
            probe = Probe(source, 0, 1.0, self.settings.seed)
            finding, drawn = at_the_ends(self.caller, probe)
            self.extra += drawn
            if finding is not None:
                return probe, finding
        return None

    def _search(self) -> tuple[Probe, Finding] | None:
        """The worst pairs for this sampler, each tested on fresh draws."""
        chosen = self.settings
        found, drawn = search_pairs(
            self.caller,
            lambda pair: self._of(pair)[0],
            seed_of(chosen.seed, "search"),
            SEARCHED,
            limit=chosen.draws,
        )
        self.extra += drawn
        fresh = [
            Probe(self._of(pair)[0], max(1, chosen.draws // 4), self.alpha, chosen.seed) for pair in found
        ]
        if (finding := self._rounds(fresh)) is not None:
            self.probes.append(finding[0])
            return finding
        self.extra += sum(probe.fit.draws for probe in fresh)
        if self.caller.late:
            self.not_reached.append("the end of the search")
        return None

    def _explained(self, probe: Probe, finding: Finding) -> Finding:
        """A wrong law may be dependence: rows that share randomness are counted as if they did not.

        The verdict stands; only its reason is asked for. Independent draws of a wrong law are called
        dependent with probability at most alpha.
        """
        if finding.kind != "law":
            return finding
        rows = min(max(8, probe.rows or 64), max(2, probe.source.most_rows))
        fresh = Probe(probe.source, 1, self.settings.alpha, self.settings.seed + 1, rows)
        with contextlib.suppress(SamplerError):
            drawn = self.caller.some(lambda: fresh.source.draw(self.caller, fresh.rng, rows).index, 128)
            self.extra += rows * len(drawn)
            fresh.look_for_dependence(np.stack(drawn))
        return Finding("independence", DEPENDENT) if fresh.dependent else finding

    def _detectable(self) -> float | None:
        """At worst over the inputs that were reached."""
        reached = [probe.fit for probe in self.probes if probe.fit.draws]
        bounds = [detectable(fit, self.alpha, self.settings.power).tv for fit in reached]
        return max(bounds, default=None)

    def _row(self, probe: Probe) -> dict[str, Any]:
        bound = detectable(probe.fit, self.alpha, self.settings.power)
        return {
            "input": probe.source.name,
            "rows": probe.rows,
            "vocab": len(probe.source.law),
            "draws": probe.fit.draws,
            "log10_evidence": _finite(probe.fit.log_evidence / math.log(10)),
            "log10_evidence_dependence": _finite(probe.log_dependence / math.log(10)),
            "detectable_tv": bound.tv,
            "cells": bound.cells,
            "possible": int(np.count_nonzero(probe.fit.law)),
            "detectable_tv_tokens": bound.tv_tokens,
        }

    def _witness(self, probe: Probe, finding: Finding) -> dict[str, Any]:
        law, counts, draws = probe.fit.law, probe.fit.counts, probe.fit.draws
        seen = counts / max(1, draws)
        order = np.argsort(-np.abs(seen - law), kind="stable")[:8]
        never = np.flatnonzero((counts == 0) & (draws * law >= 10))[:8]
        if finding.token is not None:
            order, never = np.array([finding.token]), np.array([], dtype=np.int64)
        witness: dict[str, Any] = {
            "kind": finding.kind,
            "input": probe.source.name,
            "rows": probe.rows,
            "draws": draws,
            "seed": self.settings.seed,
            # Draws with uniforms that are not uniform have no frequencies to speak of.
            "tv_seen": None if finding.kind == "boundary" else float(0.5 * np.abs(seen - law).sum()),
            "differences": [
                {"what": probe.source.describe(int(x)), "target": float(law[x]), "seen": float(seen[x])}
                for x in order
            ],
            "never_emitted": [probe.source.describe(int(x)) for x in never],
        }
        pair = getattr(probe.source, "pair", None)
        if pair is not None and len(pair.target) <= 32:
            witness |= {"target": pair.target.tolist(), "draft": pair.draft.tolist()}
        return witness


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
