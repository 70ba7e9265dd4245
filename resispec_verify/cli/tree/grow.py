"""`resispec-verify tree grow`: the tree of a budget with the longest step."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.cli.options.group import Options, check_range, numbers_in, refuse_without
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.readings import make_reading
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.output import open_dump
from resispec_verify.cli.over_dumps import finish, over_dumps
from resispec_verify.cli.parameters import Count, DumpFile, Names, Text
from resispec_verify.cli.tree.costs import CostOption, assumptions, shown_price, slower
from resispec_verify.cli.tree.recorded import DrawnOptions, evaluated, rules_for
from resispec_verify.dumps import kind, load_mapping
from resispec_verify.errors import InputError
from resispec_verify.kernels.optimal.tree_growth import growth as grown
from resispec_verify.report.table import print_lines, print_records
from resispec_verify.rules import Rule
from resispec_verify.schema import envelope
from resispec_verify.tables.row import label
from resispec_verify.tables.step_cost import StepCost, fastest_grown, priced
from resispec_verify.tables.trees import flat_acceptance
from resispec_verify.topology import Topology

# A rule, the temperature, and what its candidates do at nodes that have 1, 2, ... of them.
Measured = tuple[Rule, float, list[Any]]

MOST_NODES = 512
MOST_BRANCHES = 16


@dataclass(frozen=True, kw_only=True)
class GrowthOptions(Options):
    """What a tree is grown from, and how far.

    Attributes
    ----------
    levels
        At most so many levels, the root included.
    candidates
        With a flat dump: at most so many children a node (4).
    acceptance
        Instead of a dump: the probability that the first, second, ... candidate is emitted, as "0.6,0.2,0.1".
    """

    levels: Count | None = None
    candidates: Count | None = None
    acceptance: Text | None = None

    def check(self) -> None:
        """Refuse numbers that are out of range."""
        check_range(1, levels=self.levels)
        check_range(1, MOST_BRANCHES, candidates=self.candidates)


def grow(
    *files: DumpFile,
    dumps: DumpOptions = DumpOptions(),
    nodes: Count | None = None,
    growth: GrowthOptions = GrowthOptions(),
    rule: Names | None = None,
    drawn: DrawnOptions = DrawnOptions(),
    price: CostOption = CostOption(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """The tree of at most so many nodes with the longest step, if acceptance is the same at every node.

    With --cost the one with the most tokens a millisecond, of all sizes that are given.

    Parameters
    ----------
    dumps.logits
        The same as FILE: dumps that acceptance is measured on: all trees, or all flat.
    nodes
        At most so many nodes, the root included. With --cost the default is the most that are given.
    rule
        A rule; repeat for several. Default: all for candidates drawn as those of a tree dump; of a flat one
        specinfer, optimal-sequential and optimal-joint.
    output.csv
        Write one line a tree here.
    """
    paths = dumps.joined(files).paths
    output.check([*paths, *([price.cost] if price.cost else [])])
    check_range(1, MOST_NODES, nodes=nodes)
    growth.check()
    cost = price.read()
    budget = _budget(nodes, cost)
    failures: list[str] = []
    if growth.acceptance is None:
        if not paths:
            raise InputError("growing needs probabilities: give --acceptance A,B,... or FILE...")
        measured, failures = _measured(paths, rule, drawn, growth.candidates)
        results = [
            {"rule": rule.name, "label": label(rule), "options": rule.options(), "temperature": t}
            | _best_tree(acceptance, budget, growth.levels, cost)
            for rule, t, acceptance in measured
        ]
    else:
        if paths:
            raise InputError("give either --acceptance or FILE..., not both")
        refuse_without("a dump", drawn, rule=rule, candidates=growth.candidates)
        results = [_best_tree(_by_hand(growth.acceptance), budget, growth.levels, cost)]
    if results:
        console = output.write(
            envelope("tree", results),
            lambda: [_line(r) for r in results],
        )
        most = "the most tokens a ms" if cost else "the longest step"
        title = f"the tree with {most}, if acceptance is the same at every node"
        print_records(console, title, [_record(r) for r in results])
        named = [f"{r.get('label', 'by hand')}: {r['topology']}{slower(r.get('speedup'))}" for r in results]
        print_lines(console, [*named, *([assumptions(cost)] if cost else [])])
    return finish(failures)


def _line(result: dict[str, Any]) -> dict[str, Any]:
    """A line of the CSV; a rule is named with its options."""
    named = {"rule": result["label"]} if "label" in result else {}
    return {k: v for k, v in (result | named).items() if k not in ("acceptance", "options", "label")}


def _by_hand(text: str) -> list[list[float]]:
    given = numbers_in(text, "--acceptance", "numbers such as 0.6,0.2,0.1")
    if not all(0 <= value <= 1 for value in given) or sum(given) > 1 + 1e-9:
        raise InputError(f"--acceptance {text}: probabilities in [0, 1] that sum to at most 1 are needed")
    if len(given) > MOST_BRANCHES:
        raise InputError(f"--acceptance has {len(given)} values; at most {MOST_BRANCHES} children a node")
    return [given[:m] for m in range(1, len(given) + 1)]


def _budget(nodes: int | None, cost: StepCost | None) -> int:
    """How many nodes a tree has at most."""
    if cost is None:
        if nodes is None:
            raise InputError(
                "--nodes N is needed, at most so many nodes, or --cost FILE; see 'resispec-verify tree grow "
                "--help'"
            )
        return nodes
    most = int(cost.nodes[-1])
    if nodes is not None and nodes > most:
        raise InputError(
            f"--nodes {nodes}: {cost.where} gives milliseconds up to {most} nodes; measure that size too, or "
            "leave --nodes out"
        )
    return nodes or min(most, MOST_NODES)


def _best_tree(
    acceptance: list[Any], nodes: int, levels: int | None, cost: StepCost | None
) -> dict[str, Any]:
    found = grown(acceptance, nodes, levels)
    if cost is None:
        most = len(found.lengths)
        tree, length = Topology(tuple(found.parents(nodes, most))), float(found.lengths[-1][nodes])
    else:
        tree, length = fastest_grown(found, cost)
    result = {
        "topology": str(tree),
        "cost": tree.nodes,
        "levels": tree.levels,
        "predicted_length": length,
        "acceptance": acceptance,
    }
    return result if cost is None else result | priced(length, None, cost, tree)


def _measured(
    paths: list[Path], names: list[str] | None, drawn: DrawnOptions, candidates: int | None
) -> tuple[list[Measured], list[str]]:
    """What tree dumps or flat ones tell of each rule, and one line for each that could not be used."""
    kinds = _kinds(paths)
    if len(kinds) > 1:
        raise InputError("a tree is grown from tree dumps or from flat ones, not both at once; give one kind")
    if kinds != {"tree"}:
        return _on_flat(paths, names, drawn, candidates or 4)
    if candidates is not None:
        raise InputError("--candidates is for flat dumps: a tree dump has as many as it has; leave it out")
    rows, failures = evaluated(paths, names, [], drawn, by_count=True)
    return [(row.rule, row.sampling.temperature, row.acceptance_by_count()) for row in rows], failures


def _kinds(paths: list[Path]) -> set[str]:
    kinds = set()
    for path in filter(Path.exists, paths):
        with contextlib.suppress(InputError):  # which is said when it is opened
            kinds.add("tree" if path.is_file() and kind(load_mapping(path)) == "tree" else "flat")
    return kinds


def _on_flat(
    paths: list[Path], names: list[str] | None, drawn: DrawnOptions, candidates: int
) -> tuple[list[Measured], list[str]]:
    """Mean acceptance by candidate, of each rule with 1, 2, ... candidates."""
    if drawn.siblings is not None:
        raise InputError(
            "--siblings is for tree dumps: in a flat one candidates are drawn as a rule says; leave it out"
        )
    temperatures = [] if drawn.temperature is None else [drawn.temperature]
    reading = make_reading(temperatures, drawn, kind=drawn.input)
    dumps, failures = over_dumps(paths, lambda path: open_dump(path, pad_vocab=drawn.pad_vocab))
    names = names or ["specinfer", "optimal-sequential", "optimal-joint"]
    rules = rules_for(names, "", [Topology.complete(2, candidates)])
    return flat_acceptance(dumps, reading, rules, candidates), failures


def _record(r: dict[str, Any]) -> dict[str, str]:
    """A line of the table."""
    return {
        "rule": r.get("label", "by hand"),
        "T": f"{r['temperature']:g}" if "temperature" in r else "",
        "cost": str(r["cost"]),
        "levels": str(r["levels"]),
        "length": f"{r['predicted_length']:.4f}",
        **{name: text for name, text in (shown_price(r) if "step_ms" in r else {}).items() if name != "+- "},
    }
