"""Time of a verified node, rule beside rule: what a rule does with a tree is computed, laws given.

    python experiments/trees/cost.py

A tree of 13 nodes over 4,096 tokens on one thread of NumPy: 3 levels of 3 children, or 3 paths of 4, or one
path of 12, as a rule needs. A rule over trees computes all nodes; one that decides node by node is timed on
every node too, of which a decoder visits a part. Rules take turns; the least of the repeats counts. Only
ratios between the lines mean anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from resispec_verify import rules
from resispec_verify.evidence.given_candidates import outcome_given_candidates
from resispec_verify.rules.tree_rule import children_of

OUT = Path(__file__).resolve().parents[1] / "results" / "trees" / "cost.json"
VOCAB, REPEATS = 4096, 15
WIDE = (-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
PATHS = (-1, 0, 0, 0, *range(1, 10))
#: How a rule's work at a node grows with the vocabulary V, as its file reads; K is the number of paths.
ORDER = {
    "block": "V", "hsd": "V", "hsd, cap = last": "V", "speculative": "V", "gbv": "V log V + V K",
    "gbv, ties = drawn": "V log V + V K", "specinfer": "V", "optimal-sequential": "V log V",
    "optimal-joint": "V log V", "traversal": "V", "sequoia": "V", "optimal-without-replacement": "V log V",
    "univer": "V", "eagle": "V",
}  # fmt: skip


def laws(rng: np.random.Generator, *lead: int) -> np.ndarray:
    """Random laws of about the sharpness of a language model's."""
    logits = 3.0 * rng.standard_normal((*lead, VOCAB))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def drawn(
    rng: np.random.Generator, drafts: np.ndarray, parents: tuple[int, ...], siblings: str
) -> np.ndarray:
    """The tokens of a tree."""
    tokens = np.zeros(len(parents), np.int64)
    for node, below in enumerate(children_of(parents)):
        if not below:
            continue
        if siblings == "iid":
            tokens[below] = rng.choice(VOCAB, len(below), p=drafts[node])
        elif siblings == "without-replacement":
            tokens[below] = rng.choice(VOCAB, len(below), replace=False, p=drafts[node])
        else:
            tokens[below] = np.argsort(-drafts[node])[: len(below)]
    return tokens


def work() -> dict[str, Callable[[], object]]:
    """What is timed, by rule."""
    rng = np.random.default_rng(0)
    p, q = laws(rng, 13), laws(rng, 13)
    path = rng.integers(0, VOCAB, 12)
    timed: dict[str, Callable[[], object]] = {}

    def tree(name: str, rule: rules.TreeRule, parents: tuple[int, ...]) -> None:
        tokens = drawn(rng, q, parents, rule.siblings)[None]
        timed[name] = lambda: rule.outcome(p[None], q[None], tokens, parents)

    def node(name: str, siblings: str) -> None:
        rule = rules.make_rule(name)
        tokens = drawn(rng, q, WIDE, siblings)
        inner = [(v, tokens[below]) for v, below in enumerate(children_of(WIDE)) if below]
        timed[name] = lambda: [outcome_given_candidates(rule, p[v], q[v], found) for v, found in inner]

    timed["block"] = lambda: rules.Block().outcome(p[None], q[None, :12], path[None])
    timed["hsd"] = lambda: rules.HSD().outcome(p[None], q[None, :12], path[None])
    timed["hsd, cap = last"] = lambda: rules.HSD(cap="last").outcome(p[None], q[None, :12], path[None])
    tree("gbv", rules.GBV(), PATHS)
    tree("gbv, ties = drawn", rules.GBV(ties="drawn"), PATHS)
    tree("traversal", rules.Traversal(), WIDE)
    tree("univer", rules.UniVer(), WIDE)
    for name in ("specinfer", "optimal-sequential", "optimal-joint"):
        node(name, "iid")
    for name in ("sequoia", "optimal-without-replacement"):
        node(name, "without-replacement")
    node("eagle", "fixed")
    speculative = rules.make_rule("speculative")
    timed["speculative"] = lambda: [
        outcome_given_candidates(speculative, p[i], q[i], path[i : i + 1]) for i in range(12)
    ]
    return timed


def main() -> None:
    """Time, and write."""
    timed = work()
    least = dict.fromkeys(timed, float("inf"))
    for _ in range(REPEATS):
        for name, call in timed.items():
            started = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - started)
    found = {
        name: {"order": ORDER[name], "microseconds": round(1e6 * seconds / 12, 1)}
        for name, seconds in least.items()
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(
        json.dumps({"vocab": VOCAB, "nodes": 12, "rules": found}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
