"""A checked sampler in lines for people; the same for the command line and for pytest."""

from __future__ import annotations

from resispec_verify.sampler_check.check import CheckResult
from resispec_verify.sampler_check.frequencies import written

__all__ = ["at_an_end_only", "bounds", "lines"]

# Tokens up to which the laws of a position are printed.
_SMALL = 8


def lines(result: CheckResult) -> list[str]:
    """Reasons, what was seen against what was due, and how sure one may be.

    "Not rejected" is never called exact: the last lines say what would have been found.
    """
    found = [f"{reason}." for reason in result.reasons]
    found += _ends(result)
    if result.witness is not None:
        found += [*_witness(result.witness), _error_rate(result)]
        if result.witness["kind"] == "boundary":
            found += ["Between the ends nothing was found, so that no bias is seen.", *_not_rejected(result)]
    elif result.verdict == "not-rejected" or any(row["draws"] for row in result.inputs):
        found += [*_not_rejected(result), _error_rate(result)]
    return found


def at_an_end_only(result: CheckResult) -> str:
    """For the first line: that a rejected sampler is so for an end of the uniforms alone; else empty."""
    witness = result.witness
    if witness is None or witness["kind"] != "boundary":
        return ""
    return f" at an end of the uniforms only ({witness['often']})"


def _ends(result: CheckResult) -> list[str]:
    """A line for each fault at an end of the uniforms, or one that says that there is none, or that none was
    looked for.
    """
    ends = result.ends
    if ends is None:
        return []
    if ends["verdict"] == "not-tested":
        if result.verdict == "error" or (result.verdict == "rejected" and not ends["draws"]):
            return []  # the run ended before, or the sampler failed: other lines say why
        return [f"Ends of the uniforms: not tested: {ends['reason']}."]
    if ends["verdict"] == "no-fault":
        found = (
            f"Ends of the uniforms: no fault at 0 and at the largest below 1 ({', '.join(ends['dtypes'])})"
        )
        if ends["cut"]:
            every = len(ends["inputs"]) + len(ends["not_reached"])
            found += f", in part: wholly on {every - len(ends['cut'])} of {every} inputs"
        return [f"{found}; {ends['reason']}." if ends["reason"] else f"{found}."]
    lines = []
    for fault in ends["faults"]:
        fails = "" if fault["fails"] else ", which does not fail the run"
        what = "as said above" if fault["reason"] in result.reasons else fault["reason"]
        lines.append(f"Ends of the uniforms: fault on {fault['input']!r}{fails}: {what}.")
    return lines


def _error_rate(result: CheckResult) -> str:
    kind = None if result.witness is None else result.witness["kind"]
    if kind == "boundary":
        assert result.witness is not None
        calls, failed = result.witness["calls"], result.witness["failed"]
        return (
            "No error rate is involved: such uniforms are possible, seldom as they come. With them there the "
            f"fault came in {'all' if failed == calls else f'{failed} of'} {calls} calls."
        )
    if kind == "support":
        return "No error rate is involved: a lossless sampler never emits it."
    whose = (
        "A sampler with the target's law and this acceptance"
        if kind == "acceptance"
        else "A lossless sampler"
    )
    return (
        f"{whose} is rejected with probability at most {result.alpha:g} a run "
        f"({result.tests} tests at {result.alpha_per_test:.1e} each)."
    )


def _witness(witness: dict) -> list[str]:
    rows = "" if witness["rows"] is None else f", {witness['rows']} rows a call"
    about = f" ({witness['about']})" if "about" in witness else ""
    where = f"{witness['input']!r}{about}{rows}"
    found = [f"On input {where}, after {witness['draws']} draws (seed {witness['seed']}):"]
    if (off := witness.get("first_off")) is not None:
        found += _first_off(off)
    if "target" in witness:
        found.append(f"  target {_law(witness['target'])}, draft {_law(witness['draft'])}")
    if witness["kind"] == "boundary":
        found += [
            f"  drawn: {name} {dtype} {', '.join(map(repr, values[:6]))}"
            for name, dtype, values in witness["numbers"][:4]
        ]
    grouping = witness.get("grouping")
    if witness["kind"] == "support":
        found += _differences(witness["differences"])
    if grouping is not None and grouping["name"] != "tokens":
        found += [*_differences(grouping["differences"]), f"  {_between(grouping, witness['confidence'])}"]
    elif witness["kind"] == "law":
        # A declared draft has no such mark: all its tokens are shown.
        rows = [row for row in witness["differences"] if row.get("beyond_noise", True)]
        found += _differences(rows) or ["  no single token differs by more than noise, all together do"]
        found.append(f"  {_interval(witness)}")
    if witness["never_emitted"]:
        found.append(f"  never emitted: {', '.join(witness['never_emitted'])}")
    return found


