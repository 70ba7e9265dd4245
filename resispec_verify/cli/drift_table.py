"""The tables of `resispec-verify drift`."""

from typing import Any

from resispec_verify.report.table import number, print_lines, print_records, printable
from resispec_verify.tables.drift_summary import DriftRow, mostly_seen
from resispec_verify.tables.row import label


def print_drift(rows: list[DriftRow], console: Any) -> None:
    """Print what is so before each candidate, and what each candidate adds."""
    many = {len(row.position) for row in rows}
    count = f"{min(many)} positions" if len(many) == 1 else f"{min(many)} to {max(many)} positions"
    records = [record for row in rows for record in _by_candidate(row, _named(row, rows))]
    print_records(console, f"before each candidate, means over {count}", records)
    lines = [
        "looked at: P(all before were rejected); accepted: P(accepted | looked at); L1 and KL (nats): of the "
        f"residual from the draft; blind spot: its mass outside the draft's {rows[0].top_k} best tokens.",
        *(line for row in rows for line in _infinite(row)),
    ]
    if any(r["gap"] not in ("-", "0") for r in records):
        lines.append(
            "gap: share of the paths to a candidate whose residual was not looked at (--max-states), for KL "
            "and blind spot; acc. gap: for accepted and L1. '-': most were not. Bounds are in --json."
        )
    print_lines(console, lines)
    scaling = [record for row in rows for record in _by_doubling(row, _named(row, rows))]
    print_records(console, "expected accepted length at depth 1 with N candidates", scaling)
    print_lines(
        console,
        [
            "EAL = 1 + P(a candidate is accepted); gain: over half as many candidates; efficiency: gain per "
            "candidate added; limit: of exact rules."
        ],
    )


def _named(row: DriftRow, rows: list[DriftRow]) -> dict[str, str]:
    """What row it is."""
    several = len({other.dataset for other in rows}) > 1
    own = {"dataset": printable(row.dataset or "")} if several else {}
    return {**own, "rule": label(row.rule), "T": f"{row.temperature:g}"}


def _by_candidate(row: DriftRow, own: dict[str, str]) -> list[dict[str, str]]:
    def measure(result: dict[str, Any], name: str) -> str:
        return number(result[name] if mostly_seen(result, name) else None)

    return [
        {
            **own,
            "candidate": str(r["index"]),
            "looked at": number(r["looked_at"]),
            "accepted": measure(r, "acceptance_conditional"),
            "L1": measure(r, "l1"),
            "KL": measure(r, "kl"),
            "blind spot": measure(r, "blind_spot"),
            "acc. gap": number(r["acceptance_gap"]),
            "gap": number(r["gap"]),
        }
        for r in row.results()
    ]


def _by_doubling(row: DriftRow, own: dict[str, str]) -> list[dict[str, str]]:
    """The paper's 1, 2, 4, 8 candidates."""
    return [
        {
            **own,
            "N": str(r["index"]),
            "EAL": number(r["eal"]),
            "gap": number(r["gap"]),
            "gain": number(r["gain"]),
            "efficiency": number(r["efficiency"]),
            "limit": "unknown" if r["limit"] is None else number(r["limit"]),
        }
        for r in row.scaling()
    ]


def _infinite(row: DriftRow) -> list[str]:
    infinite = max(r["kl_infinite"] for r in row.results())
    if not infinite:
        return []
    return [
        f"{label(row.rule)} (T = {row.temperature:g}): KL is infinite at {infinite} of "
        f"{len(row.position)} positions: the residual holds tokens that the draft cannot propose."
    ]
