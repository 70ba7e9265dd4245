"""What is printed of top-k files: intervals, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resispec_verify.report.table import number, print_lines, print_records, printable

__all__ = ["between", "print_top_comparison", "print_top_drift", "print_top_limits", "print_top_verdicts"]

MEANING = "a to b: true for every completion of the unseen tails. Attained: by one of them, up to rounding."


def between(ends: Any) -> str:
    """An interval in words; one number where both ends are shown alike."""
    if ends is None:
        return "unknown"
    low, high = map(number, ends)
    return low if low == high else f"{low} to {high}"


def print_top_verdicts(report: Mapping[str, Any], console: Any) -> None:
    """What `kl` has found of top-k files: two tables, and what a reader must not miss."""
    results = report["results"]
    acceptance = [
        {
            "rule": r["label"],
            "n": str(r["candidates"]),
            "acceptance": between(r["acceptance_mean_bounds"]),
            "limit": between(r["limit_mean_bounds"]),
            "verdict": r["verdict"],
            "k": "-" if r["least_k"] is None else str(r["least_k"]),
        }
        for r in results
    ]
    print_records(console, f"acceptance and verdict: {_size(report)}", acceptance, dispensable=("k",))
    emitted = [
        {
            "rule": r["label"],
            "TV mean": between(r["tv_mean_bounds"]),
            "TV max": between(r["tv_max_bounds"]),
            "KL mean": between(r["kl_mean_bounds"]),
        }
        for r in results
    ]
    print_records(
        console, "emitted law, from the target (KL(marginal || target), nats)", emitted, dispensable=()
    )
    first = results[0]
    lines = [
        MEANING,
        "k: shortest lists that decide the verdict; KL is inf where the draft may miss what the target has.",
        f"target and draft: TV {between(first['target_draft_tv_mean_bounds'])}, KL(target || draft) "
        f"{between(first['target_draft_kl_mean_bounds'])}.",
    ]
    for r in results:
        lines += _verdict_in_words(r)
    print_lines(console, [*lines, *_attained(results), *_notes(report)])


def print_top_limits(report: Mapping[str, Any], console: Any) -> None:
    """What `limits` has found of top-k files."""
    results = report["results"]
    records = [
        {
            "rule": r["label"],
            "n": str(r["candidates"]),
            "acceptance": between(r["acceptance_mean_bounds"]),
            "sequential limit": between(r["sequential_limit_mean_bounds"]),
            "limit": between(r["limit_mean_bounds"]),
            "above": str(r["above_limit"]),
        }
        for r in results
    ]
    print_records(
        console,
        f"acceptance beside the limits of exact rules: {_size(report)}",
        records,
        dispensable=("sequential limit",),
    )
    lines = [MEANING, "above: positions that are above the limit whatever the tails are."]
    lines += [
        f"{r['label']}: cannot be exact: accepts more than any exact rule can at position "
        f"{r['witness_position']}, whatever the tails are"
        for r in results
        if r["cannot_be_exact"]
    ]
    print_lines(console, [*lines, *_attained(results), *_notes(report)])


def print_top_drift(report: Mapping[str, Any], console: Any) -> None:
    """What `drift` has found of top-k files."""
    records = [
        {
            "rule": r["label"],
            "candidate": str(r["index"]),
            "looked at": between(r["looked_at_bounds"]),
            "accepted": between(r["acceptance_conditional_bounds"]),
            "L1": between(r["l1_bounds"]),
            "EAL": between(r["eal_bounds"]),
        }
        for r in report["results"]
    ]
    print_records(
        console, f"before each candidate: {_size(report)}", records, dispensable=("looked at", "L1")
    )
    lines = [
        MEANING,
        "looked at: P(all before were rejected); accepted: P(accepted | looked at); L1: of the residual from "
        "the draft; EAL: 1 + P(one of the candidates so far is accepted).",
        "KL and blind spot of a residual need whole rows.",
    ]
    print_lines(console, [*lines, *_notes(report)])


def print_top_comparison(report: Mapping[str, Any], console: Any) -> None:
    """What `compare` has found where a file lists the top k tokens."""
    row = report["results"][0]
    print_lines(console, [f"{name}: {_file(report[name.lower()])}" for name in "AB"])
    for side in ("target", "draft"):
        records = [
            {"of": name}
            | {
                head: between(row[side][key][name])
                for head, key in (("TV", "tv"), ("KL(A || B)", "kl"), ("KL(B || A)", "kl_reverse"))
            }
            for name in ("mean", "max", "99", "90", "median", "min")
        ]
        title = f"{side} rows of {row['positions']} positions (KL in nats)"
        print_records(console, title, records, dispensable=(), left=("of",))
    lines = [
        "a to b: true for every completion of the unseen tails.",
        f"best token of the target: {row['flips']} flips, {row['near_ties']} near-ties; at "
        f"{row['best_unknown']} positions an unseen token may be the best.",
    ]
    worst = [entry for entry in row["worst"] if entry["target_tv"][1] > 0]
    lines += ["positions with the largest TV of the target for certain:"] if worst else []
    lines += [
        f"  {entry['position']}: TV {between(entry['target_tv'])}, KL {between(entry['target_kl'])}, best "
        f"{entry['top_a']} in A, {entry['top_b']} in B: {entry['status']}"
        for entry in worst
    ]
    print_lines(console, lines)


def _file(facts: Mapping[str, Any]) -> str:
    listed = "whole rows" if facts["k"] is None else f"top {facts['k']} listed"
    return f"{printable(facts['path'])} ({listed})"


def _size(report: Mapping[str, Any]) -> str:
    first, second = report["dump"]["k"]
    listed = str(first) if first == second else f"{first} and {second}"
    return f"{report['results'][0]['positions']} positions, top {listed} listed"


def _verdict_in_words(r: Mapping[str, Any]) -> list[str]:
    if r["proof"] is not None:
        return [f"{r['label']}: exact for every pair of laws ({r['proof']}): no list is needed for that."]
    if r["verdict"] == "inexact":
        return [
            f"{r['label']}: inexact whatever the tails are, at {r['verdict_counts']['inexact']} positions "
            f"(first: {r['inexact_position']})."
        ]
    return [f"{r['label']}: these lists do not decide; longer ones may."]


def _attained(results: list[dict[str, Any]]) -> list[str]:
    """Which ends are values of some completion, rules of one sentence together."""
    said: dict[str, list[str]] = {}
    words = {(True, True): "{}", (True, False): "{} (low end)", (False, True): "{} (high end)"}
    for r in results:
        ends = {name: tuple(r["tight"][name]) for name in ("acceptance", "limit")}
        sharp = ", ".join(words[pair].format(name) for name, pair in ends.items() if pair in words)
        count, easy, hard = r["positions"], r["easiest_exists"], r["hardest_exists"]
        where = "" if easy == hard == count else f" at {easy} (low) and {hard} (high) of {count} positions"
        said.setdefault(f"attained{where}: {sharp or 'no end for certain'}", []).append(r["label"])
    return [f"{', '.join(names)}: {text}" for text, names in said.items()]


def _notes(report: Mapping[str, Any]) -> list[str]:
    return [f"{printable(note['path'])}: {printable(note['text'])}" for note in report["dump"]["notes"]]
