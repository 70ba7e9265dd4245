"""The page of verdicts on rules: what is wrong and what to do, cards, what the numbers are, pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

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
from resispec_verify.report.plots.words import listed, percent
from resispec_verify.rules import Iid

__all__ = ["html_page"]

SAME = 5e-5  # of two acceptances, in the digits that are shown
#: How a card of each verdict is coloured.
TONES = {"exact": "good", "inexact": "bad", "undecided": "open"}
WORDS = {
    "exact": "the emitted token has the target's law at every position, but for rounding, which is bounded.",
    "n": "candidates: how many tokens the draft proposes at a position, for the rule to choose from.",
    "T": "the temperature that target and draft are sampled at.",
    "law": "the probabilities of all tokens at a position.",
    "total variation": "the share of the probability that is on wrong tokens: 0 is exact, 1 is another law "
    "altogether. Its mean and its worst are over positions. Of an exact rule what is "
    "left is rounding, and a certified bound is shown instead of an estimate.",
    "KL(marginal || target)": "the Kullback-Leibler divergence of what is emitted (the marginal) from the "
    "target: another measure of how far a law is off, 0 where it is exact and infinite where a token is "
    "emitted that the target never gives. In nats: with natural logarithms.",
    "acceptance": "the probability that one of the n candidates is emitted.",
    "limit of exact rules": "the largest acceptance that any exact rule can have with these candidates "
    "(the optimal transport). What accepts more is not exact.",
    "certified gap": "the probability of paths through the rule that were not followed. Every figure is "
    "certified to within it; 0 means that all were.",
}  # fmt: skip
#: What axes and legends of the pictures have from the paper.
PAPER = {
    "EAL": "expected accepted length: 1 + the probability that one of the candidates is accepted, so that "
    "EAL - 1 is the acceptance.",
    "residual": "the law that is left for the next candidate, or for the last token, after a rejection; Z is "
    "its mass before it is normalised.",
    "Z*": "the greatest mass at which a residual can still equal the draft's law; beyond it the distance of "
    "Theorem 2 grows.",
    "iid": "candidates that are drawn independently, so that one may come twice. The limit of exact rules "
    "depends on how candidates are drawn.",
    "local gap, Eq. 13": "two budgets that the paper has for the mass of the residual: what the rejected "
    "token has too much (Algorithm 1), and the larger of that and Z* (Eq. 13).",
}


def html_page(
    title: str,
    verdicts: Sequence[Mapping[str, Any]],
    remarks: Sequence[str],
    sections: Sequence[PageSection],
    command: str,
    facts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """The page.

    Parameters
    ----------
    title : str
    verdicts : sequence of mapping
        One a rule and setting, as `summary.summarize` makes them.
    remarks : sequence of str
        What a reader must not miss.
    sections : sequence of PageSection
    command : str
        The command line that makes this page.
    facts : mapping of str to records
        Tables at the end, by heading.
    """
    order = sorted(verdicts, key=lambda v: ("inexact", "undecided", "exact").index(_kind(v)))
    cards = "".join(map(_rule_card, order))
    parts = [
        f'<p class="next"><strong>What to do.</strong> {escape(_next(verdicts))}</p>' if verdicts else "",
        f'<section aria-label="verdicts"><div class="cards">{cards}</div>{bullets(remarks)}</section>',
        f"<section><h2>What the numbers are</h2>{_words(WORDS)}</section>" if verdicts else "",
        *pictures(sections),
        f"<section><h2>For readers of the ResiSpec paper</h2>{_words(PAPER)}</section>" if sections else "",
        f"<section><h2>How to get this again</h2><pre><code>{escape(command)}</code></pre>",
        *(f"<h3>{escape(heading)}</h3>{table(records)}" for heading, records in facts.items()),
        "</section>",
    ]
    return document(title, _lead(verdicts), [part for part in parts if part])


def _words(words: Mapping[str, str]) -> str:
    rows = (f"<div><dt>{escape(k)}</dt>: <dd>{escape(said)}</dd></div>" for k, said in words.items())
    return f'<dl class="words">{"".join(rows)}</dl>'


def _kind(v: Mapping[str, Any]) -> str:
    return str(v["verdict"]) if v["verdict"] in TONES else "undecided"


def _lead(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong, and what is right."""
    said = []
    for kind, one, many in (
        ("inexact", "does not emit the target's law", "do not emit the target's law"),
        ("undecided", "could not be decided", "could not be decided"),
        ("exact", "emits the target's law here, to rounding", "emit the target's law here, to rounding"),
    ):
        names = _names(verdicts, kind)
        if names:
            said.append(f"{listed(names)} {one if len(names) == 1 else many}.")
    return " ".join(said) or "No rule was verified."


