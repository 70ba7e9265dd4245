"""The page of `resispec-verify audit --out`: the verdict in words, its numbers, pictures, what to repeat.

All that engines said, their tokens too, comes from elsewhere: it is escaped as the page writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from resispec_verify.audit.settings import AuditResult
from resispec_verify.report.audits import request_line, sentences
from resispec_verify.report.page import (
    PageSection,
    bullets,
    card,
    document,
    numbers,
    pictures,
    plain_number,
    table,
)
from resispec_verify.report.plots.audit import finite, plot_cuts, plot_evidence, plot_prefixes
from resispec_verify.report.plots.svg import inline_svg
from resispec_verify.report.table import printable

__all__ = ["audit_page"]

TONES = {
    "rejected": "bad", "error": "bad", "reference-mismatch": "bad", "not-exercised": "open",
    "not-rejected": "open",
}  # fmt: skip
SAID = {
    "rejected": "Rejected: with speculation this engine does not emit what it emits without.",
    "not-rejected": "Not rejected: no difference from the engine without speculation was found.",
    "reference-mismatch": "Nothing can be said: the reference itself failed the test, or it speculates.",
    "not-exercised": "Nothing can be said: speculation was hardly at work, or there were too few tokens.",
    "error": "Nothing can be said: the audit did not come to its end.",
}
NEXT = {
    "rejected": (
        "Do not serve with this setting where the law of the tokens matters: switch speculation off or try "
        "another verification setting or version, audit that, and report the smallest request below to the "
        "engine's makers."
    ),
    "not-rejected": (
        "Hold what would have been found, below, against what you can accept; give more --tokens and "
        "--seconds for smaller differences, and audit again after each change of engine, model or setting."
    ),
    "reference-mismatch": (
        "Look at the reference before the engine: that the two addresses are not swapped, that it takes "
        "every sampling parameter and seed as asked, that its log-probabilities are those that it samples "
        "from, that nothing else changes its requests; then audit again, or with --mode samples if it was "
        "--mode laws."
    ),
    "not-exercised": (
        "See that the draft is loaded and the two addresses are not swapped, and give prompts of which it "
        "gets some tokens right and some wrong, or more --tokens; then audit again."
    ),
    "error": (
        "See the reason below, set the engine or the command right, and run it again; with --resume FILE a "
        "run goes on from what it had gathered."
    ),
}
# Characters of a fact that is shown: a model may be a whole configuration.
LONGEST = 400


def audit_page(result: AuditResult, command: str) -> str:
    """The page, as HTML.

    Parameters
    ----------
    result : AuditResult
    command : str
        The command line that made it.
    """
    said = sentences(result)
    said = said[: len(said) - len(result.notes)]
    looks = f" {_looks(result.looks_like)}." if result.looks_like else ""
    found = card(
        printable(result.engine, None), result.verdict.replace("-", " "), TONES[result.verdict],
        f"against {printable(result.reference, None)}, {_MODES[result.mode]}", _numbers(result),
    )  # fmt: skip
    parts = [
        f"<p><strong>What to do next.</strong> {escape(NEXT[result.verdict])}</p>",
        f'<section aria-label="verdict"><div class="cards one">{found}</div>',
        bullets(_clean(said)),
        "</section>",
        *pictures([*_evidence(result), *_frequencies(result)]),
        *_tables(result),
        *_smallest(result),
        _block("What was asked", table(_asked(result))),
        _block("The engines, as they say themselves", table(_facts(result))),
        _block("Notes", bullets(_clean(f"{note}." for note in result.notes))),
        f"<section><h2>How to get this again</h2>{_code(command)}</section>",
    ]
    title = f"Audit of {printable(result.engine)}"
    return document(title, printable(SAID[result.verdict] + looks, None), [part for part in parts if part])


def _looks(like: str) -> str:
    return f"It looks {like}" if like.startswith("like ") else f"It looks like this: {like}"


_MODES = {"laws": "tokens against its law", "samples": "first tokens against its own"}


def _clean(lines: Iterable[str]) -> list[str]:
    return [printable(line, None) for line in lines]


def _code(text: str) -> str:
    return f"<pre><code>{escape(printable(text, None))}</code></pre>"


def _block(head: str, body: str, said: str = "") -> str:
    """A section, or nothing where there is nothing in it."""
    words = f"<p>{escape(said)}</p>" if said else ""
    return f"<section><h2>{escape(head)}</h2>{words}{body}</section>" if body else ""


def _line(result: AuditResult) -> float:
    """log10 of the evidence at which one is rejected."""
    return -math.log10(result.alpha_per_test)


def _tenth(value: Any) -> str:
    value = plain_number(value)
    return f"{value:.1f}" if finite(value) else numbers(value)


def _numbers(result: AuditResult) -> list[tuple[str, str]]:
    """Of the card."""
    control, drafts, band = result.control, result.drafts, result.band
    found = [
        ("tokens that were tested", f"{result.tokens:,}"),
        ("requests", f"{result.requests:,}"),
        ("log10 of the evidence", f"{_tenth(result.log10_evidence)} (rejected from {_line(result):.1f})"),
    ]
    if result.found_after is not None:
        found.append(("rejected after", f"{result.found_after:,} tokens"))
    if result.detectable_tv is not None:
        tv = result.detectable_tv
        found.append(("would have been found", "nothing surely" if tv >= 1 else f"{tv:.3f} or more"))
    if drafts.get("drafted") is not None:
        shown = f"{drafts['accepted']:,} of {drafts['drafted']:,}"
        found.append(("draft tokens accepted", shown))
    if control:
        many = f"{control['tokens']:,} tokens" if "tokens" in control else f"{control['pairs']:,} pairs"
        found.append(("control: the reference", many))
        found.append(("log10 of the control's evidence", _tenth(control["log10_evidence"])))
    if band:
        found.append(("not held against it: total variation", f"{band['tv']:.2g}"))
    found.append(("wrongly rejected at most, a run", f"{result.alpha:g}"))
    found.append(("seconds, ended by", f"{result.seconds:.1f}, {result.stopped}"))
    return found


def _evidence(result: AuditResult) -> list[PageSection]:
    drawn = {name: points for name, points in result.path.items() if points}
    if not drawn:
        return []
    unit = "tokens" if result.mode == "laws" else "pairs of completions"
    said = (
        f"What bets on a difference have won so far: 10 to this power times their stake, as the {unit} came "
        f"in. One without a difference reaches the dashed line with probability {result.alpha_per_test:g} at "
        "most, however long the run."
    )
    engine, after = drawn.get("engine", []), result.found_after or 0
    if result.verdict == "rejected" and engine and max(float(y) for _, y in engine) < _line(result):
        said += " This engine was rejected by another test than this curve: see above."
    elif result.verdict == "rejected" and engine and unit == "tokens" and engine[-1][0] > after:
        said += " The curve goes on after the rejection to the end of the completions that had come."
    picture = plot_evidence(drawn, _line(result), unit)
    records = [
        {"whose": name, unit: count, "log10 of the evidence": evidence}
        for name in ("engine", "reference")
        for count, evidence in drawn.get(name, ())
    ]
    svg = inline_svg(picture, "e", f"evidence over {unit}, engine and reference")
    return [PageSection(f"Evidence over {unit}", said, [svg], records, wide=True)]


def _frequencies(result: AuditResult) -> list[PageSection]:
    found = []
    cuts = [one for one in result.cuts if finite(one["seen"])]
    if cuts:
        said = (
            "Each law, most probable tokens first, is cut at a mass. Dots: how much more often the engine's "
            "tokens were below the cut than they should be. Grey: a shift that reaches its edge would have "
            f"been found with probability {result.power:g}; where there is no grey, none is sure to be found "
            "at that cut."
        )
        records = [
            {"cut at": one["at"], "seen": one["seen"], "seen minus due": one["seen"] - one["at"],
             "would have been found": one["detectable"] if one["detectable"] < 1 else None}
            for one in cuts
        ]  # fmt: skip
        svg = inline_svg(plot_cuts(cuts), "c", "frequency minus mass at each cut of the laws")
        found.append(PageSection("Frequencies against the law", said, [svg], records, wide=True))
    if result.prefixes_off:
        said = "First tokens whose frequencies differ most between the engine and the reference."
        records = [
            {"prompt": one["prompt"] + 1, "tokens": _text(one["tokens"]), "engine": one["seen"],
             "reference": one["due"], "pairs": one["pairs"]}
            for one in result.prefixes_off
        ]  # fmt: skip
        svg = inline_svg(plot_prefixes(result.prefixes_off), "p", "frequencies of first tokens")
        found.append(PageSection("First tokens, engine and reference", said, [svg], records, wide=True))
    return found


def _text(value: Any) -> str:
    """A token, a fact or a list of them, on one line."""
    shown = repr(value) if isinstance(value, (str, list, dict)) else str(value)
    return printable(shown, LONGEST)


def _tokens(records: Sequence[Mapping[str, Any]]) -> str:
    return table(
        [
            {"token": _text(one["token"]), "came": one["seen"], "due": one["due"],
             "standard deviations": one["z"]}
            for one in records
        ]
    )  # fmt: skip


def _tables(result: AuditResult) -> list[str]:
    places = [
        {"place": one["place"], "tokens": one["tokens"], "log10 of the evidence": one["log10_evidence"],
         "leading bet": printable(one["leading"], None), "its log10 gain": one["log10_gain"]}
        for one in result.places
    ]  # fmt: skip
    return [
        _block(
            "Tokens that came more or less often than they should",
            _tokens(result.tokens_off),
            "Of all tokens of the run those that are farthest off; within 4 standard deviations that may be "
            "chance.",
        ),
        _block(
            "Evidence by place in a round",
            table(places),
            "A round is what one verification emits; each place is tested by itself, and the bet that gained "
            "most says what a fault there would be.",
        ),
    ]


def _smallest(result: AuditResult) -> list[str]:
    one = result.smallest
    if one is None:
        return []
    first, last = one["seeds"]
    said = (
        f"{one['tokens']} tokens after one prompt, {one['requests']} times, with seeds {first} to {last}; "
        "this is the first. A key, if the server wants one, is to be added."
    )
    body = _code(request_line(one, result.engine)) + _tokens(one.get("tokens_off", []))
    return [_block("Smallest request that shows it", body, said)]


def _asked(result: AuditResult) -> list[dict[str, str]]:
    found = {name.replace("_", " "): value for name, value in result.sampling.items()}
    found |= {"mode": result.mode, "prompts": result.prompts or None, "requests": result.requests}
    found |= {"seeds": f"each request its own, from {result.seed} on"}
    return [{"what": name, "value": str(value)} for name, value in found.items() if value is not None]


def _facts(result: AuditResult) -> list[dict[str, str]]:
    who = {"engine": result.engine, "reference": result.reference}
    facts = {name: {"what is asked": who[name], **result.facts.get(name, {})} for name in who}
    names = list(dict.fromkeys(key for one in facts.values() for key in one))
    return [{"fact": printable(key), **{name: _fact(facts[name].get(key)) for name in who}} for key in names]


def _fact(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    return "" if value is None else printable(value, LONGEST)
