"""A checked sampler in lines for people; the same for the command line and for pytest."""

from __future__ import annotations

from resispec_verify.analysis.check import CheckResult

__all__ = ["lines"]


def lines(result: CheckResult) -> list[str]:
    """Reasons, what was seen against what was due, and how sure one may be.

    "Not rejected" is never called exact: the last line says what would have been found.
    """
    found = [f"{reason}." for reason in result.reasons]
    if result.witness is not None:
        found += _witness(result.witness)
        found.append(
            f"A lossless sampler is rejected with probability at most {result.alpha:g} a run "
            f"({result.tests} tests at {result.alpha_per_test:.1e} each)."
        )
    elif result.verdict == "not-rejected":
        found += _not_rejected(result)
    return found


def _witness(witness: dict) -> list[str]:
    rows = "" if witness["rows"] is None else f", {witness['rows']} rows a call"
    found = [f"On input {witness['input']!r}{rows}, after {witness['draws']} draws (seed {witness['seed']}):"]
    if "target" in witness:
        found.append(f"  target {_law(witness['target'])}, draft {_law(witness['draft'])}")
    if witness["kind"] in ("law", "support"):
        found += [
            f"  {row['what']}: {row['seen']:.4f} of the draws, target {row['target']:.4f}"
            for row in witness["differences"]
            if row["seen"] != row["target"]
        ]
        found.append(f"  TV between frequencies and target: {witness['tv_seen']:.4f}")
    if witness["never_emitted"]:
        found.append(f"  never emitted: {', '.join(witness['never_emitted'])}")
    return found


def _law(law: list[float]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in law) + "]"


def _not_rejected(result: CheckResult) -> list[str]:
    found = []
    if result.stopped == "time":
        found.append("The time was spent before the draws were.")
    worst = max(
        (row for row in result.inputs if row["rows"] is None),
        key=lambda row: row["detectable_tv"],
        default=None,
    )
    best = min(
        (row for row in result.inputs if row["rows"] is None),
        key=lambda row: row["detectable_tv"],
        default=None,
    )
    if worst is not None and best is not None:
        found.append(
            f"This is no proof. With probability {result.power:g} a total variation of "
            f"{best['detectable_tv']:.4f} on {best['input']!r} would have been found, and of "
            f"{worst['detectable_tv']:.4f} (between {worst['cells']} groups of tokens) on {worst['input']!r}"
            "; smaller faults, and faults on other inputs, may be there."
        )
    else:
        found.append("This is no proof: no input was tried as far as its law is tested. Give more --seconds.")
    found.append(
        f"A lossless sampler would have been rejected with probability at most {result.alpha:g} "
        f"({result.tests} tests at {result.alpha_per_test:.1e} each)."
    )
    return found