def _names(verdicts: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """Rules of a verdict; with a temperature or a dataset where not all of the rule's have it."""
    names = []
    for label in dict.fromkeys(str(v["label"]) for v in verdicts):
        every = [v for v in verdicts if v["label"] == label]
        found = [v for v in every if _kind(v) == kind]
        if len(found) == len(every):
            names.append(label + _share(found))
        else:
            names += [_setting(v, verdicts) + _share([v]) for v in found]
    return names


def _share(found: Sequence[Mapping[str, Any]]) -> str:
    """How much is wrong, where that was estimated."""
    if any(
        _kind(v) != "inexact" or v.get("until") == "verdict" or v.get("positions_undecidable") for v in found
    ):
        return ""
    most = max(plain_number(v["tv_mean"]) for v in found)
    return f" ({'up to ' if len(found) > 1 else ''}{percent(most)} of the mass on wrong tokens)"


def _next(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """What a reader can do about it."""
    by = {kind: [v for v in verdicts if _kind(v) == kind] for kind in TONES}
    names = {kind: listed(list(dict.fromkeys(str(v["label"]) for v in found))) for kind, found in by.items()}
    said = []
    if by["inexact"]:
        said.append(f"Do not use {names['inexact']} where completions must be distributed as the target's.")
        if not by["exact"]:
            said.append(
                "Verify with an exact rule: specinfer, or optimal-sequential, which no exact rule that takes "
                "i.i.d. candidates one by one exceeds."
            )
    if by["exact"]:
        best = max(by["exact"], key=lambda v: sum(v["acceptance"]))
        if len(names_of := {str(v["label"]) for v in by["exact"]}) > 1 or by["inexact"]:
            most = "accepts most" if len(names_of) > 1 else "accepts"
            said.append(f"Of what is exact here {_setting(best, verdicts)} {most}: {_accepted(best)}.")
        else:
            said.append(f"Nothing is wrong at these positions. Acceptance: {_accepted(best)}.")
    if by["undecided"]:
        said.append(
            f"For {names['undecided']} give a larger --max-expansions or a smaller --gap; where floats "
            "cannot tell, that is said below."
        )
    return " ".join(said)


def _accepted(v: Mapping[str, Any]) -> str:
    accepted, limit = sum(v["acceptance"]), v["limit_mean"]
    if limit is None:
        return f"{accepted:.4f}"
    if accepted >= limit - SAME:
        return f"{accepted:.4f}, and no exact rule could accept more with these candidates"
    reached = "; optimal-joint accepts that much" if v.get("limit_kind") == Iid.name else ""
    return f"{accepted:.4f}; no exact rule could accept more than {limit:.4f}{reached}"


def _setting(verdict: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    name = str(verdict["label"])
    if len({v["temperature"] for v in verdicts}) > 1:
        name += f" at T = {verdict['temperature']:g}"
    return name if verdict.get("dataset") is None else f"{name} on {verdict['dataset']}"


def _rule_card(v: Mapping[str, Any]) -> str:
    dataset = "" if v.get("dataset") is None else f", {v['dataset']}"
    unknown = v["limit_mean"] is None
    bounded = v.get("until") == "verdict"  # what would be estimates are none
    tv, worst = (numbers(plain_number(v[key])) for key in ("tv_mean", "tv_max"))
    if _kind(v) == "exact" and not bounded:
        tv = _below(plain_number(v["tv_mean_bounds"][1]))
        worst = _below(v["tv_max"] + v["gap_max"] + v["rounding_max"])
    shown = {
        "tv": _interval(v["tv_mean_bounds"]) if bounded else tv,
        "kl": _interval(v["kl_mean_bounds"]) if bounded else numbers(plain_number(v["kl_mean"])),
        "accepted": _interval(v["acceptance_total_bounds"]) if bounded else f"{sum(v['acceptance']):.4f}",
    }
    items = [
        ("total variation, mean", shown["tv"]),
        *([] if bounded else [("total variation, worst", worst)]),
        ("KL(marginal || target), mean, nats", shown["kl"]),
        ("acceptance", shown["accepted"]),
        ("limit of exact rules", "unknown" if unknown else f"{v['limit_mean']:.4f}"),
        ("certified gap, largest", numbers(plain_number(v["gap_max"]))),
    ]
    kind = _kind(v)
    sub = f"n = {v['candidates']}, T = {v['temperature']:g}, {_positions(v['positions'])}{dataset}"
    return card(str(v["label"]), kind, TONES[kind], sub, items, _sentence(v, kind))


def _below(bound: float) -> str:
    """A certified upper bound in two digits, rounded up."""
    if bound <= 0:
        return "0"
    exponent = math.floor(math.log10(bound))
    return f"below {math.ceil(bound / 10.0 ** (exponent - 1)) / 10:g}e{exponent:+03d}"


def _sentence(v: Mapping[str, Any], kind: str) -> str:
    """The verdict."""
    many, total = v.get("verdict_counts", {}).get(kind), v["positions"]
    if kind == "exact":
        return "Emits the target's law at every position: what is left is rounding."
    if kind == "inexact":
        return f"Emits another law than the target's at {many} of {_positions(total)}: this is certain."
    return f"Neither proved nor refuted at {many} of {_positions(total)}."


def _positions(many: int) -> str:
    return f"{many} position{'' if many == 1 else 's'}"


def _interval(bounds: Sequence[Any]) -> str:
    return " to ".join(numbers(plain_number(end)) for end in bounds)
