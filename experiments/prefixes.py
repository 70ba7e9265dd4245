"""All rules on the same prefixes, and on the same trees: what compares rules.

At some prefixes of text sampled from the target one tree is drawn from the draft, i.i.d., and every rule is
evaluated on it by the analysis of ``resispec-verify tree``: how far it gets on average given the tree,
without the noise of its own draws. One tree serves all topologies: ``dDbB`` is the part of it with the first
B children of every node down to level D, itself a tree of i.i.d. candidates. The log has one line a prefix; a
run that was ended goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pairs import Job, ModelPair
from tables import Mean, appended, line_logs, mean, ratio, read_log
from texts import sampled_prefixes

from resispec_verify.decoding import TreeModel, tree_model
from resispec_verify.distributions import Sampling
from resispec_verify.dumps.kinds.tree import TreeDump, tree_from_mapping
from resispec_verify.evidence.enumeration import operational_marginals
from resispec_verify.record.loops import draw
from resispec_verify.rules import Iid, SpecInfer, make_rule
from resispec_verify.tables.tree_sampling import TreeSampling
from resispec_verify.tables.trees import add_trees
from resispec_verify.topology import Topology

RULES = ("specinfer", "resispec", "optimal-sequential", "optimal-joint")


def log_of(job: Job, pair: str) -> Path:
    """Where the prefixes of a pair are."""
    return job.results / f"prefixes-{pair}.jsonl"


def union(topologies: list[Topology]) -> Topology:
    """The smallest tree of which complete trees are parts, breadth-first."""
    shapes = [(tree.levels, len(tree.children[0])) for tree in topologies]
    parents, level = [-1], [()]
    numbers: dict[tuple[int, ...], int] = {(): 0}
    while level:
        below = []
        for path in level:
            widths = [b for d, b in shapes if len(path) < d - 1 and all(c < b for c in path)]
            below += [(*path, c) for c in range(max(widths, default=0))]
        for path in below:
            numbers[path] = len(parents)
            parents.append(numbers[path[:-1]])
        level = below
    return Topology(tuple(parents))


def draw_tree(
    target: TreeModel,
    draft: TreeModel,
    topology: Topology,
    sampling: Sampling,
    generator: np.random.Generator,
) -> TreeDump:
    """A tree of i.i.d. candidates below the sequence that both models are at, as a dump in memory.

    Only nodes with children are computed: a leaf is nothing but its token.
    """
    tokens = [0] * topology.nodes
    inner = [node for node, children in enumerate(topology.children) if children]
    place = {node: i for i, node in enumerate(inner)}
    rows: list[np.ndarray] = []
    for depth in range(topology.levels - 1):
        level = [node for node in inner if topology.depths[node] == depth]
        if depth:
            new = [tokens[node] for node in level], [place[topology.parents[node]] for node in level]
            target.grow(*new)
            draft.grow(*new)
        rows += list(draft.logits([place[node] for node in level]))
        for node in level:
            law = sampling.probabilities(rows[place[node]], dtype=np.float64)
            for child in topology.children[node]:
                tokens[child] = draw(law, generator.random())
    mapping = {
        "parent": np.asarray(topology.parents),
        "tokens": np.asarray([tokens]),
        "target_logits": target.logits(range(len(inner)))[None],
        "draft_logits": np.stack(rows)[None],
    }
    return tree_from_mapping("tree", mapping)


def measure(job: Job, pair: ModelPair) -> None:
    """Add lines to the log of a pair, the first prefixes of all texts first, until its time is spent."""
    settings = job.config["prefixes"]
    path = log_of(job, pair.name)
    _, lines = read_log(path)
    known = {(line["temperature"], line["prompt"], line["offset"]) for line in lines}
    spent = sum(line["seconds"] for line in lines)
    prefixes = sampled_prefixes(job, pair)
    opened = pair.open()
    target, draft = tree_model(opened.target), tree_model(opened.draft)
    largest = union([Topology.parse(name) for name in settings["rules"]])
    with appended(path, pair.describe() | {"seed": job.config["seed"]} | settings) as add:
        for (offset, number, temperature), prefix in prefixes.items():
            if (temperature, number, offset) in known or spent > settings["seconds"]:
                continue
            begun = time.process_time()
            for model in (target, draft):
                model.open(prefix)
            seed = job.config["seed"] + number, offset, round(1000 * temperature)
            sampling = Sampling(temperature)
            dump = draw_tree(target, draft, largest, sampling, np.random.default_rng(seed))
            line: dict[str, Any] = {"temperature": temperature, "prompt": number, "offset": offset}
            line["nodes"] = limits_of_nodes(dump, largest, sampling)
            line |= evaluate(dump, settings["rules"], sampling)
            line["seconds"] = round(time.process_time() - begun, 2)
            spent += line["seconds"]
            add(line)


def limits_of_nodes(dump: TreeDump, topology: Topology, sampling: Sampling) -> list[list[float]]:
    """Acceptance with three candidates by SpecInfer, and the limit OT_3, at the root and its children."""
    logits = dump.logits(0)
    count = 1 + sum(bool(topology.children[child]) for child in topology.children[0])
    target, draft = (sampling.probabilities(rows[:count], dtype=np.float64) for rows in logits)
    accepted = np.asarray(operational_marginals(SpecInfer(), target, draft, 3).acceptance).sum(axis=-1)
    return np.stack([accepted, np.asarray(Iid().limit(target, draft, 3))], axis=-1).round(5).tolist()


def evaluate(dump: TreeDump, rules: dict[str, list[str]], sampling: Sampling) -> dict[str, dict[str, Any]]:
    """By topology: P(a token of level l is accepted), l = 1, 2, ..., by rule, and two limits of the length.

    The limits are those of ``resispec-verify tree``: of exact rules that decide node by node, and of all.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in rules}
    for chosen in {tuple(names) for names in rules.values()}:  # trees with the same rules share their laws
        trees = [Topology.parse(name) for name, names in rules.items() if tuple(names) == chosen]
        rows: dict[Any, Any] = {}
        add_trees(
            rows, [make_rule(name) for name in chosen], dump, TreeSampling(Iid().name, (sampling,)), trees
        )
        for row in rows.values():
            entry = found[str(row.topology)]
            entry[row.rule.name] = [round(x, 5) for x in row.reached[0][1:]]
            entry["limits"] = [round(row.limit[0], 5), round(row.limit_any[0], 5)]
    return found


