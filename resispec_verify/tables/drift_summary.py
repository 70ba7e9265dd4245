"""What `drift` found, by candidate: rows over positions, their means, bounds and quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.rules import Rule
from resispec_verify.schema import envelope, plain
from resispec_verify.tables.columns import Columns, column
from resispec_verify.tables.means import known_mean
from resispec_verify.tables.row import label

__all__ = [
    "QUANTILES",
    "DriftRow",
    "Profile",
    "certain_gain",
    "divide",
    "drift_records",
    "drift_report",
    "mostly_seen",
]

QUANTILES = (0.1, 0.5, 0.9)
MEASURES = ("acceptance_conditional", "l1", "kl", "blind_spot")
_GAP_OF = {"acceptance_conditional": "acceptance_gap", "l1": "l1_gap", "kl": "gap", "blind_spot": "gap"}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """One position; arrays ``(n,)`` by candidate.

    ``looked``: estimate of the probability that candidate i is looked at. ``accepted``: that it is accepted,
    over the paths with a known fate there; ``known`` is their probability, and ``unknown`` that of those that
    may get there besides. ``seen`` and ``missed`` are the same for the states that were visited; ``l1``,
    ``kl`` and ``blind`` are means over these. ``total``: estimated acceptance with 1..n candidates, which may
    be off by ``total_gap``.
    """

    looked: Floats
    accepted: Floats
    known: Floats
    unknown: Floats
    seen: Floats
    missed: Floats
    l1: Floats
    kl: Floats
    blind: Floats
    total: Floats
    total_gap: Floats
    l1_from_acceptance: bool = False


@dataclass
class DriftRow(Columns):
    """A rule at a temperature over the positions seen so far; lists have one entry a position.

    Attributes
    ----------
    rule, temperature, dataset
        What it is about.
    candidates : int
        n of the run that the states belong to.
    top_k : int
        The blind spot is outside the ``top_k`` best tokens of the draft.
    profile : list of Profile
    limit : list of float64 (n,) or None
        ``OT_1 .. OT_n``; None where a limit is not known.
    """

    rule: Rule
    temperature: float
    candidates: int
    top_k: int
    dataset: str | None = None
    source: list[str] = column()
    position: list[int] = column()
    profile: list[Profile] = column()
    limit: list[Floats | None] = column()

    def stacked(self, name: str) -> Floats:
        """One field of the profiles, ``(positions, n)``."""
        return np.asarray([getattr(profile, name) for profile in self.profile], np.float64)

    def limits(self) -> Floats | None:
        """Means of ``OT_1 .. OT_n`` over the positions, None unless all are known."""
        known = [limit for limit in self.limit if limit is not None]
        return np.mean(known, axis=0) if known and len(known) == len(self.limit) else None

    def measures(self) -> dict[str, Floats]:
        """The conditional means by position, ``(positions, n)`` each; NaN where nothing was seen."""
        accepted, known = self.stacked("accepted"), self.stacked("known")
        acceptance = divide(accepted, known)
        l1 = self.stacked("l1")
        whole = np.asarray([profile.l1_from_acceptance for profile in self.profile], bool)
        l1 = np.where(whole[:, None] & ~np.isnan(acceptance), 2.0 * (1.0 - acceptance), l1)
        return {
            "acceptance_conditional": acceptance,
            "l1": l1,
            "kl": self.stacked("kl"),
            "blind_spot": self.stacked("blind"),
        }

    def gaps(self) -> dict[str, Floats]:
        """Share of what may get to a candidate that was not seen there, ``(positions, n)`` by measure."""
        acceptance = _share(self.stacked("unknown"), self.stacked("known"))
        states = _share(self.stacked("missed"), self.stacked("seen"))
        whole = np.asarray([profile.l1_from_acceptance for profile in self.profile], bool)
        return {
            "acceptance_conditional": acceptance,
            "l1": np.where(whole[:, None], acceptance, states),
            "kl": states,
            "blind_spot": states,
        }

    def results(self) -> list[dict[str, Any]]:
        """One object of ``"results"`` a candidate; None where no position gets there."""
        measures, gaps = self.measures(), self.gaps()
        accepted, known = self.stacked("accepted"), self.stacked("known")
        total, total_gap = self.stacked("total"), self.stacked("total_gap")
        eal = 1.0 + total.mean(axis=0)
        limits = self.limits()
        most = {"acceptance_conditional": 1.0, "l1": 2.0, "blind_spot": 1.0}
        rows = []
        for i in range(self.candidates):
            here = ~np.isnan(measures["acceptance_conditional"][:, i])
            row: dict[str, Any] = {
                "rule": self.rule.name,
                "label": label(self.rule),
                "options": self.rule.options(),
                "temperature": self.temperature,
                "candidates": self.candidates,
                "dataset": self.dataset,
                "index": i + 1,
                "positions": int(here.sum()),
                "looked_at": float(self.stacked("looked")[:, i].mean()),
            }
            quantiles: dict[str, Any] = {"levels": list(QUANTILES)}
            for name in MEASURES:
                values, gap = measures[name][:, i], gaps[name][:, i]
                inside = ~np.isnan(values)
                row[name] = known_mean(values[inside].tolist())
                quantiles[name] = _quantiles(values[inside])
                if name in most:
                    row[f"{name}_bounds"] = _bounds(values, gap, most[name])
            row |= {
                "acceptance_pooled": _ratio(accepted[:, i].sum(), known[:, i].sum()),
                "acceptance_gap": known_mean(gaps["acceptance_conditional"][here, i].tolist()),
                "l1_gap": known_mean(gaps["l1"][here, i].tolist()),
                "kl_infinite": int(np.isinf(measures["kl"][:, i]).sum()),
                "top_k": self.top_k,
                "gap": known_mean(gaps["kl"][here, i].tolist()),
                "unexpanded": float(self.stacked("missed")[:, i].mean()),
                "quantiles": quantiles,
                "eal": _or_none(eal[i]),
                "eal_bounds": [
                    _or_none(1.0 + (total - total_gap)[:, i].mean()),
                    _or_none(1.0 + (total + total_gap)[:, i].mean()),
                ],
                "gain": _or_none(eal[i] - (eal[i - 1] if i else 1.0)),
                "efficiency": _or_none((eal[i] - eal[i // 2]) / (i + 1 - (i + 1) // 2)) if i % 2 else None,
                "limit": None if limits is None else float(limits[i]),
                "limit_gain": None if limits is None else float(limits[i] - (limits[i - 1] if i else 0.0)),
                "limit_kind": self.rule.proposal.name,
            }
            rows.append(plain(row))
        return rows

    def scaling(self) -> list[dict[str, Any]]:
        """Expected accepted length with 1, 2, 4, ... candidates; ``gain``, ``efficiency``: over half as many.

        ``gap`` is how far the length may be off. A gain of less is no figure, and None.
        """
        results = self.results()
        rows = []
        for result in results:
            index, eal, gap = result["index"], result["eal"], _half_width(result)
            if index & (index - 1):
                continue
            half = results[index // 2 - 1]["eal"] if index > 1 else None
            gain = None if eal is None or half is None or eal - half < gap else eal - half
            rows.append(
                {
                    "index": index,
                    "eal": eal,
                    "gap": gap,
                    "gain": gain,
                    "efficiency": None if gain is None else result["efficiency"],
                    "limit": None if result["limit"] is None else 1.0 + result["limit"],
                }
            )
        return rows


def mostly_seen(result: dict[str, Any], measure: str) -> bool:
    """Whether a mean is one over at least half of the paths to its candidate; tables leave out the others."""
    gap = result[_GAP_OF[measure]]
    return result[measure] is not None and gap is not None and gap <= 0.5


def certain_gain(result: dict[str, Any]) -> float | None:
    """What the last candidate gains; None where the paths not seen may add as much."""
    gain = result["gain"]
    return gain if gain is not None and gain >= _half_width(result) else None


def _half_width(result: dict[str, Any]) -> float:
    """How far the expected accepted length may be off."""
    low, high = result["eal_bounds"]
    return 0.0 if low is None or high is None else 0.5 * (high - low)


def drift_report(rows: Iterable[DriftRow]) -> dict[str, Any]:
    """The whole report of ``drift``, JSON-ready."""
    return envelope("drift", [result for row in rows for result in row.results()])


def drift_records(rows: Iterable[DriftRow]) -> list[dict[str, Any]]:
    """The results, flat, as ``--csv`` writes them and the plot draws them; empty where there is nothing."""
    records = []
    for row in rows:
        for result in row.results():
            quantiles = result.pop("quantiles")
            result |= {"rule": result.pop("label"), "dataset": row.dataset or ""}
            del result["options"]
            flat = dict(result)
            for name, value in result.items():
                if name.endswith("_bounds"):
                    del flat[name]
                    low, high = value if value is not None else (None, None)
                    flat |= {f"{name[:-7]}_low": low, f"{name[:-7]}_high": high}
            for name in MEASURES:
                for level, value in zip(QUANTILES, quantiles[name] or [None] * len(QUANTILES), strict=True):
                    flat[f"{name}_q{round(100 * level)}"] = value
            records.append({name: "" if value is None else value for name, value in flat.items()})
    return records


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient; NaN where the denominator is not positive."""
    safe = np.where(denominator > 0, denominator, 1.0)
    return np.where(denominator > 0, numerator / safe, np.nan)


def _share(missed: Floats, seen: Floats) -> Floats:
    """Share of the unseen; NaN where nothing gets to the candidate."""
    return divide(missed, missed + seen)


def _quantiles(values: Floats) -> list[float] | None:
    """Values that occur, no interpolation: it would make NaN of infinities."""
    if not values.size:
        return None
    return np.quantile(values, QUANTILES, method="inverted_cdf").tolist()


def _bounds(means: Floats, gap: Floats, most: float) -> list[float] | None:
    """Certified bounds on the mean over positions; those where nothing was seen may have any value."""
    here = ~np.isnan(gap)
    if not here.any():
        return None
    mean, gap = np.where(np.isnan(means[here]), 0.0, means[here]), gap[here]
    low = (1.0 - gap) * mean
    return [float(low.mean()), float(min((low + gap * most).mean(), most))]


def _ratio(numerator: float, denominator: float) -> float | None:
    return float(numerator / denominator) if denominator > 0 else None


def _or_none(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)
