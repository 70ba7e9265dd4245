"""Is somebody's sampler lossless? Draws from it, tested against the target with a stated error rate.

A run is a family of tests fixed in advance, each anytime-valid at its share of ``alpha``: a lossless
sampler is rejected with probability at most ``alpha`` in the whole run, however early it stops. Not being
rejected proves nothing; the result says which total variation would have been found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resispec_verify.analysis.check_battery import Chain, Input, battery, chains, named
from resispec_verify.analysis.check_calls import BoundaryGenerator, Caller, SamplerError, boundary_words
from resispec_verify.analysis.check_probes import DEPENDENT, Finding, Probe, seed_of
from resispec_verify.analysis.check_search import search_pairs
from resispec_verify.analysis.check_settings import CheckResult, CheckSettings
from resispec_verify.analysis.check_sources import BlockSource, MixedSource, TokenSource
from resispec_verify.errors import InputError
from resispec_verify.evidence.statistical import detectable

__all__ = ["CheckResult", "CheckSettings", "certified_acceptance", "check_sampler", "named_inputs"]

# Draws and calls at each of them: what is looked for, shared randomness, shows within a few hundred.
SMALL_BATCH_DRAWS = 2048
SMALL_BATCH_CALLS = 512
# Share of alpha kept for pairs that the search proposes, and for telling dependence from a wrong law.
RESERVED = 0.1
CONFIRMED_PAIRS = 3


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
        self.until = time.monotonic() + settings.seconds
        block = settings.style == "block"
        self.inputs: list[Any] = list(inputs if inputs is not None else chains() if block else battery())
        if not self.inputs:
            raise InputError("no inputs to check the sampler on; give at least one pair")
        for one in self.inputs:
            if isinstance(one, Chain) != block:
                raise InputError(f"input {one.name!r} does not fit the style {settings.style!r}")
        self.sources = self._sources()
        self.probes: list[Probe] = []
        self.small: list[Probe] = []
        self._make_probes()
        self.extra = 0  # draws outside of the probes

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
        return TokenSource(pair, candidates=n, proposal=chosen.proposal, acceptance=law)

    def _make_probes(self) -> None:
        chosen, seed = self.settings, self.settings.seed
        first = self.sources[0]
        self.small = [
            Probe(first, min(SMALL_BATCH_DRAWS, SMALL_BATCH_CALLS * rows, chosen.draws), 1.0, seed, rows)
            for rows in chosen.batches
        ]
        self.probes = [
            Probe(source, max(1, round(chosen.draws * one.share)), 1.0, seed)
            for source, one in zip(self.sources, self._repeated(), strict=True)
        ]
        if (mixed := self._mixed()) is not None:
            self.probes.append(Probe(mixed, max(1, chosen.draws // 8), 1.0, seed))
        self.tests = sum(probe.tests for probe in self.small + self.probes)
        self.alpha = (1 - RESERVED) * chosen.alpha / self.tests
        for probe in self.small + self.probes:
            probe.alpha = self.alpha

    def _repeated(self) -> list[Any]:
        times = len(self.sources) // len(self.inputs)
        return [one for one in self.inputs for _ in range(times)]

    def _mixed(self) -> MixedSource | None:
        """Two pairs of one width whose rows alternate; not for samplers that see one pair a call."""
        if self.settings.style == "block" or getattr(self.caller.sampler, "one_pair_a_call", False):
            return None
        by_width: dict[int, Input] = {}
        for pair in self.inputs:
            other = by_width.setdefault(len(pair.target), pair)
            if other is not pair and not np.array_equal(other.target, pair.target) and len(pair.target) <= 64:
                return MixedSource(
                    f"rows of {other.name} and {pair.name}", other, pair, [self._source(other)]
                )
        return None

    def result(self) -> CheckResult:
        started = time.monotonic()
        found: tuple[Probe, Finding] | None = None
        error, stopped = None, "draws"
        try:
            found = self._boundary() or self._rounds(self.small) or self._rounds(self.probes)
            if found is None and self.settings.search and self.settings.style != "block":
                found = self._search()
            if found is not None:
                found = self._explained(*found)
        except SamplerError as failure:
            error = str(failure)
        if error is not None:
            stopped, verdict = "error", "error"
        elif found is not None:
            stopped = verdict = "rejected"
        else:
            verdict = "not-rejected"
            stopped = "time" if time.monotonic() >= self.until else "draws"
        reasons = [error] if error else [found[1].reason] if found else []
        chosen = self.settings
        return CheckResult(
            verdict, reasons + self.caller.notes, self._draws(), chosen.alpha, self.alpha, self.tests,
            chosen.power, chosen.seed,
            detectable_tv=self._detectable() if verdict == "not-rejected" else None,
            witness=None if found is None else self._witness(*found),
            inputs=[self._row(probe) for probe in self.small + self.probes if probe.fit.draws],
            stopped=stopped,
            seconds=time.monotonic() - started,
        )  # fmt: skip

    def _draws(self) -> int:
        return self.extra + sum(probe.fit.draws for probe in self.small + self.probes)

    def _rounds(self, probes: Sequence[Probe]) -> tuple[Probe, Finding] | None:
        """Step whichever probe has cost least so far, until one rejects or all are spent."""
        while time.monotonic() < self.until and (left := [probe for probe in probes if not probe.spent]):
            probe = min(left, key=lambda probe: probe.cost)
            probe.step(self.caller)
            if (finding := probe.finding()) is not None:
                return probe, finding
        return None

    def _boundary(self) -> tuple[Probe, Finding] | None:
        """Uniforms at their ends: whatever comes out must be possible."""
        if not self.settings.boundary or self.settings.style == "block":
            return None
        seed = self.settings.seed
        for source in self.sources:
            if len(source.law) > 64:
                continue
            probe = Probe(source, 0, 1.0, seed)

            def job(source: Any = source, probe: Probe = probe) -> None:
                for rows in (1, 4):
                    for pattern in range(16):
                        for position in (0, 1, 2):
                            rng = boundary_words(seed, pattern, position)
                            self._add(probe, source.draw(self.caller, rng, rows).index)
                for trial in range(16):
                    rng = BoundaryGenerator(seed_of(seed, "boundary", source.name, trial))
                    self._add(probe, source.draw(self.caller, rng, 32).index)

            try:
                self.caller.run(job)
            except SamplerError as error:
                raise SamplerError(f"{error} (uniforms at 0 and 1 - 2**-53, input {source.name!r})") from None
            token = probe.fit.impossible
            if token is not None:
                reason = (
                    f"{source.describe(token)} is emitted although its target probability is 0, when a "
                    "uniform is 0 or 1 - 2**-53"
                )
                return probe, Finding("support", reason, token)
        return None

    def _add(self, probe: Probe, index: np.ndarray) -> None:
        probe.fit.update(index)
        self.extra += len(index)

    def _search(self) -> tuple[Probe, Finding] | None:
        """The worst pairs for this sampler, each confirmed on fresh draws."""
        alpha = RESERVED / 2 * self.settings.alpha / CONFIRMED_PAIRS
        found, drawn = search_pairs(
            self.caller, self._source, seed_of(self.settings.seed, "search"), self.until, CONFIRMED_PAIRS,
            limit=self.settings.draws,
        )  # fmt: skip
        self.extra += drawn
        confirming = [
            Probe(self._source(pair), max(1, self.settings.draws // 4), alpha / 2, self.settings.seed)
            for pair in found
        ]
        if (finding := self._rounds(confirming)) is not None:
            self.probes.append(finding[0])
            return finding
        self.extra += sum(probe.fit.draws for probe in confirming)
        return None

    def _explained(self, probe: Probe, finding: Finding) -> tuple[Probe, Finding]:
        """A wrong law may be dependence: rows that share randomness are counted as if they did not."""
        if finding.kind != "law":
            return probe, finding
        alpha = RESERVED / 2 * self.settings.alpha
        rows = min(max(8, probe.rows or 64), max(2, probe.source.most_rows))
        fresh = Probe(probe.source, 1, alpha, self.settings.seed + 1, rows)

        def job() -> np.ndarray:
            calls = 128
            return np.stack([fresh.source.draw(self.caller, fresh.rng, rows).index for _ in range(calls)])

        index = self.caller.run(job)
        fresh.look_for_dependence(index)
        self.extra += index.size
        if fresh.log_dependence < -math.log(alpha):
            return probe, finding
        return probe, Finding("independence", DEPENDENT)

    def _detectable(self) -> float | None:
        bounds = [detectable(probe.fit, self.alpha, self.settings.power)["tv"] for probe in self.probes]
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
            "detectable_tv": bound["tv"],
            "cells": bound["cells"],
            "detectable_tv_tokens": bound["tv_tokens"],
        }

    def _witness(self, probe: Probe, finding: Finding) -> dict[str, Any]:
        law, counts, draws = probe.fit.law, probe.fit.counts, probe.fit.draws
        seen = counts / max(1, draws)
        order = np.argsort(-np.abs(seen - law), kind="stable")[:8]
        if finding.token is not None:
            order = np.array([finding.token])
        never = np.flatnonzero((counts == 0) & (draws * law >= 10))[:8]
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
    """The law of the accepted candidate, n for none, by enumeration; None where it is not certified."""
    if rule is None:
        return None
    from resispec_verify.evidence import operational_marginals

    marginals = operational_marginals(rule, pair.target[None], pair.draft[None], n)
    if float(np.asarray(marginals.gap)[0]) > 1e-9:
        return None
    accepted = np.asarray(marginals.acceptance, np.float64)[0]
    return np.append(accepted, max(0.0, 1.0 - float(accepted.sum())))


def named_inputs(names: Sequence[str]) -> list[Input]:
    """Inputs of the battery by name."""
    from resispec_verify.analysis.check_battery import battery_names

    for name in names:
        if name not in battery_names():
            raise InputError(f"no input named {name!r}; there are {', '.join(battery_names())}")
    return [named(name) for name in names]
