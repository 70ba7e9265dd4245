"""Expected accepted length of a step over recorded trees of candidates, beside what bounds it.

The candidates of a tree dump are given, so each rule's law at each node is known and nothing is drawn: a node
is reached with the product of the probabilities on the path to it, and the expected number of emitted tokens,
the final one included, is the sum over all nodes. What is left to chance is which candidates were recorded,
and after which prefixes: that is what the standard error is about.

Beside it stand two bounds, each an unbiased estimate from the same candidates (proofs in docs/trees.md):

* `limit`: of exact rules that decide at every node by the candidates of that node, as all rules here do;
* `limit_any`: of every exact rule, one that looks ahead before it accepts (block verification) included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
from resispec_verify.runs.input_kind import kind_of_rows, refuse_applied
from resispec_verify.runs.over_dumps import Reading, logits_of, pairs_of
from resispec_verify.tables.distinct import check_support
from resispec_verify.tables.marginals import Clock, label
from resispec_verify.tables.tree_limits import PrefixTree, limits_of
from resispec_verify.topology import Topology

__all__ = [
    "Drawn",
    "TreeRow",
    "add_trees",
    "default_rules",
    "flat_acceptance",
    "how_drawn",
    "merge",
    "recorded_tree",
]

Floats = NDArray[np.float64]
Key = tuple[str, Sampling, str, Topology]


class Drawn(NamedTuple):
    """How the candidates of a dump were drawn.

    Attributes
    ----------
    siblings : str
        The name of the proposal.
    samplings : tuple of Sampling
        One a prefix.
    kind : {"logits", "probabilities", "log-probabilities"}
        What the rows are.
    """

    siblings: str
    samplings: tuple[Sampling, ...]
    kind: str = "logits"


@dataclass
class TreeRow:
    """One line: a rule on a tree; lists have one entry a prefix.

    `emitted` and `looked` add up, candidate by candidate, how often it was the one emitted, and how often its
    node was reached; `by_count` does so for nodes that are given only their first m candidates.
    """

    rule: Rule
    sampling: Sampling
    siblings: str
    topology: Topology
    length: list[float] = field(default_factory=list)
    limit: list[float | None] = field(default_factory=list)
    limit_any: list[float | None] = field(default_factory=list)
    reached: list[list[float]] = field(default_factory=list)
    emitted: Floats = field(default_factory=lambda: np.zeros(0))
    looked: Floats = field(default_factory=lambda: np.zeros(0))
    by_count: dict[int, tuple[Floats, float]] = field(default_factory=dict)
    prefix: list[int] = field(default_factory=list)
    source: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        most = max(map(len, self.topology.children))
        self.emitted, self.looked = np.zeros(most), np.zeros(most)

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
        limit, limit_any = _summary(self.limit), _summary(self.limit_any)
        length = _summary(self.length)
        return {
            "rule": self.rule.name,
            "options": self.rule.options(),
            "temperature": self.sampling.temperature,
            "top_k": self.sampling.top_k,
            "top_p": self.sampling.top_p,
            "min_p": self.sampling.min_p,
            "siblings": self.siblings,
            "topology": str(self.topology),
            "cost": self.topology.nodes,
            "levels": self.topology.levels,
            "prefixes": len(self.length),
            "accepted_length_mean": length[0],
            "accepted_length_se": length[1],
            "accepted_length_sd": length[2],
            "acceptance": self.acceptance(),
            "reached": np.mean(self.reached, axis=0).tolist(),
            "limit_mean": limit[0],
            "limit_se": limit[1],
            "limit_any_mean": limit_any[0],
            "limit_any_se": limit_any[1],
            "limit_kind": self.rule.proposal.name,
        }


def _summary(values: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """Mean, its standard error, standard deviation; None where unknown."""
    known = np.asarray([value for value in values if value is not None], np.float64)
    if not len(known) or len(known) < len(values):
        return None, None, None
    if len(known) == 1:
        return float(known[0]), None, None
    sd = float(np.std(known, ddof=1))
    return float(np.mean(known)), sd / len(known) ** 0.5, sd


def how_drawn(
    dump: TreeDump, asked: dict[str, Any], siblings: str | None = None, kind: str | None = None
) -> Drawn:
    """How the candidates of a dump were drawn: as it states, or else as is asked, or else i.i.d. at T = 1.

    Parameters
    ----------
    asked : dict
        Fields of `Sampling`; None where nothing is asked.
    siblings : str, optional
        The name of a proposal.
    kind : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows are. Probabilities may have what is stated already, and what is asked is then what is
        still to be applied.

    Raises
    ------
    InputError
        What is asked is not what the dump states: those candidates would have been others. Rows that look
        like probabilities, or that may have a temperature or filter already.
    """
    stated = dump.sampling
    parts = [FlatDump(dump.path, dump.target, dump.draft)]
    found_kind = kind_of_rows(dump.path, parts, kind)
    processed = found_kind != "logits"
    stated_all = stated if isinstance(stated, tuple) else (stated or {},)
    options = {name: value for name, value in asked.items() if value is not None}
    refuse_applied(parts, kind, [Sampling(**options)] if options else None, stated_all)  # type: ignore[arg-type]
    each = list(stated) if isinstance(stated, tuple) else [stated] * dump.prefixes
    samplings = []
    for i, one in enumerate(each):
        try:
            found = Sampling(**(one or {}))  # type: ignore[arg-type]
        except InputError as error:
            raise InputError(f"{dump.path}: meta['sampling'], prefix {i}: {error}") from None
        given = {name: value for name, value in asked.items() if value is not None}
        for name, value in given.items():
            if one is not None and not processed and getattr(found, name) != value:
                option, had = name.replace("_", "-"), getattr(found, name)
                raise InputError(
                    f"{dump.path}: its candidates were drawn {_with(option, had)}, so they tell nothing of "
                    f"{option} {value:g}; leave --{option} out, or record trees with it"
                )
        if processed and given:
            found = Sampling(**given)
        samplings.append(replace(found, **given) if one is None else found)
    said = dump.siblings
    if said is not None and siblings is not None and said != siblings:
        raise InputError(f"{dump.path}: says that its siblings are {said!r}; leave --siblings {siblings} out")
    way = said if said is not None else siblings or "iid"
    if siblings is not None and siblings not in {rule.proposal.name for rule in RULES.values()}:
        raise InputError(f"no rule is for candidates drawn {siblings!r}; see --siblings of `record`")
    if way in _DISTINCT:
        _check_distinct(dump, way)
    return Drawn(way, tuple(samplings), found_kind)


_DISTINCT = {rule.proposal.name for rule in RULES.values() if getattr(rule.proposal, "distinct", False)}


def _with(option: str, value: Any) -> str:
    return f"without {option}" if value is None else f"with {option} {value:g}"


def _check_distinct(dump: TreeDump, kind: str) -> None:
    for node, children in enumerate(dump.children):
        rows = np.sort(dump.tokens[:, children], axis=1)
        again = (rows[:, 1:] == rows[:, :-1]).any(axis=1)
        if again.any():
            raise InputError(
                f"{dump.path}: prefix {int(np.argmax(again))}: the candidates after node {node} repeat, so "
                f"they were not drawn {kind!r}; say how they were (meta['siblings'] or --siblings)"
            )


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
    drawn: Drawn,
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
    drawn : Drawn
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
        tree = _prefix_tree(dump, prefix, drawn)
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


def _prefix_tree(dump: TreeDump, prefix: int, drawn: Drawn) -> PrefixTree:
    """The laws and candidates of one prefix, checked against each other."""
    sampling, logits = drawn.samplings[prefix], dump.logits(prefix)
    laws = [
        sampling.probabilities(
            logits_of(drawn.kind, rows, f"{dump.path}: prefix {prefix}: {name}", 0, stored.dtype),
            dtype=np.float64,
        )
        for name, rows, stored in (
            ("target_logits", logits.target, dump.target), ("draft_logits", logits.draft, dump.draft)
        )
    ]  # fmt: skip
    tree = PrefixTree(laws[0], laws[1], dump.target_row, dump.draft_row, dump.tokens[prefix], sampling)
    for node, children in enumerate(dump.children):
        if not len(children):
            continue
        law = tree.draft(node)
        chances = law[tree.tokens[children]]
        if drawn.siblings == "fixed":
            best = np.sort(np.partition(law, len(law) - len(children))[-len(children) :])[::-1]
            if (chances != best).any():
                raise InputError(
                    f"{dump.path}: prefix {prefix}: the candidates after node {node} are not the draft's "
                    "best, the best first; say how they were drawn (meta['siblings'] or --siblings)"
                )
        elif not (chances > 0).all():
            child = children[int(np.argmin(chances > 0))]
            raise InputError(
                f"{dump.path}: prefix {prefix}, node {child}: token {tree.tokens[child]} has draft "
                "probability 0, so it was not drawn from this draft; check temperature and filters"
            )
    return tree


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
                _count(
                    row, rule, reached[node], [outcome(rule, node, m + 1) for m in _counts(rule, children)]
                )
        row.length.append(float(reached.sum()))
        row.reached.append(np.bincount(topology.depths, weights=reached).tolist())
        used = topology if rule.most_candidates is None else topology.with_at_most(rule.most_candidates)
        key = ("limits", rule.proposal, used)
        if key not in known:
            places = place if used == topology else tuple(place[n] for n in used.nodes_in(topology))
            known[key] = limits_of(tree, used, places, rule.proposal)
        row.limit.append(known[key][0])
        row.limit_any.append(known[key][1])


def _counts(rule: Rule, children: Sequence[int]) -> range:
    return range(max(rule.least_candidates, 1) - 1, len(children))


def _count(row: TreeRow, rule: Rule, weight: float, outcomes: Sequence[Floats]) -> None:
    for emitted in outcomes:
        before, seen = row.by_count.get(len(emitted), (np.zeros(len(emitted)), 0.0))
        row.by_count[len(emitted)] = (before + weight * emitted, seen + weight)


def merge(rows: dict[Key, TreeRow], fresh: dict[Key, TreeRow]) -> None:
    """Pool the rows of another dump into ``rows``."""
    for key, row in fresh.items():
        if key not in rows:
            rows[key] = row
            continue
        mine = rows[key]
        for name in ("length", "limit", "limit_any", "reached", "prefix", "source"):
            getattr(mine, name).extend(getattr(row, name))
        mine.emitted, mine.looked = mine.emitted + row.emitted, mine.looked + row.looked
        for m, (emitted, seen) in row.by_count.items():
            before = mine.by_count.get(m, (np.zeros(m), 0.0))
            mine.by_count[m] = (before[0] + emitted, before[1] + seen)


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
        for members in pairs_of(dump, reading, backend=get_backend("numpy"), clock=Clock()):
            pair, t = members.pair, members.sampling.temperature
            check_support(rules, candidates, pair, members.positions, str(dump.path))
            positions[t] = positions.get(t, 0) + len(members.positions)
            for i, rule in enumerate(rules):
                total = sums.setdefault((i, t), [np.zeros(m) for m in range(1, candidates + 1)])
                for m in range(max(rule.least_candidates, 1), candidates + 1):
                    n = rule.verifiable(m)
                    found = operational_marginals(rule, pair.target, pair.draft, n, budget=budget)
                    placed, left = np.asarray(found.acceptance), np.asarray(found.unexpanded)
                    total[m - 1][:n] += estimated_acceptance(placed, left).sum(axis=0)
    return [
        (
            rules[i],
            t,
            [
                (row / positions[t]).tolist() if m >= rules[i].least_candidates else None
                for m, row in enumerate(total, start=1)
            ],
        )
        for (i, t), total in sums.items()
    ]
