"""Expected accepted length of a step over recorded trees of candidates, beside what bounds it.

The candidates of a tree dump are given, so each rule's law at each node is known and nothing is drawn: a node
is reached with the product of the probabilities on the path to it, and the expected number of emitted tokens,
the final one included, is the sum over all nodes. What is left to chance is which candidates were recorded,
and after which prefixes: that is what the standard error is about.

Beside it stand two bounds, each an unbiased estimate from the same candidates (proofs in
docs/explanation/trees.md):

* `limit`: of exact rules that decide at every node by the candidates of that node, as all rules here do;
* `limit_any`: of every exact rule, one that looks ahead before it accepts (block verification) included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.backends import get_backend
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, TreeDump
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.evidence.given_candidates import outcome_given_candidates
from resispec_verify.evidence.marginal import estimated_acceptance
from resispec_verify.rules import RULES, Rule, make_rule
from resispec_verify.tables.columns import Columns, column
from resispec_verify.tables.distinct import check_support
from resispec_verify.tables.means import mean_and_error
from resispec_verify.tables.reading import Clock, Reading, pairs_of
from resispec_verify.tables.row import label
from resispec_verify.tables.tree_limits import PrefixTree, limits_of
from resispec_verify.tables.tree_sampling import TreeSampling, how_drawn, prefix_tree
from resispec_verify.topology import Topology

__all__ = [
    "TreeRow",
    "add_trees",
    "default_rules",
    "flat_acceptance",
    "how_drawn",
    "recorded_tree",
]

Floats = NDArray[np.float64]
Key = tuple[str, Sampling, str, Topology]


@dataclass
class TreeRow(Columns):
    """One line: a rule on a tree; lists have one entry a prefix.

    `emitted` and `looked` add up, candidate by candidate, how often it was the one emitted, and how often its
    node was reached; `by_count` does so for nodes that are given only their first m candidates.
    """

    rule: Rule
    sampling: Sampling
    siblings: str
    topology: Topology
    length: list[float] = column()
    limit: list[float | None] = column()
    limit_any: list[float | None] = column()
    reached: list[list[float]] = column()
    prefix: list[int] = column()
    source: list[str] = column()
    emitted: Floats = field(default_factory=lambda: np.zeros(0))
    looked: Floats = field(default_factory=lambda: np.zeros(0))
    by_count: dict[int, tuple[Floats, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        most = max(map(len, self.topology.children))
        self.emitted, self.looked = np.zeros(most), np.zeros(most)

    def extend(self, other: TreeRow) -> None:
        """Append the prefixes of the same row of another dump."""
        super().extend(other)
        self.emitted, self.looked = self.emitted + other.emitted, self.looked + other.looked
        for m, (emitted, seen) in other.by_count.items():
            self.count(m, emitted, seen)

    def count(self, m: int, emitted: Floats, seen: float) -> None:
        """Add what was emitted, and how often a node was reached, where nodes get m candidates."""
        before = self.by_count.get(m, (np.zeros(m), 0.0))
        self.by_count[m] = (before[0] + emitted, before[1] + seen)

    def acceptance(self) -> list[float | None]:
        """P(candidate i is the one emitted | a node that has one is reached); None where none is."""
        return [
            float(e / seen) if seen > 0 else None for e, seen in zip(self.emitted, self.looked, strict=True)
        ]

    def acceptance_by_count(self) -> list[list[float] | None]:
        """Entry m - 1: the same for nodes that are given m candidates."""
        found = [self.by_count.get(m) for m in range(1, len(self.emitted) + 1)]
        return [None if f is None or not f[1] else (f[0] / f[1]).tolist() for f in found]

    def result(self) -> dict[str, Any]:
        """The row of ``"results"``."""
        length, limit, limit_any = map(_mean_and_error, (self.length, self.limit, self.limit_any))
        count = len(self.length)
        return {
            "rule": self.rule.name,
            "label": label(self.rule),
            "options": self.rule.options(),
            "temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k,
            "top_p": self.sampling.top_p,
            "min_p": self.sampling.min_p,
            "siblings": self.siblings,
            "topology": str(self.topology),
            "cost": self.topology.nodes,
            "levels": self.topology.levels,
            "prefixes": count,
            "accepted_length_mean": length[0],
            "accepted_length_se": length[1],
            "accepted_length_sd": None if length[1] is None else length[1] * count**0.5,
            "acceptance": self.acceptance(),
            "reached": np.mean(self.reached, axis=0).tolist(),
            "limit_mean": limit[0],
            "limit_se": limit[1],
            "limit_any_mean": limit_any[0],
            "limit_any_se": limit_any[1],
            "limit_kind": self.rule.proposal.name,
        }


def _mean_and_error(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The mean and its standard error; None unless all values are known."""
    known = [value for value in values if value is not None]
    return mean_and_error(known) if known and len(known) == len(values) else (None, None)


