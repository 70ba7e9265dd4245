"""A run against an earlier one: what changed, and whether that is more than chance between positions.

Rows are the same where rule, temperature, candidates and dataset are, and rows of the dump became laws alike:
sampling, proposal, input and precision (``reading``). Reports of earlier versions do not say the latter; they
count as without filters, from logits in float64 (`UNSAID`), and a run with filters finds no row of its own.

Verdicts are certified: where they differ, nothing else needs to be said. Of the means over positions (total
variation, acceptance, its limit) a change is

- ``none``: the certified intervals of both overlap, so that there may be no change at all;
- ``significant`` or ``not significant``: by a two-sided t-test over positions, paired where both runs hold
  the same positions of the same files (by their SHA-256), and of two samples else (Welch). All tests of one
  comparison share ``alpha`` (Bonferroni). Positions count as independent; those of one text are not quite.
  Differences that are nearly alike are no proof where there are few of them, though t grows without bound:
  no p-value is below that of flipping the signs of n differences, ``2**(1 - n)``, or of parting n + m values
  into two groups, ``2 / binomial(n + m, n)``;
- ``not tested``: the earlier report holds no standard errors, or there is one position.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.schema import SCHEMA

__all__ = ["UNSAID", "Change", "changes", "read_report", "standard_error", "unsaid"]

COMMANDS = ("kl", "report")
NEEDED = {
    "rule", "temperature", "candidates", "positions", "verdict", "tv_mean", "tv_mean_bounds", "acceptance",
    "acceptance_total_bounds", "limit_mean", "rounding_max",
}  # fmt: skip
MEASURES = ("tv", "acceptance", "limit")
#: What is said of a report that does not say how rows became laws.
UNSAID = "does not say its filters, and counts as without any"


@dataclass(frozen=True)
class Change:
    """One row and measure, before and now; for the verdict, texts; None where a run has no such row.

    Attributes
    ----------
    said : str
        "none", "significant", "not significant", "not tested"; "certified" of verdicts that differ; "new" and
        "gone" of rows.
    how : str
        "paired", "two samples", or empty.
    p_value : float or None
    """

    row: str
    measure: str
    before: Any
    now: Any
    said: str
    how: str = ""
    p_value: float | None = None


def read_report(path: Path) -> dict[str, Any]:
    """The ``--json`` of an earlier `kl` or `report`.

    Raises
    ------
    InputError
        It is anything else.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--against {path}: {error.strerror or error}; check the path") from None
    except (ValueError, RecursionError):
        raise InputError(f"--against {path}: not JSON; give what kl --json or report --json wrote") from None
    command = report.get("command") if isinstance(report, dict) else None
    if command not in COMMANDS or not isinstance(report.get("results"), list):
        kind = f"a report of {command}" if isinstance(command, str) else "no report of ours"
        raise InputError(f"--against {path}: {kind}; give what kl --json or report --json wrote")
    if report.get("schema") != SCHEMA:
        raise InputError(
            f"--against {path}: its schema is {report.get('schema')!r}, not {SCHEMA}; write it anew"
        )
    if "form" in report:
        raise InputError(f"--against {path}: intervals of top-k files; give a report over whole rows")
    if not all(isinstance(row, dict) for row in report["results"]):
        raise InputError(f"--against {path}: its results are no rows; write it anew with kl --json")
    rows = [row for row in report["results"] if row.get("marginal") == "operational"]
    if any(not row.keys() >= NEEDED for row in rows):
        raise InputError(f"--against {path}: its rows lack numbers; write it anew with kl --json")
    if not all(map(_sound, rows)):
        raise InputError(f"--against {path}: its rows hold what is no number; write it anew with kl --json")
    if not rows:
        raise InputError(f"--against {path}: it has no verdicts; write it without --marginal path-identity")
    seen: set[tuple[Any, ...]] = set()
    for key in map(_key, rows):
        if key in seen:
            raise InputError(f"--against {path}: has two rows of {_name(key)}; write it anew with kl --json")
        seen.add(key)
    return {**report, "results": rows}


