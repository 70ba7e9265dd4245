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
from resispec_verify.sampler_check.battery import Chain, Input, battery, chains, named
from resispec_verify.sampler_check.calls import Caller, SamplerError
from resispec_verify.sampler_check.ends import EndFault, EndsTest, on
from resispec_verify.sampler_check.probes import DEPENDENT, Finding, Probe, seed_of
from resispec_verify.sampler_check.search import search_pairs
from resispec_verify.sampler_check.settings import CheckResult, CheckSettings
from resispec_verify.sampler_check.sources import BlockSource, MixedSource, TokenSource

__all__ = ["CheckResult", "CheckSettings", "certified_acceptance", "check_sampler", "named_inputs"]

# Draws and calls at each of them: what is looked for, shared randomness, shows within a few hundred.
SMALL_BATCH_DRAWS = 2048
SMALL_BATCH_CALLS = 512
# Pairs of the search that are tested.
SEARCHED = 3
# Entries of the laws on which uniforms at their ends, and rows that differ, are tried.
NARROW = 64


def check_sampler(
    sampler: Callable[..., Any],
    settings: CheckSettings | None = None,
    *,
    inputs: Sequence[Input | Chain] | None = None,
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
    inputs : sequence of Input or Chain, optional
        Default: the fixed battery.

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
        self.searching = settings.search and settings.style != "block"
        block = settings.style == "block"
        self.inputs: list[Any] = list(inputs if inputs is not None else chains() if block else battery())
        if not self.inputs:
            raise InputError("no inputs to check the sampler on; give at least one pair")
        for one in self.inputs:
            if isinstance(one, Chain) != block:
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
        self.ends: EndsTest | None = None

    def _sources(self) -> list[Any]:
        chosen = self.settings
        if chosen.style == "block":
            lengths = (False, True) if chosen.ragged else (False,)
            return [BlockSource(chain, ragged=ragged) for chain in self.inputs for ragged in lengths]
        return [self._source(pair) for pair in self.inputs]

    def _source(self, pair: Input) -> TokenSource:
        chosen = self.settings
        n = chosen.candidates if chosen.style == "candidates" else None
        if n is not None and chosen.proposal != "iid":
            n = min(n, int(np.count_nonzero(pair.draft)))
        law = certified_acceptance(chosen.rule, pair, chosen.candidates if n is None else n)
        if chosen.rule is not None and law is None:
            self.caller.note(f"the acceptance of {chosen.rule.name} on {pair.name} takes too long to certify")
        return TokenSource(pair, candidates=n, proposal=chosen.proposal, acceptance=law)

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

    def _mixed(self) -> MixedSource | None:
        """Two pairs of one width whose rows alternate; not for samplers that see one pair a call."""
        if self.settings.style == "block" or getattr(self.caller.sampler, "one_pair_a_call", False):
            return None
        by_width: dict[int, TokenSource] = {}
        for source in self.sources:
            other = by_width.setdefault(len(source.law), source)
            if not np.array_equal(other.law, source.law) and len(source.law) <= NARROW:
                return MixedSource(other, source)
        return None

    def result(self) -> CheckResult:
        """Do it all."""
        chosen, started = self.settings, time.monotonic()
        self.caller.until = started + chosen.seconds
        found: tuple[Probe, Finding] | None = None
        end: EndFault | None = None
        try:
            found = self._boundary() or self._rounds(self.small) or self._rounds(self.probes)
            if found is None and self.searching:
                found = self._search()
            if found is not None:
                found = found[0], self._explained(*found)
            elif self.ends is not None:
                end = self.ends.failing(chosen.fail_ends)
            why = found[1] if found else end
            verdict, reasons = ("rejected", [why.reason]) if why else ("not-rejected", [])
            self.not_reached += [probe.name for probe in self.probes if not probe.fit.draws]
            if found is None and not any(probe.fit.draws for probe in self.probes):
                raise SamplerError(f"no input was reached in {chosen.seconds:g} s; give more seconds")
        except SamplerError as failure:
            found, verdict, reasons = None, "error", [str(failure)]
        late = "time" if self.caller.late else "draws"
        return CheckResult(
            verdict, reasons + self.caller.notes, self._draws(), chosen.alpha, self.alpha, self.tests,
            chosen.power, chosen.seed,
            detectable_tv=self._detectable() if verdict == "not-rejected" or end else None,
            witness=self._witness(*found) if found else end.witness(chosen.seed) if end else None,
            inputs=[self._row(probe) for probe in self.small + self.probes if probe.fit.draws],
            not_reached=self.not_reached if verdict == "not-rejected" or end else [],
            ends=None if self.ends is None else self.ends.to_dict(chosen.fail_ends),
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
        """Uniforms at their ends; a step of each input before: what shows without is not blamed on them."""
        if not self.settings.boundary:
            return None
        for probe in self.probes[: len(self.sources)]:
            if len(probe.source.law) <= NARROW and not self.caller.late:
                with on(probe.name):
                    probe.step(self.caller)
                if (finding := probe.finding()) is not None:
                    return probe, finding
        self.ends = EndsTest(self.caller, self.sources, self.settings.seed, self.settings.seconds)
        found = self.ends.run()
        self.extra += self.ends.draws
        self.not_reached += [f"uniforms at their ends on {name}" for name in self.ends.not_reached]
        return found

    def _search(self) -> tuple[Probe, Finding] | None:
        """The worst pairs for this sampler, each tested on fresh draws."""
        chosen = self.settings
        found, drawn = search_pairs(
            self.caller, self._source, seed_of(chosen.seed, "search"), SEARCHED, limit=chosen.draws
        )
        self.extra += drawn
        fresh = [
            Probe(self._source(pair), max(1, chosen.draws // 4), self.alpha, chosen.seed) for pair in found
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
            "tv_seen": float(0.5 * np.abs(seen - law).sum()),
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


def certified_acceptance(rule: Any, pair: Input, n: int) -> np.ndarray | None:
    """The law of the accepted candidate, n for none, by enumeration of all paths; None if there are too many.

    Nothing may be missing: an outcome of probability 1e-9 that is taken for impossible would reject a right
    sampler more often than at the default alpha.
    """
    if rule is None:
        return None
    from resispec_verify.evidence.enumeration import Budget, operational_marginals

    everything = Budget(gap=0.0, until_decided=False)
    marginals = operational_marginals(rule, pair.target[None], pair.draft[None], n, budget=everything)
    if float(np.asarray(marginals.gap)[0]) > 0.0 or max(marginals.acceptance_error, default=0.0) > 0.0:
        return None
    accepted = np.asarray(marginals.acceptance, np.float64)[0]
    return np.append(accepted, max(0.0, 1.0 - float(accepted.sum())))


def named_inputs(names: Sequence[str]) -> list[Input]:
    """Inputs of the battery by name."""
    from resispec_verify.sampler_check.battery import battery_names

    for name in names:
        if name not in battery_names():
            raise InputError(f"no input named {name!r}; there are {', '.join(battery_names())}")
    return [named(name) for name in names]
