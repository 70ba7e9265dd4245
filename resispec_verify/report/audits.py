"""What `audit` prints."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from resispec_verify.audit.settings import AuditResult
from resispec_verify.report.cases import Case
from resispec_verify.report.table import print_lines, print_records, printable, safe_line

__all__ = ["audit_cases", "files_cases", "print_audit", "print_files", "request_line", "sentences"]

COLOURS = {
    "rejected": "bold red", "error": "bold red", "reference-mismatch": "bold red",
    "not-exercised": "yellow", "not-rejected": "yellow",
}  # fmt: skip
# Standard deviations from which a token is worth a line.
FAR = 4.0
# Settings, and what each is where it does nothing.
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
# Total variation of a band that is worth a remark.
WIDE = 0.005
# Of a request that is shown: longer ones are in the JSON.
LONGEST = 1200


def print_audit(result: AuditResult, console: Any) -> None:
    """The verdict, why, and how sure one may be."""
    _first(result.engine, result.verdict, console)
    console.print(
        f" ({result.tokens} tokens, {result.seconds:.1f} s, stopped: {result.stopped})", markup=False
    )
    print_lines(console, [printable(line, None) for line in sentences(result)])
    if result.verdict == "rejected" and result.cuts:
        print_lines(console, [_moved(result)])
    far = [one for one in result.tokens_off if abs(one["z"]) >= FAR]
    if far and result.verdict in ("rejected", "reference-mismatch"):
        print_records(
            console,
            "tokens that came far more or less often than they should (z in standard deviations)",
            [
                {"token": repr(one["token"]), "came": str(one["seen"]), "due": f"{one['due']:.1f}",
                 "z": f"{one['z']:+.1f}"}
                for one in far
            ],
            left=(),
        )  # fmt: skip
    if result.prefixes_off:
        print_records(
            console,
            "first tokens whose frequencies differ most",
            [
                {"prompt": str(one["prompt"] + 1), "tokens": json.dumps(one["tokens"]),
                 "engine": f"{one['seen'] * one['pairs']:.0f} of {one['pairs']}",
                 "reference": f"{one['due'] * one['pairs']:.0f} of {one['pairs']}"}
                for one in result.prefixes_off
            ],
            left=("prompt", "tokens"),
        )  # fmt: skip
    if result.smallest is not None:
        print_lines(console, [printable(line, None) for line in _smallest(result.smallest, result.engine)])


def _moved(result: AuditResult) -> str:
    """Where the draws lie in the laws."""
    shown = ", ".join(
        f"{one['seen']:.1%} among those that hold {one['at']:.1%}"
        for one in result.cuts
        if one["at"] in (0.25, 0.5, 0.75, 0.9375)
    )
    return f"Of the tokens, counting the most probable ones first, {shown} of the law."


def _first(name: str, verdict: str, console: Any) -> None:
    console.print(f"{safe_line(name)}: ", end="", markup=False)
    console.print(verdict.replace("-", " "), style=COLOURS[verdict], end="")


def sentences(result: AuditResult) -> list[str]:
    """Reasons, how sure one may be, what it was tested against, and what is odd."""
    found = [reason if reason.endswith("?") else f"{reason}." for reason in result.reasons]
    if result.detectable_tv is not None:
        if not (result.verdict == "not-exercised" and result.detectable_tv >= 1):  # else a reason says it
            found.append(_detectable(result))
        found.append(_tested(result.sampling))
    found += [_drafts(result.drafts)] if result.drafts else []
    found += _control(result)
    if result.verdict in ("rejected", "not-rejected"):
        found.append(
            f"A lossless engine is rejected with probability at most {result.alpha:g} a run, reference too."
        )
    return found + [f"Note: {note}{'' if note.endswith('?') else '.'}" for note in result.notes]


def _detectable(result: AuditResult) -> str:
    tv = result.detectable_tv
    assert tv is not None
    if tv >= 1:
        return "Too few tokens to be sure of finding anything."
    how = (
        f"a fault that moves {100 * tv:.1f} percentage points of probability the same way everywhere, "
        "between more and less probable tokens,"
        if result.mode == "laws"
        else f"first tokens that are off by a total variation of {tv:.3f}"
    )
    return (
        f"That is no proof: {how} would have been found with probability {result.power:g}; a smaller one may "
        "be missed."
    )


def _tested(sampling: Mapping[str, Any]) -> str:
    filters = [f"{name} {sampling[name]:g}" for name, off in OFF.items() if sampling[name] != off]
    with_ = f" and {', '.join(filters)}" if filters else ", no filters"
    return (
        f"Tested at temperature {sampling['temperature']:g}{with_}: other settings are audits of their own."
    )


def plainly(log10: float | str) -> str:
    """Evidence, as people write it."""
    if isinstance(log10, str):
        return log10
    return f"{10**log10:,.1f}" if log10 < 1 else f"{10**log10:,.0f}" if log10 < 6 else f"10^{log10:.1f}"


def _drafts(drafts: Mapping[str, Any]) -> str:
    if drafts["drafted"] is None:
        return "Draft tokens: not reported."
    return (
        f"Draft tokens: {drafts['drafted']} verified, {drafts['accepted']} accepted, by {drafts['source']}."
    )


def _control(result: AuditResult) -> list[str]:
    control, band = result.control, result.band
    found = []
    if control:
        many = f"{control['tokens']} tokens" if "tokens" in control else f"{control['pairs']} pairs"
        found.append(
            f"Control: the reference through the same test, {many}, evidence "
            f"{plainly(control['log10_evidence'])} (1 is nothing found, rejected at "
            f"{1 / result.alpha_per_test:,.0f})."
        )
    if band:
        ways = ", ".join(
            f"{one['how']} {one['mean']:.2g}{'' if one['used'] else ', not used: another law'}"
            for one in band["measured"]
        )
        how = "given" if band["given"] else f"mean TV from what was asked first: {ways}"
        found.append(
            f"Band: differences up to TV {band['tv']:.2g} are not held against the engine ({how}); tokens "
            f"that are not reported by name have {band['others']:.2g} of the mass."
        )
        if band["tv"] > WIDE and not band["given"]:
            found.append(
                "That band is wide: the law of a text depends on batching or on the cache. Find the cause "
                "(batch size, attention kernel, cache), or give more tokens."
            )
    return found


def _smallest(smallest: Mapping[str, Any], engine: str) -> list[str]:
    seeds = smallest["seeds"]
    found = [
        f"Smallest request that shows it: {smallest['tokens']} tokens after one prompt, "
        f"{smallest['requests']} times, seeds {seeds[0]} to {seeds[1]}."
    ]
    off = smallest.get("tokens_off", [])  # none in mode samples: there are no laws to count against
    far = max(off, key=lambda one: abs(one["z"]), default=None)
    if far is None:
        found.append("  Count their beginnings, and those of as many of the reference's with other seeds.")
    elif abs(far["z"]) >= 2.0:
        found.append(
            f"  Count the tokens of all of them: {far['token']!r} came {far['seen']} times, where "
            f"{far['due']:.1f} are due."
        )
    else:
        found.append("  No single token stands out in them: their tokens together are not from the law.")
    line = request_line(smallest, engine)
    shown = line if len(line) <= LONGEST else "(the request is in --json: smallest.request)"
    return [*found, f"  {shown}"]


def request_line(smallest: Mapping[str, Any], engine: str) -> str:
    """What to paste into a shell, or the call of a function."""
    request = smallest["request"]
    if request is None:
        prompt = smallest["prompt"]
        shown = json.dumps(prompt if isinstance(prompt, str) else list(prompt))
        return f"{engine}({shown}, {smallest['tokens']}, {smallest['seeds'][0]})"
    body = shlex.quote(json.dumps(request["body"]))
    return f"curl {shlex.quote(request['url'])} -H 'Content-Type: application/json' -d {body}"


def print_files(found: Mapping[str, Any], console: Any) -> None:
    """The verdict on a file of completions."""
    _first(found["on"], found["verdict"], console)
    console.print(f" ({found['pairs']} pairs of completions of {found['compared']})", markup=False)
    lines = [f"Note: {note}." for note in found["notes"]]
    if found["verdict"] == "rejected":
        after = found["found_at"] or found["repeated"]["on"]["found_at"]
        lines.insert(0, f"Its completions are not those of {found['off']}, after {after} pairs.")
    elif found["verdict"] == "not-rejected":
        of = found["detectable_of"]
        tv = found["detectable_tv"]
        lines.insert(
            0,
            "Too few pairs to be sure of finding anything." if tv >= 1 else
            f"That is no proof: a total variation of {tv:.3f} or more between {of['cells']} cells of the "
            f"first {of['first_tokens']} tokens would have been found with probability {found['power']:g}.",
        )  # fmt: skip
    print_lines(console, [printable(line, None) for line in lines])
    if found["witness"] and found["verdict"] == "rejected":
        print_records(
            console,
            "first tokens whose frequencies differ most",
            [
                {"prompt": json.dumps(one["prompt"]), "tokens": json.dumps(one["tokens"]),
                 "this": f"{one['frequency_on']:.3f}", "reference": f"{one['frequency_off']:.3f}"}
                for one in found["witness"]
            ],
            left=("prompt", "tokens"),
        )  # fmt: skip


def audit_cases(result: AuditResult) -> list[Case]:
    """The demand that an engine is not rejected; where nothing can be said, an error."""
    facts = _facts(result.result(), "mode", "tokens", "log10_evidence", "seed")
    facts |= {f"draft_tokens_{name}": result.drafts.get(name) for name in ("drafted", "accepted")}
    return [_case(result.engine, result.verdict, sentences(result), facts, result.notes)]


def files_cases(found: Mapping[str, Any]) -> list[Case]:
    """The same of a file of completions."""
    facts = _facts(found, "pairs", "log_evidence", "found_at")
    rejected = [f"its completions are not those of {found['off']}"] if found["verdict"] == "rejected" else []
    return [_case(found["on"], found["verdict"], [*rejected, *found["notes"]], facts, found["notes"])]


def _case(name: str, verdict: str, why: list[str], facts: dict[str, Any], notes: list[str]) -> Case:
    told = None if verdict == "not-rejected" else ": ".join([verdict, "\n".join(why)])
    return Case(name, "must not be rejected", told, verdict != "rejected", facts, notes=notes)


def _facts(report: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: report[name] for name in ("verdict", "alpha", "power", "detectable_tv", *names)}