def recorded_tree(dump: TreeDump) -> Topology:
    """The shape of the trees of a dump; `InputError` where it is larger than any that is verified."""
    try:
        return Topology(tuple(dump.parent.tolist()))
    except InputError as error:
        raise InputError(f"{dump.path}: {error}") from None


def default_rules(siblings: str, topology: Topology) -> tuple[Rule, ...]:
    """All rules for such candidates that are defined at every node of the tree."""
    counts = {len(children) for children in topology.children if children}
    rules = (make_rule(name) for name, rule in RULES.items() if rule.proposal.name == siblings)
    return tuple(
        rule
        for rule in rules
        if all(rule.least_candidates <= n for n in counts)
    )  # fmt: skip


def add_trees(
    rows: dict[Key, TreeRow],
    rules: Sequence[Rule],
    dump: TreeDump,
    drawn: TreeSampling,
    topologies: Sequence[Topology],
    *,
    by_count: bool = False,
    advance: Callable[[int], Any] = lambda done: None,
) -> None:
    """Append the prefixes of a dump to ``rows``, keyed by rule label, sampling, siblings and topology.

    Parameters
    ----------
    rules : rules
        For candidates drawn as these were.
    drawn : TreeSampling
        From `how_drawn`.
    topologies : sequence of Topology
        Each the recorded tree or a part of it, the first children of each node.
    by_count : bool
        Also give each node only its first m candidates, for every m; it costs as many evaluations.
    advance : callable
        Called with 1 after each prefix.

    Raises
    ------
    InputError
        A tree that does not fit into the recorded one; a rule for other candidates, or one that needs more
        than a node has; logits that are none; candidates that were not drawn as it says.
    """
    recorded = recorded_tree(dump)
    topologies = tuple(dict.fromkeys(topologies))
    try:
        places = [topology.nodes_in(recorded) for topology in topologies]
    except InputError as error:
        raise InputError(f"{dump.path}: {error}") from None
    for rule in rules:
        _check_rule(rule, dump, drawn.siblings, topologies)
    for prefix in range(dump.prefixes):
        tree = prefix_tree(dump, prefix, drawn)
        known: dict[Any, Any] = {}
        for topology, place in zip(topologies, places, strict=True):
            _add_prefix(rows, rules, tree, drawn.siblings, topology, place, known, by_count)
            for rule in rules:
                row = rows[(label(rule), tree.sampling, drawn.siblings, topology)]
                row.prefix.append(prefix)
                row.source.append(str(dump.path))
        advance(1)


def _check_rule(rule: Rule, dump: TreeDump, siblings: str, topologies: Sequence[Topology]) -> None:
    if rule.proposal.name != siblings:
        raise InputError(
            f"{dump.path}: rule {rule.name!r} is for candidates drawn {rule.proposal.name!r}, and these were "
            f"drawn {siblings!r}; leave the rule out, or record trees with --siblings {rule.proposal.name}"
        )
    for topology in topologies:
        for node, children in enumerate(topology.children):
            if children and len(children) < rule.least_candidates:
                raise InputError(
                    f"{dump.path}: rule {rule.name!r} needs {rule.least_candidates} candidates, and node "
                    f"{node} of the tree has {len(children)}; leave the rule out, or take another tree"
                )


