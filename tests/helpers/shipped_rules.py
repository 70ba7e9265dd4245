"""What the tests know of each shipped rule: one row a rule, from which their lists follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from resispec_verify.rules import (
    CSD,
    EASD,
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
    """What `resispec-verify rules` has to say of it, and values to test besides the one without parameters.

    A rule with open parameters has no such value, and needs one here.
    """

    measured: str
    values: tuple[Any, ...] = ()
    #: Whether it accepts one candidate as often as an exact rule can.
    best_alone: bool = True


KNOWN = {
    "speculative": Known("exact"),
    "specinfer": Known("exact"),
    "specinfer-skip-duplicates": Known("inexact"),
    "sequoia": Known("exact"),
    "eagle": Known("exact"),
    "token-match": Known("exact", best_alone=False),
    "k-seq": Known("exact"),
    "spechub": Known("exact"),
    "spechub-force": Known("inexact"),
    "sglang": Known("exact-if", (SGLang(0.5, 0.75),)),
    "llama-cpp": Known("inexact"),
    "shared-noise": Known("inexact"),
    "optimal-sequential": Known("exact"),
    "optimal-joint": Known("exact"),
    "optimal-without-replacement": Known("exact"),
    "optimal-siblings": Known("exact", (OptimalSiblings((1.0, 0.5)),)),
    "resispec": Known("inexact"),
    "sequoia+resispec": Known("inexact"),
    "eagle+resispec": Known("inexact"),
    "csd": Known("not measured", (CSD(ratio=0.2, memory=[(1, 0), (3, 5)]),)),
    "easd": Known(
        "exact-if", tuple(EASD(**_GATE, rejects=what) for what in ("position", "overlap")), best_alone=False
    ),
    "relaxed": Known("inexact", (Relaxed(topk=2, delta=0.1),)),
    "synthetic": Known("inexact", (Synthetic(rate=0.3), Synthetic(rate=0.3, correction="target"))),
    "redraw": Known("inexact", (Redraw(lenience=1.6),)),
    "block": Known("exact-if", (Block("token"), Block("block", "product"), Block("token", "product"))),
    "medusa": Known("inexact", (Medusa(correction="target"),)),
    "openvino": Known("inexact"),
}


def measured(*verdicts: str) -> list[str]:
    """The rules of which these are the verdicts, in the order of the table."""
    return [name for name, known in KNOWN.items() if known.measured in verdicts]


def values_of(rules: Any) -> Iterator[Any]:
    """All values of these rules to test: the one without parameters, where there is one, and those above."""
    for rule in rules.values():
        yield from () if rule.open_parameters else (rule(),)
        yield from KNOWN[rule.name].values if rule.name in KNOWN else ()
