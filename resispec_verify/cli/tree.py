"""`resispec-verify tree`: what a tree of candidates costs, and how many tokens a step over it emits."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.kl_settings import refuse_without
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    progress,
    table_console,
    write_csv,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Text, Texts
from resispec_verify.errors import InputError
from resispec_verify.schema import envelope

if TYPE_CHECKING:
    from resispec_verify.rules import Rule
    from resispec_verify.tables.trees import TreeRow
    from resispec_verify.topology import Topology

__all__ = ["tree"]

MOST_GROWN = 512
MOST_BRANCHES = 16


def tree(
    *,
    logits: Files | None = None,
    rule: Names | None = None,
    topology: Texts | None = None,
    siblings: Text | None = None,
    temperature: Number | None = None,
    top_k: Count | None = None,
    top_p: Number | None = None,
    min_p: Number | None = None,
    grow: Count | None = None,
    levels: Count | None = None,
    candidates: Count | None = None,
    acceptance: Text | None = None,
    pad_vocab: Flag = False,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    json: File | None = None,
    csv: File | None = None,
) -> int:
    """Accepted length over recorded trees, beside its bounds; what a tree costs; the best tree of a budget.

    Parameters
    ----------
    logits
        One or more tree dumps; with --grow flat ones too. Without: only what the trees of --topology cost.
    rule
        A rule; repeat for several. Default: all for candidates drawn as those of the dump.
    topology
        "d5b3": 5 levels, the root included, 3 children a node; or the parent of each node, "-1,0,0,1". Of a
        dump, a part of the recorded tree. Repeat for several. Default: the recorded tree.
    siblings
        How the candidates of a dump that does not say were drawn: iid (default), without-replacement, fixed,
        pairs.
    temperature
        At which the candidates of a dump that does not say were drawn. Default: 1.
    top_k
        The same, for a filter.
    top_p
        The same, for a filter.
    min_p
        The same, for a filter.
    grow
        Find the tree of at most so many nodes, the root included, with the longest step.
    levels
        With --grow: at most so many levels, the root included.
    candidates
        With --grow and a flat dump: at most so many children a node (4).
    acceptance
        With --grow, instead of a dump: the probability that the first, second, ... candidate is emitted, as
        "0.6,0.2,0.1".
    pad_vocab
        Pad the narrower of two vocabularies with probability 0.
    input
        What the rows are. Default: logits; rows that look like something else are refused.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a prefix here; without a dump, one a tree.
    """
    check_writable(json=json, csv=csv, inputs=files_read(logits or []))
    trees = list(dict.fromkeys(_parsed(text) for text in topology or []))
    asked = _asked(temperature, top_k, top_p, min_p)
    failures: list[str] = []
    if grow is None:
        refuse_without("--grow", levels=levels, candidates=candidates, acceptance=acceptance)
    else:
        _check_growth(grow, levels, candidates, topology)
    if not logits:
        if grow is None and not trees:
            raise InputError("nothing to do: give --logits PATH..., --topology TREE, or --grow N")
        if grow is not None and acceptance is None:
            raise InputError("--grow needs probabilities: give --acceptance A,B,... or --logits PATH...")
        refuse_without(
            "--logits",
            rule=rule,
            siblings=siblings,
            **asked,
            candidates=candidates,
            pad_vocab=pad_vocab,
            input=input,
        )
    elif acceptance is not None:
        raise InputError("give either --acceptance or --logits, not both")
    if acceptance is not None and grow is not None:
        results = [_grown_by_hand(acceptance, grow, levels)]
        records = [{k: v for k, v in results[0].items() if k != "acceptance"}]
    elif not logits:
        results = [_shape(one) for one in trees]
        records = [{k: v for k, v in r.items() if k != "nodes_by_level"} for r in results]
    elif grow is not None:
        results, failures = _grown(logits, rule, asked, siblings, pad_vocab, input, grow, levels, candidates)
        records = [{k: v for k, v in r.items() if k not in ("acceptance", "options")} for r in results]
    else:
        rows, failures = _evaluated(logits, rule, trees, asked, siblings, pad_vocab, input)
        results = [row.result() for row in rows]
        records = [record for row in rows for record in _records(row)]
    if results:
        write_json(json, envelope("tree", results))
        write_csv(csv, records)
        _print(results, table_console(json, csv))
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _parsed(text: str) -> Topology:
    from resispec_verify.topology import Topology

    try:
        return Topology.parse(text)
    except InputError as error:
        raise InputError(f"--topology: {error}") from None


def _asked(
    temperature: float | None, top_k: int | None, top_p: float | None, min_p: float | None
) -> dict[str, Any]:
    from resispec_verify.distributions import Sampling

    try:
        Sampling(1.0 if temperature is None else temperature, top_k, top_p, min_p)
    except InputError as error:  # its message begins with the field, spelled as in the option
        raise InputError(f"--{error}") from None
    return {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}


def _check_growth(nodes: int, levels: int | None, candidates: int | None, topology: object) -> None:
    if topology:
        raise InputError("--grow finds a tree: leave --topology out")
    if not 1 <= nodes <= MOST_GROWN:
        raise InputError(f"--grow must be in 1..{MOST_GROWN}, got {nodes}")
    if levels is not None and levels < 1:
        raise InputError(f"--levels must be at least 1, got {levels}")
    if candidates is not None and not 1 <= candidates <= MOST_BRANCHES:
        raise InputError(f"--candidates must be in 1..{MOST_BRANCHES}, got {candidates}")


def _shape(topology: Topology) -> dict[str, Any]:
    depths = topology.depths
    return {
        "topology": str(topology),
        "cost": topology.nodes,
        "levels": topology.levels,
        "leaves": sum(not children for children in topology.children),
        "nodes_by_level": [depths.count(d) for d in range(topology.levels)],
    }


def _grown_by_hand(text: str, nodes: int, levels: int | None) -> dict[str, Any]:
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--acceptance must be numbers such as 0.6,0.2,0.1; got {text!r}") from None
    if not all(0 <= value <= 1 for value in given) or sum(given) > 1 + 1e-9:
        raise InputError(f"--acceptance {text}: probabilities in [0, 1] that sum to at most 1 are needed")
    if len(given) > MOST_BRANCHES:
        raise InputError(f"--acceptance has {len(given)} values; at most {MOST_BRANCHES} children a node")
    return _best_tree([given[:m] for m in range(1, len(given) + 1)], nodes, levels)


def _best_tree(acceptance: list[Any], nodes: int, levels: int | None) -> dict[str, Any]:
    from resispec_verify.kernels.optimal.tree_growth import grow
    from resispec_verify.topology import Topology

    parents, length = grow(acceptance, nodes, levels)
    found = Topology(tuple(parents))
    return {
        "topology": str(found),
        "cost": found.nodes,
        "levels": found.levels,
        "predicted_length": length,
        "acceptance": acceptance,
    }


def _each_once(paths: list[Path]) -> list[Path]:
    seen = set()
    for path in paths:
        if os.path.realpath(path) in seen:
            raise InputError(f"{path}: given twice; its prefixes would count twice")
        seen.add(os.path.realpath(path))
    return paths


def _rules(names: list[str] | None, siblings: str, topologies: list[Topology]) -> tuple[Rule, ...]:
    from resispec_verify.cli.user_rules import choose_rules
    from resispec_verify.rules import PATH_RULES
    from resispec_verify.tables.trees import default_rules

    if not names:
        return tuple(
            dict.fromkeys(
                rule for topology in topologies for rule in default_rules(siblings, topology)
            )
        )  # fmt: skip
    most = max((len(children) for topology in topologies for children in topology.children), default=0)
    chosen: list[Rule] = []
    for name in dict.fromkeys(names):
        if name in PATH_RULES:
            raise InputError(f"rule {name!r} verifies paths, not the candidates of a node; leave it out")
        # Whether it fits the tree is checked node by node; two candidates are what every rule is defined for.
        (rule,) = choose_rules([name], 2)
        if any(rule.name == other.name for other in chosen):
            raise InputError(f"--rule {name}: the name {rule.name!r} is taken; call the rule something else")
        if most < rule.least_candidates:
            raise InputError(
                f"rule {rule.name!r} needs {rule.least_candidates} candidates, and no node of the tree has "
                f"more than {most}; leave it out"
            )
        chosen.append(rule)
    return tuple(chosen)


def _evaluated(
    paths: list[Path],
    names: list[str] | None,
    topologies: list[Topology],
    asked: dict[str, Any],
    siblings: str | None,
    pad: bool,
    input: str | None,
    by_count: bool = False,
) -> tuple[list[TreeRow], list[str]]:
    """The rows of all dumps, and what could not be read."""
    from resispec_verify.dumps import open_tree
    from resispec_verify.tables.tree_sampling import how_drawn
    from resispec_verify.tables.trees import add_trees, merge, recorded_tree

    rows: dict[Any, TreeRow] = {}
    failures: list[str] = []
    for path in _each_once(paths):
        fresh: dict[Any, TreeRow] = {}
        try:
            dump = open_tree(path, pad_vocab=pad)
            drawn = how_drawn(dump, asked, siblings, input)
            used = topologies or [recorded_tree(dump)]
            rules = _rules(names, drawn.siblings, used)
            if not rules:
                raise InputError(
                    f"{path}: no rule here verifies candidates drawn {drawn.siblings!r} at every node of "
                    "this tree; see `resispec-verify rules`, or take another --topology"
                )
            with progress(str(path), dump.prefixes) as advance:
                add_trees(fresh, rules, dump, drawn, used, by_count=by_count, advance=advance)
        except InputError as error:
            failures.append(str(error))
            continue
        merge(rows, fresh)
    return list(rows.values()), failures


def _grown(
    paths: list[Path],
    names: list[str] | None,
    asked: dict[str, Any],
    siblings: str | None,
    pad: bool,
    input: str | None,
    nodes: int,
    levels: int | None,
    candidates: int | None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """The best tree for each rule, by its acceptance over tree dumps or flat ones."""
    from resispec_verify.dumps import kind, load_mapping

    kinds = set()
    for path in filter(Path.exists, paths):
        with contextlib.suppress(InputError):  # which is said when it is opened
            kinds.add("tree" if path.is_file() and kind(load_mapping(path)) == "tree" else "flat")
    if len(kinds) > 1:
        raise InputError("--grow takes tree dumps or flat ones, not both at once")
    if kinds == {"tree"}:
        if candidates is not None:
            raise InputError(
                "--candidates is for flat dumps: a tree dump has as many as it has; leave it out"
            )
        rows, failures = _evaluated(paths, names, [], asked, siblings, pad, input, by_count=True)
        found = [(row.rule, row.sampling.temperature, row.acceptance_by_count()) for row in rows]
    else:
        if siblings is not None:
            raise InputError(
                "--siblings is for tree dumps: in a flat one candidates are drawn as a rule says"
            )
        found, failures = _flat_acceptance(paths, names, asked, pad, input, candidates or 4)
    results = [
        {"rule": rule.name, "options": rule.options(), "temperature": t} | _best_tree(rates, nodes, levels)
        for rule, t, rates in found
    ]
    return results, failures


def _flat_acceptance(
    paths: list[Path],
    names: list[str] | None,
    asked: dict[str, Any],
    pad: bool,
    input: str | None,
    candidates: int,
) -> tuple[list[tuple[Rule, float, list[Any]]], list[str]]:
    """Mean acceptance by candidate, of each rule with 1, 2, ... candidates."""
    from resispec_verify.cli.kl_settings import make_reading
    from resispec_verify.cli.output import open_dump
    from resispec_verify.tables.trees import flat_acceptance

    filters = (asked["top_k"], asked["top_p"], asked["min_p"])
    given = None if asked["temperature"] is None else [asked["temperature"]]
    reading = make_reading(given, filters, (None, None, None), input, "float64", None, None)
    dumps, failures = [], []
    for path in _each_once(paths):
        try:
            dumps.append(open_dump(path, pad_vocab=pad))
        except InputError as error:
            failures.append(str(error))
    chosen = names or ["specinfer", "optimal-sequential", "optimal-joint"]
    rules = tuple(rule for name in dict.fromkeys(chosen) for rule in _rules([name], "", [_star(candidates)]))
    return flat_acceptance(dumps, reading, rules, candidates), failures


def _star(children: int) -> Topology:
    from resispec_verify.topology import Topology

    return Topology.complete(2, children)


def _records(row: TreeRow) -> list[dict[str, Any]]:
    from resispec_verify.tables.row import label

    return [
        {
            "rule": label(row.rule),
            "temperature": row.sampling.temperature,
            "siblings": row.siblings,
            "topology": str(row.topology),
            "path": row.source[i],
            "prefix": row.prefix[i],
            "accepted_length": row.length[i],
            "limit": "" if row.limit[i] is None else row.limit[i],
            "limit_any": "" if row.limit_any[i] is None else row.limit_any[i],
        }
        for i in range(len(row.prefix))
    ]


def _print(results: list[dict[str, Any]], console: Any) -> None:
    from resispec_verify.cli.kl_table import print_records

    if "nodes_by_level" in results[0]:
        records = [
            {
                "tree": _cut(r["topology"]),
                "cost": str(r["cost"]),
                "levels": str(r["levels"]),
                "leaves": str(r["leaves"]),
                "nodes by level": " ".join(map(str, r["nodes_by_level"])),
            }
            for r in results
        ]
        print_records(console, "trees: one verification costs a target pass over so many nodes", records)
    elif "predicted_length" in results[0]:
        records = [
            {
                "rule": r.get("rule", "by hand"),
                "T": f"{r['temperature']:g}" if "temperature" in r else "",
                "cost": str(r["cost"]),
                "levels": str(r["levels"]),
                "length": f"{r['predicted_length']:.4f}",
            }
            for r in results
        ]
        print_records(
            console, "the tree with the longest step, if acceptance is the same at every node", records
        )
        print_lines(console, [f"{r.get('rule', 'by hand')}: {r['topology']}" for r in results])
    else:
        _print_lengths(results, console)


def _print_lengths(results: list[dict[str, Any]], console: Any) -> None:
    from resispec_verify.cli.kl_table import print_records

    def number(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.3f}"

    records = [
        {
            "rule": r["rule"],
            "tree": _cut(r["topology"]),
            "T": f"{r['temperature']:g}",
            "cost": str(r["cost"]),
            "prefixes": str(r["prefixes"]),
            "length": number(r["accepted_length_mean"]),
            "+-": number(r["accepted_length_se"]),
            "sd": number(r["accepted_length_sd"]),
            "by candidate": " ".join("-" if a is None else f"{a:.3f}" for a in r["acceptance"]),
            "limit": number(r["limit_mean"]),
            "limit +-": number(r["limit_se"]),
            "any rule": number(r["limit_any_mean"]),
        }
        for r in results
    ]
    kinds = ", ".join(dict.fromkeys(r["siblings"] for r in results))
    print_records(console, f"accepted length of a step, final token included (siblings: {kinds})", records)


def _cut(text: str) -> str:
    return text if len(text) <= 20 else text[:17] + "..."
