"""What the tests know of each shipped rule: one row a rule, from which their lists follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from resispec_verify.rules import (
    CSD,
    EASD,
    GBV,
    HSD,
    Block,
    Medusa,
    OptimalSiblings,
    Redraw,
    Relaxed,
    SGLang,
    Synthetic,
)

_GATE = {"target_entropy": 1.0, "draft_entropy": 1.0, "top_n": 3, "overlap": 0.3}


@dataclass(frozen=True)
class Known:
    """What is known of a rule, against which the tests hold what they find.

    Attributes
    ----------
    measured : "exact", "inexact", "exact-if" or "not measured"
        What `resispec-verify rules` has to say of it.
    worst : str or None
        The largest total variation there as a fraction, with the rule's `measured_with`, or `inexact_with`
        where it is "exact-if"; None where nothing is wrong or measured. Check its witness by hand.
    values : tuple
        Values to test besides the one without parameters. A rule with open parameters has no such value, and
        needs one here.
    best_alone, best_always : bool
        Whether it accepts as often as an exact rule can with such candidates: one candidate, and any number.
    """

    measured: str
    worst: str | None = None
    values: tuple[Any, ...] = ()
    best_alone: bool = True
    best_always: bool = False


KNOWN = {
    "speculative": Known("exact"),
    "specinfer": Known("exact"),
    "specinfer-skip-duplicates": Known("inexact", "3/40"),
    "sequoia": Known("exact"),
    "eagle": Known("exact", best_always=True),
    "token-match": Known("exact", best_alone=False),
    "k-seq": Known("exact"),
    "spechub": Known("exact", best_always=True),
    "spechub-force": Known("inexact", "1/2000"),
    "sglang": Known("exact-if", "1/2", (SGLang(0.5, 0.75),), best_always=True),
    "llama-cpp": Known("inexact", "3/5"),
    "shared-noise": Known("inexact", "2/45"),
    "optimal-sequential": Known("exact"),
    "optimal-joint": Known("exact"),
    "optimal-without-replacement": Known("exact"),
    "optimal-siblings": Known("exact", None, (OptimalSiblings((1.0, 0.5)),)),
    "resispec": Known("inexact", "52/135"),
    "sequoia+resispec": Known("inexact", "3332/9165"),
    "eagle+resispec": Known("inexact", "7/10"),
    "csd": Known("not measured", None, (CSD(ratio=0.2, memory=[(1, 0), (3, 5)]),)),
    "easd": Known(
        "exact-if",
        "21/100",
        tuple(EASD(**_GATE, rejects=what) for what in ("position", "overlap")),
        best_alone=False,
    ),
    "relaxed": Known("inexact", "1", (Relaxed(topk=2, delta=0.1),)),
    "synthetic": Known("inexact", "1/2", (Synthetic(rate=0.3), Synthetic(rate=0.3, correction="target"))),
    "redraw": Known("inexact", "1/5", (Redraw(lenience=1.6),)),
    "block": Known(
        "exact-if", "1/80", (Block("token"), Block("block", "product"), Block("token", "product"))
    ),
    "hsd": Known("exact-if", "7/100", (HSD("last"),)),
    "medusa": Known("inexact", "249/250", (Medusa(correction="target"),)),
    "openvino": Known("inexact", "1"),
    "traversal": Known("exact"),
    "univer": Known("exact"),
    "gls": Known("exact", best_alone=False),
    "gbv": Known("exact-if", "83409/523030", (GBV("drawn"),)),
}


def measured(*verdicts: str) -> list[str]:
    """The rules of which these are the verdicts, in the order of the table."""
    return [name for name, known in KNOWN.items() if known.measured in verdicts]


def remedy(name: str, **changed: Any) -> str:
    """What to do about a row that says something else than what is found, in words."""
    known = KNOWN.get(name, Known("exact"))
    wanted = [f"{key}={value!r}" for key, value in changed.items() if getattr(known, key) != value]
    said = ", ".join(wanted)
    return f"if that is right of {name!r}, add {said} to its Known in tests/helpers/shipped_rules.py"


def values_of(rules: Any) -> Iterator[Any]:
    """All values of these rules to test: the one without parameters, where there is one, and those above."""
    for rule in rules.values():
        yield from () if rule.open_parameters else (rule(),)
        yield from KNOWN[rule.name].values if rule.name in KNOWN else ()
