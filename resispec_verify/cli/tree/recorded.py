"""What the `tree` commands share: names of trees, how candidates were drawn, and rows of recorded trees."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.cli.options.readings import InputOption, OneSamplingOptions
from resispec_verify.cli.options.sources import PadOption
from resispec_verify.cli.output import progress
from resispec_verify.cli.over_dumps import over_dumps
from resispec_verify.cli.parameters import Text
from resispec_verify.cli.user_rules import choose_rules
from resispec_verify.dumps import open_tree
from resispec_verify.errors import InputError
from resispec_verify.rules import PATH_RULES, Rule
from resispec_verify.tables.columns import merge
from resispec_verify.tables.tree_sampling import how_drawn
from resispec_verify.tables.trees import TreeRow, add_trees, default_rules, recorded_tree
from resispec_verify.topology import Topology


@dataclass(frozen=True, kw_only=True)
class DrawnOptions(PadOption, InputOption, OneSamplingOptions):
    """How the candidates of a dump that does not say were drawn.

    Attributes
    ----------
    temperature
        At which the candidates of a dump that does not say were drawn. Default: 1.
    top_k
        The same, for a filter.
    top_p
        The same, for a filter.
    min_p
        The same, for a filter.
    siblings
        How the candidates of a dump that does not say were drawn: iid (default), without-replacement, fixed,
        pairs.
    """

    siblings: Text | None = None


def parsed(texts: list[str] | None) -> list[Topology]:
    """The trees of `--topology`, each once."""
    if unknown := [text for text in texts or [] if text.startswith("--")]:
        raise InputError(f"unknown option {unknown[0]}; see 'resispec-verify tree cost --help'")
    try:
        return list(dict.fromkeys(Topology.parse(text) for text in texts or []))
    except InputError as error:
        raise InputError(f"--topology: {error}") from None


def shortened(text: str) -> str:
    """The name of a tree, for a column."""
    return text if len(text) <= 20 else text[:17] + "..."


def rules_for(names: list[str] | None, siblings: str, trees: list[Topology]) -> tuple[Rule, ...]:
    """The rules of these names, or all for such candidates; whether one fits is checked node by node."""
    if not names:
        return tuple(dict.fromkeys(rule for tree in trees for rule in default_rules(siblings, tree)))
    for name in names:
        if name in PATH_RULES:
            raise InputError(f"rule {name!r} verifies paths, not the candidates of a node; leave it out")
    chosen = choose_rules(names, 2)  # two candidates are what every rule is defined for
    most = max((len(children) for tree in trees for children in tree.children), default=0)
    for rule in chosen:
        if most < rule.least_candidates:
            raise InputError(
                f"rule {rule.name!r} needs {rule.least_candidates} candidates, and no node of the tree has "
                f"more than {most}; leave it out"
            )
    return chosen


def evaluated(
    paths: list[Path],
    names: list[str] | None,
    trees: list[Topology],
    options: DrawnOptions,
    *,
    by_count: bool = False,
) -> tuple[list[TreeRow], list[str]]:
    """The rows of all tree dumps, and what could not be read; without trees, of the recorded ones."""
    asked = options.given()

    def rows_of(path: Path) -> dict[Any, TreeRow]:
        dump = open_tree(path, pad_vocab=options.pad_vocab)
        drawn = how_drawn(dump, asked, options.siblings, options.input)
        used = trees or [recorded_tree(dump)]
        rules = rules_for(names, drawn.siblings, used)
        if not rules:
            raise InputError(
                f"{path}: no rule here verifies candidates drawn {drawn.siblings!r} at every node of this "
                "tree; see `resispec-verify rules`, or take another --topology"
            )
        fresh: dict[Any, TreeRow] = {}
        with progress(str(path), dump.prefixes) as advance:
            add_trees(fresh, rules, dump, drawn, used, by_count=by_count, advance=advance)
        return fresh

    found, failures = over_dumps(paths, rows_of, "prefixes")
    rows: dict[Any, TreeRow] = {}
    for fresh in found:
        merge(rows, fresh)
    return list(rows.values()), failures