def _sound(row: Mapping[str, Any]) -> bool:
    """Whether what is compared is of the kinds that our reports have."""
    lists = [row["acceptance"], row["tv_mean_bounds"], row["acceptance_total_bounds"]]
    errors, places = row.get("standard_errors"), row.get("by_position")
    if not (
        all(isinstance(row.get(name, ""), str) for name in ("rule", "label", "verdict"))
        and isinstance(row.get("dataset"), (str, type(None)))
        and all(isinstance(one, list) and all(map(_number, one)) for one in lists)
        and len(lists[1]) == len(lists[2]) == 2
        and all(_number(row[name]) for name in ("temperature", "tv_mean", "rounding_max"))
        and (row["limit_mean"] is None or _number(row["limit_mean"]))
        and all(_number(row[name]) and row[name] == int(row[name]) for name in ("candidates", "positions"))
        and row["positions"] >= 1
    ):
        return False
    if errors is not None and not (
        isinstance(errors, dict) and all(v is None or (_number(v) and v >= 0) for v in errors.values())
    ):
        return False
    return (not places or _sound_places(places)) and _sound_reading(row.get("reading", _plain_reading(1.0)))


def _sound_reading(reading: Any) -> bool:
    """Whether it says how rows became laws."""
    if not isinstance(reading, dict) or not reading.keys() >= {"sampling", "proposal", "input", "precision"}:
        return False
    lists = [reading["sampling"], [] if reading["proposal"] is None else reading["proposal"]]
    return all(isinstance(one, list) and all(isinstance(s, dict) for s in one) for one in lists) and all(
        isinstance(reading[name], str) for name in ("input", "precision")
    )


def _plain_reading(temperature: float) -> dict[str, Any]:
    """What counts for rows that do not say how they became laws."""
    sampling = [{"temperature": temperature}]
    return {"sampling": sampling, "proposal": None, "input": "logits", "precision": "float64"}


def unsaid(report: Mapping[str, Any]) -> bool:
    """Whether a report does not say how rows became laws, at least of some."""
    return any("reading" not in row for row in report["results"])