class Measured(NamedTuple):
    """What a rule, or a limit, gives on a tree, over the prefixes of a pair at a temperature.

    Attributes
    ----------
    lengths : array (prefixes,)
        Accepted length given the tree.
    first : array (prefixes,)
        P(a candidate of the root is accepted).
    prompts : array (prefixes,)
        Which text each prefix is from.
    """

    lengths: np.ndarray
    first: np.ndarray
    prompts: np.ndarray

    @property
    def length(self) -> Mean:
        """Mean accepted length; prefixes of one text count as one cluster."""
        return mean(self.lengths, self.prompts)

    def ratio(self, other: Measured) -> Mean:
        """How often as long as another on the same prefixes."""
        return ratio(self.lengths, other.lengths, self.prompts)


def found(job: Job) -> dict[tuple[str, float, str, str], Measured]:
    """By pair, temperature, topology and rule; "limit" and "limit of any rule" stand beside the rules."""
    values: dict[tuple[str, float, str, str], list[tuple[float, float, int]]] = {}
    for head, log in line_logs(job, "prefixes"):
        for line in log:
            prompt = line["prompt"]
            for topology, entry in line.items():
                if not isinstance(entry, dict):
                    continue
                by_node, any_rule = entry["limits"]
                rows = {rule: (1.0 + sum(at), at[0]) for rule, at in entry.items() if rule != "limits"}
                rows |= {"limit": (by_node, math.nan), "limit of any rule": (any_rule, math.nan)}
                for rule, row in rows.items():
                    key = head["pair"], line["temperature"], topology, rule
                    values.setdefault(key, []).append((*row, prompt))
    return {key: Measured(*map(np.asarray, zip(*rows, strict=True))) for key, rows in values.items()}


def compared(job: Job, topologies: Sequence[str]) -> tuple[list[str], list[list[Any]], list[dict[str, Any]]]:
    """Head and rows of a table of some trees, and its records for a CSV file.

    Lengths with their errors, the two limits, and ratios to SpecInfer on the same prefixes.
    """
    same, rows, records = found(job), [], []
    for pair, temperature in dict.fromkeys((key[0], key[1]) for key in same):
        for topology in topologies:
            mine = {key[3]: m for key, m in same.items() if key[:3] == (pair, temperature, topology)}
            if not mine:
                continue
            base = mine["specinfer"]
            lengths = [mine[name].length if name in mine else "" for name in (*RULES, "limit")]
            gains = [mine[name].ratio(base) if name in mine else "" for name in RULES[1:]]
            rows.append([pair, f"{temperature:g}", topology, len(base.lengths), *lengths, *gains])
            records += [
                {
                    "pair": pair, "temperature": temperature, "tree": topology, "rule": name,
                    "accepted_length": m.length.value, "standard_error": m.length.error,
                    "over_specinfer": m.ratio(base).value, "over_specinfer_error": m.ratio(base).error,
                    "prefixes": len(m.lengths), "texts": len(set(m.prompts.tolist())),
                }
                for name, m in mine.items()
            ]  # fmt: skip
    head = ["pair", "T", "tree", "prefixes", *RULES, "limit", *(f"{name} / specinfer" for name in RULES[1:])]
    return head, rows, records
