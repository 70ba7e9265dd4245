"""How the candidates of a tree dump were drawn, and the trees of its prefixes, checked against that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, TreeDump
from resispec_verify.errors import InputError
from resispec_verify.rules import RULES
from resispec_verify.tables.input_kind import kind_of_rows, refuse_applied
from resispec_verify.tables.reading import logits_of
from resispec_verify.tables.tree_limits import PrefixTree

__all__ = ["TreeSampling", "how_drawn", "prefix_tree"]


class TreeSampling(NamedTuple):
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


def how_drawn(
    dump: TreeDump, asked: dict[str, Any], siblings: str | None = None, kind: str | None = None
) -> TreeSampling:
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
                if name == "order":
                    raise InputError(
                        f"{dump.path}: its candidates were drawn in the order {found.order}; leave "
                        "--engine-order out, or record trees with it"
                    )
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
    return TreeSampling(way, tuple(samplings), found_kind)


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


def prefix_tree(dump: TreeDump, prefix: int, drawn: TreeSampling) -> PrefixTree:
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