def _first_off(off: dict) -> list[str]:
    """Which position is off, and the laws there."""
    prefix = " ".join(map(str, off["prefix"]))
    begin = f"{prefix} {off['token']}".strip()
    after = f" after {prefix}" if prefix else ""
    found = [
        f"  first off at position {off['position']} of {off['positions']}: "
        f"{written(off['seen'])} of the draws begin with {begin}, target {written(off['target'])}"
    ]
    if 0 < len(off.get("target_law", ())) <= _SMALL:
        laws = {"target": off["target_law"], "draft": off["draft_law"], "emitted": off["seen_law"]}
        shown = (f"{name} {_law(law)}" for name, law in laws.items() if law is not None)
        found.append(f"  laws of that position{after}: {', '.join(shown)}")
    return found


def _differences(rows: list[dict]) -> list[str]:
    return [
        f"  {row['what']}: {written(row['seen'])} of the draws, target {written(row['target'])}"
        for row in rows
        if row["seen"] != row["target"]
    ]


def _interval(witness: dict) -> str:
    return f"TV of what it emits from the target: {_ends_of(witness, witness['confidence'])}"


def _between(grouping: dict, confidence: float) -> str:
    what = (
        "the tail and the rest"
        if grouping["tail"]
        else f"{grouping['cells']} groups of tokens ({grouping['name']})"
    )
    return f"TV between {what}: {_ends_of(grouping, confidence)}; between single tokens it may be larger"


def _ends_of(found: dict, confidence: float) -> str:
    """An interval; 0 is no lower end of a law that is rejected, and frequencies beyond it are noise."""
    low, high, seen = (written(found[name]) for name in ("tv_low", "tv_high", "tv_seen"))
    if found["tv_low"] <= 0.0:
        why = "alpha is too large for a lower end"
        return f"at most {high} (confidence {confidence:g}; {why})"
    if found["tv_high"] >= 1.0:
        return f"at least {low} (confidence {confidence:g})"
    return f"{low} to {high} (confidence {confidence:g}; {seen} in these draws)"


def _law(law: list[float]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in law) + "]"


def _not_rejected(result: CheckResult) -> list[str]:
    found = []
    if result.verdict == "error":
        found.append("What the other draws say:")
    if result.stopped == "time":
        found.append("The time was spent before the draws were. Give more seconds for the rest.")
    rows = _by_bound(result)
    few = [row["input"] for row in rows if row["detectable_tv"] >= 1.0]
    if missing := [name for name in result.not_reached if name not in few]:
        found.append(f"Not reached: {', '.join(missing)}.")
    if few:
        found.append(f"Too few draws to exclude anything on {', '.join(map(repr, few))}.")
    found.append(
        f"This is no proof. With probability {result.power:g} a total variation of {said} would have been "
        "found; smaller faults, and faults on other inputs, may be there."
        if (said := bounds(result))
        else "This is no proof."
    )
    return found


def bounds(result: CheckResult) -> str:
    """The least and the largest total variation that would have been found, with their inputs; or nothing."""
    rows = [row for row in _by_bound(result) if row["detectable_tv"] < 1.0]
    return " and of ".join(map(_bound, rows if len(rows) < 2 else (rows[0], rows[-1])))


def _by_bound(result: CheckResult) -> list[dict]:
    drawn = [row for row in result.inputs if row["rows"] is None and row["draws"]]
    return sorted(drawn, key=lambda row: row["detectable_tv"])


def _bound(row: dict) -> str:
    groups = f" between {row['cells']} groups of tokens" if row["cells"] < row["possible"] else ""
    return f"{written(row['detectable_tv'])}{groups} on {row['input']!r}"
