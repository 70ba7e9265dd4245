"""What a run says of one stream of draws: its row of the report, and the witness of a rejection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resispec_verify.evidence.eprocess import Grouping
from resispec_verify.evidence.intervals import cells_of, tv_in_grouping, tv_interval
from resispec_verify.evidence.statistical import detectable, detectable_tail
from resispec_verify.sampler_check.frequencies import beyond_noise
from resispec_verify.sampler_check.positions import first_off
from resispec_verify.sampler_check.probes import Finding, Probe

__all__ = ["ERROR", "interval_of", "row_of", "witness_of"]

#: Probability that the interval of a witness fails, over all tests of a run.
ERROR = 0.01


def row_of(probe: Probe, power: float) -> dict[str, Any]:
    """One stream of draws, JSON-ready."""
    bound = detectable(probe.fit, probe.alpha, power)
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
        "detectable_tail": detectable_tail(probe.fit, probe.alpha),
        "groupings": [
            {"name": grouping.name, "cells": grouping.cells, "detectable_tv": tv}
            for grouping, tv in zip(probe.fit.groupings, bound.by_grouping, strict=True)
        ],
        "error": probe.error,
    }


def witness_of(probe: Probe, finding: Finding, seed: int, error: float) -> dict[str, Any]:
    """What was seen against what was due.

    Parameters
    ----------
    error : float
        Probability that the interval of the total variation fails.
    """
    law, counts, draws = probe.fit.law, probe.fit.counts, probe.fit.draws
    seen = counts / max(1, draws)
    order = np.argsort(-np.abs(seen - law), kind="stable")[:8]
    never = np.flatnonzero((counts == 0) & (draws * law >= 10))
    never = never[beyond_noise(seen[never], law[never], draws, error / len(law))][:8]
    if finding.token is not None:
        order, never = np.array([finding.token]), np.array([], dtype=np.int64)
    beyond = beyond_noise(seen[order], law[order], draws, error / len(law))
    witness: dict[str, Any] = {
        "kind": finding.kind,
        "input": probe.source.name,
        "rows": probe.rows,
        "draws": draws,
        "seed": seed,
        "tv_seen": float(0.5 * np.abs(seen - law).sum()),
        # The interval is one of independent draws.
        **interval_of(None if finding.kind == "independence" else probe.fit, error),
        "dependence": finding.dependence,
        "differences": [
            {
                "what": probe.source.describe(int(x)),
                "target": float(law[x]),
                "seen": float(seen[x]),
                "beyond_noise": bool(sure),
            }
            for x, sure in zip(order, beyond, strict=True)
        ],
        "grouping": _grouping(probe, error) if finding.kind == "law" else None,
        "never_emitted": [probe.source.describe(int(x)) for x in never],
    }
    if about := getattr(probe.source, "about", ""):
        witness["about"] = about
    if finding.kind in ("support", "law") and hasattr(probe.source, "sequences"):
        witness["first_off"] = first_off(probe.source, counts, error)
    pair = getattr(probe.source, "pair", None)
    if pair is not None and len(pair.target) <= 32:
        witness |= {"target": pair.target.tolist(), "draft": pair.draft.tolist()}
    return witness


def _grouping(probe: Probe, error: float) -> dict[str, Any]:
    """The grouping that rejects a law: its total variation, and its cells that differ by more than noise."""
    fit, found = probe.fit, probe.fit.strongest
    counts, law = cells_of(fit, found)
    seen = counts / fit.draws
    low, high = tv_in_grouping(fit, found, error)
    beyond = beyond_noise(seen, law, fit.draws, error / len(law))
    worst = [int(x) for x in np.argsort(-np.abs(seen - law), kind="stable") if beyond[x]][:8]
    return {
        "name": found.name, "cells": len(law), "tail": found.tail, "tv_low": low, "tv_high": high,
        "tv_seen": float(0.5 * np.abs(seen - law).sum()),
        "differences": [
            {"what": _cell(probe, found, x), "target": float(law[x]), "seen": float(seen[x])}
            for x in ([1] if found.tail else worst)
        ],
    }  # fmt: skip


def _cell(probe: Probe, grouping: Grouping, cell: int) -> str:
    """A cell of a grouping, in words."""
    possible = probe.fit.law > 0
    members = np.flatnonzero((grouping.cell == cell) & possible)
    if cell >= grouping.cells:
        return "impossible tokens"
    if grouping.tail:
        return grouping.name
    if len(members) == 1:
        return probe.source.describe(int(members[0]))
    if (common := _pattern(probe, members)) is not None:
        return common
    what = "sequences" if hasattr(probe.source, "sequences") else "tokens"
    most = probe.source.describe(int(members[np.argmax(probe.fit.law[members])]))
    return f"a group of {len(members)} {what} together (the most probable is {most})"


def _pattern(probe: Probe, members: np.ndarray) -> str | None:
    """What just these of the possible sequences have in common, ``*`` for any token; None if nothing does."""
    sequences = getattr(probe.source, "sequences", None)
    if sequences is None:
        return None
    possible = sequences.tokens(np.flatnonzero(probe.fit.law > 0))
    own = sequences.tokens(members)
    same = (own == own[0]).all(axis=0)
    if np.count_nonzero((possible[:, same] == own[0, same]).all(axis=1)) != len(members):
        return None
    shown = (str(x) if fixed else "*" for x, fixed in zip(own[0], same, strict=True))
    return f"sequences {' '.join(shown)} (*: any token)"


def interval_of(test: Any, error: float) -> dict[str, float | None]:
    """``tv_low``, ``tv_high`` and ``confidence`` of a witness; None of each without a test."""
    if test is None:
        return {"tv_low": None, "tv_high": None, "confidence": None}
    low, high = tv_interval(test, error)
    return {"tv_low": low, "tv_high": high, "confidence": 1.0 - ERROR}


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