def _add_prefix(
    rows: dict[Key, TreeRow],
    rules: Sequence[Rule],
    tree: PrefixTree,
    siblings: str,
    topology: Topology,
    place: tuple[int, ...],
    known: dict[Any, Any],
    by_count: bool,
) -> None:
    """Walk one tree with every rule; `known` keeps what was found at a node of the recorded tree."""

    def outcome(rule: Rule, node: int, count: int) -> Floats:
        key = (label(rule), place[node], count)
        if key not in known:
            tokens = tree.tokens[[place[child] for child in topology.children[node][:count]]]
            laws = tree.target(place[node]), tree.draft(place[node])
            known[key] = outcome_given_candidates(rule, *laws, tokens).emitted
        return known[key]

    for rule in rules:
        key = (label(rule), tree.sampling, siblings, topology)
        row = rows.setdefault(key, TreeRow(rule, tree.sampling, siblings, topology))
        reached = np.zeros(topology.nodes)
        reached[0] = 1.0
        for node, children in enumerate(topology.children):
            if not children or reached[node] <= 0:
                continue
            emitted = outcome(rule, node, len(children))
            reached[list(children)] = reached[node] * emitted
            row.emitted[: len(children)] += reached[node] * emitted
            row.looked[: len(children)] += reached[node]
            if by_count:
                for m in range(max(rule.least_candidates, 1), len(children) + 1):
                    row.count(m, reached[node] * outcome(rule, node, m), reached[node])
        row.length.append(float(reached.sum()))
        row.reached.append(np.bincount(topology.depths, weights=reached).tolist())
        used = topology if rule.most_candidates is None else topology.with_at_most(rule.most_candidates)
        key = ("limits", rule.proposal, used)
        if key not in known:
            places = place if used == topology else tuple(place[n] for n in used.nodes_in(topology))
            known[key] = limits_of(tree, used, places, rule.proposal)
        row.limit.append(known[key][0])
        row.limit_any.append(known[key][1])


def flat_acceptance(
    dumps: Sequence[FlatDump], reading: Reading, rules: Sequence[Rule], candidates: int
) -> list[tuple[Rule, float, list[list[float] | None]]]:
    """Acceptance by candidate over the positions of flat dumps, for 1 to `candidates` candidates.

    Returns
    -------
    list of (rule, temperature, acceptance)
        One a rule and temperature. Entry m - 1 of the acceptance has the m means of a node that has m
        candidates, as `kernels.tree_growth.grow` takes them; None where the rule is not defined.

    Raises
    ------
    InputError
        Bad values, or a rule whose candidates must differ at a position with fewer tokens to draw.
    """
    budget = Budget(gap=1e-2, most_paths=1e6, most_states=200, until_decided=False)
    sums: dict[tuple[int, float], list[Floats]] = {}
    positions: dict[float, int] = {}
    for dump in dumps:
        for batch in pairs_of(dump, reading, backend=get_backend("numpy"), clock=Clock()):
            pair, t = batch.pair, batch.sampling.temperature
            check_support(rules, candidates, batch)
            positions[t] = positions.get(t, 0) + len(batch.positions)
            for i, rule in enumerate(rules):
                total = sums.setdefault((i, t), [np.zeros(m) for m in range(1, candidates + 1)])
                for m in range(max(rule.least_candidates, 1), candidates + 1):
                    n = rule.verifiable(m)
                    found = operational_marginals(rule, pair.target, pair.draft, n, budget=budget)
                    placed, left = np.asarray(found.acceptance), np.asarray(found.unexpanded)
                    total[m - 1][:n] += estimated_acceptance(placed, left).sum(axis=0)

    def means(rule: Rule, t: float, total: list[Floats]) -> list[list[float] | None]:
        known = enumerate(total, start=1)
        return [(row / positions[t]).tolist() if m >= rule.least_candidates else None for m, row in known]

    return [(rules[i], t, means(rules[i], t, total)) for (i, t), total in sums.items()]