def _sound_places(places: Any) -> bool:
    """Whether numbers by position are columns of one length."""
    if not isinstance(places, dict) or not places.keys() >= {"sha256", "position", *MEASURES}:
        return False
    columns = [places[name] for name in ("sha256", "position", *MEASURES)]
    return (
        all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns)
        and all(isinstance(v, (str, int, type(None))) for one in columns[:2] for v in one)
        and all(v is None or _number(v) for one in columns[2:] for v in one)
    )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def standard_error(values: Sequence[float | None]) -> float | None:
    """Of the mean of values, as if they were independent; None of one, or where one is not known."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    n = len(values)
    if n < 2 or len(known) < n:
        return None
    mean = math.fsum(known) / n
    return math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (n - 1) / n)


def changes(old: Mapping[str, Any], new: Mapping[str, Any], alpha: float) -> list[Change]:
    """What changed from one report to another, verdicts first; rows that only one has are at the end."""
    before, now = ({_key(row): row for row in report["results"]} for report in (old, new))
    both = [key for key in now if key in before]
    level = alpha / max(1, len(both) * len(MEASURES))
    pairs = [(_name(key), before[key], now[key]) for key in both]
    found = []
    for name, a, b in pairs:
        said = "certified" if a["verdict"] != b["verdict"] else "none"
        found.append(Change(name, "verdict", a["verdict"], b["verdict"], said))
    found += [_compared(name, measure, a, b, level) for name, a, b in pairs for measure in MEASURES]
    found += [Change(_name(k), "verdict", None, now[k]["verdict"], "new") for k in now if k not in before]
    found += [Change(_name(k), "verdict", before[k]["verdict"], None, "gone") for k in before if k not in now]
    return found


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    reading = row.get("reading", _plain_reading(float(row["temperature"])))
    alike = json.dumps({name: reading[name] for name in _plain_reading(1.0)})
    alike = json.dumps(json.loads(alike, parse_int=float), sort_keys=True)  # 1 is 1.0
    return row.get("label", row["rule"]), row["temperature"], row["candidates"], row.get("dataset"), alike


def _name(key: tuple[Any, ...]) -> str:
    label, temperature, candidates, dataset, alike = key
    parts = [label, f"T = {temperature:g}", f"n = {candidates}", *([] if dataset is None else [dataset])]
    return ", ".join([*parts, *_reading_in_words(json.loads(alike), temperature)])


def _reading_in_words(reading: Mapping[str, Any], temperature: float) -> list[str]:
    """What is not as in `_plain_reading`."""
    plain = _plain_reading(temperature)
    said = [_settings(one) for one in reading["sampling"]]
    found = [" or ".join(one or "no filter" for one in said)] if any(said) else []
    if reading["proposal"] is not None:
        found.append("drawn with " + " or ".join(_settings(one, ()) for one in reading["proposal"]))
    return found + [reading[name] for name in ("input", "precision") if reading[name] != plain[name]]


def _settings(sampling: Mapping[str, Any], without: Sequence[str] = ("temperature",)) -> str:
    said = {name: f"{v:g}" if _number(v) else str(v) for name, v in sampling.items() if name not in without}
    return " ".join(f"{name} {value}" for name, value in said.items())[:80]  # a bias may have any length


def _bounds(row: Mapping[str, Any], measure: str) -> tuple[float, float] | None:
    """The certified interval of a mean."""
    if measure == "limit":
        value, slack = row["limit_mean"], 2 * row["rounding_max"]
        return None if value is None else (value - slack, value + slack)
    low, high = row["tv_mean_bounds" if measure == "tv" else "acceptance_total_bounds"]
    return float(low), float(high)


def _mean(row: Mapping[str, Any], measure: str) -> float | None:
    return math.fsum(row["acceptance"]) if measure == "acceptance" else row[f"{measure}_mean"]


def _compared(name: str, measure: str, a: Mapping[str, Any], b: Mapping[str, Any], level: float) -> Change:
    before, now = _mean(a, measure), _mean(b, measure)
    ends = _bounds(a, measure), _bounds(b, measure)
    if ends[0] is None or ends[1] is None:
        return Change(name, measure, before, now, "none" if before == now else "not tested")
    if ends[0][0] <= ends[1][1] and ends[1][0] <= ends[0][1]:
        return Change(name, measure, before, now, "none")
    how, p = _paired(a, b, measure) or _two_samples(a, b, measure)
    if p is None:
        return Change(name, measure, before, now, "not tested", how)
    return Change(name, measure, before, now, "significant" if p < level else "not significant", how, p)


def _paired(a: Mapping[str, Any], b: Mapping[str, Any], measure: str) -> tuple[str, float | None] | None:
    """The test over the differences, where both hold the same positions of the same files."""
    ours, theirs = (_by_position(row, measure) for row in (a, b))
    if not ours or ours.keys() != theirs.keys():
        return None
    differences = [theirs[place] - ours[place] for place in ours]
    error, n = standard_error(differences), len(differences)
    if error is None:
        return "paired", None
    # Of all signs that n differences may have, all alike: one or the other.
    return "paired", max(_chance(math.fsum(differences) / n, error, n - 1), 2.0 ** (1 - n))


def _by_position(row: Mapping[str, Any], measure: str) -> dict[tuple[str, int], float]:
    held = row.get("by_position")
    if not held or any(value is None for value in held[measure]):
        return {}
    return dict(zip(zip(held["sha256"], held["position"], strict=True), held[measure], strict=True))


def _two_samples(a: Mapping[str, Any], b: Mapping[str, Any], measure: str) -> tuple[str, float | None]:
    """Welch's test, from the standard errors."""
    first, second = ((row.get("standard_errors") or {}).get(measure) for row in (a, b))
    before, now = _mean(a, measure), _mean(b, measure)
    if first is None or second is None or before is None or now is None:
        return "", None
    n, m = a["positions"], b["positions"]
    if min(n, m) < 2:
        return "", None
    squares, change = (first**2, second**2), now - before
    weight = squares[0] ** 2 / (n - 1) + squares[1] ** 2 / (m - 1)
    freedom = sum(squares) ** 2 / weight if weight else 1.0
    # Of all ways to part n + m values into two groups, the one that they came in, or the other way round.
    floor = 2.0 * math.exp(math.lgamma(n + 1) + math.lgamma(m + 1) - math.lgamma(n + m + 1))
    return "two samples", max(_chance(change, math.sqrt(sum(squares)), freedom), floor)


def _chance(difference: float, error: float, freedom: float) -> float:
    """The two-sided p-value of Student's t, which an error of 0 lets vanish: hence the floors."""
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(difference) / error))
