"""Replay rounds over trees: at each accepted node, which of its children was accepted, and what came after.

The rule tries the children of a node in order, from the root on, and goes on at the first that it accepts; at
a node none of whose children was accepted it draws from the residual that is left, at a leaf from the
target's row. Which coin decides depends on the rule: `u` at a node decides about that node, but for SGLang's
target-only test, where it decides among the node's children.

Checks, statistics and verdicts are those of chains (`replay`); a place in the round is the depth of the node
whose children are tried, and each child that is tried counts there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.evidence.changing_laws import ChangingLaws
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.logged.checks import Check, status_of
from resispec_verify.logged.coins import repeats
from resispec_verify.logged.drafts import DRAFT
from resispec_verify.logged.next_tokens import redrawn
from resispec_verify.logged.replay import Replay, replay
from resispec_verify.logged.round_rows import RoundRows
from resispec_verify.logged.rounds_input import Rounds
from resispec_verify.logged.siblings import law_after, one_coin, target_only, thresholds
from resispec_verify.logged.tree_input import TreeRounds
from resispec_verify.rules import Block, Rule

__all__ = ["replay_any"]

#: Laws that a wrong draw at the end of the path may come from.
_AFTER = (
    "the target's row before",
    "the target instead of the residual",
    "the draft",
    "the target without the children",
    "the target's row at a sibling",
    "the target without temperature and filters",
)
_PLAIN = Sampling()


def replay_any(
    rounds: Rounds,
    rule: Rule | Block,
    options: Mapping[str, Any] | None = None,
    *,
    uniforms: bool = True,
    advance: Callable[[int], Any] = lambda done: None,
) -> Replay:
    """Recompute the rounds of one dump, over chains as `replay` does, or over trees.

    Raises
    ------
    InputError
        As `replay`; for trees block verification, a rule that verifies fewer siblings than a node has, or one
        that looks at the draft where the dump has no row of it.
    """
    if not isinstance(rounds, TreeRounds):
        return replay(rounds, rule, options, uniforms=uniforms, advance=advance)
    if isinstance(rule, Block):
        raise InputError(f"{rounds.path}: block verifies chains, and these rounds are over trees")
    result = Replay(rounds, rule, tallies={"tokens": {}, "rows": {}})
    result.notes.extend(rounds.notes)
    used = []
    for r in range(len(rounds.rounds)):
        _check_usable(rounds, r, rule)
        sampling = rounds.sampling(r, options or {})
        if sampling.temperature not in result.temperatures:
            result.temperatures.append(sampling.temperature)
        if rounds.siblings == "iid":
            _drafts(result, r, sampling)
        used.append(_round(result, r, sampling, uniforms))
        advance(1)
    coins = [(entry["u"], n) for entry, n in zip(rounds.rounds, used, strict=True) if entry["u"] is not None]
    result.repeated, chance = repeats([u for u, _ in coins], [n for _, n in coins])
    result.repeated_chance = chance if uniforms and coins else None
    if rounds.constant:
        result.notes.append(
            f"a target's row of equal values in {len(rounds.constant)} rounds (first: {rounds.constant[0]}): "
            "padding? A row is to be the one after its node"
        )
    if (k := rounds.emitted.differs) is not None:
        result.notes.append(f"output_tokens differs from what the rounds emitted, first at index {k}")
    return result


def _check_usable(rounds: TreeRounds, r: int, rule: Rule) -> None:
    """Refuse what the rule would need and does not get."""
    tree = rounds.rounds[r]["tree"]
    counts = [len(nodes) for nodes in tree.shape.children]
    if rule.most_candidates is not None and max(counts) > rule.most_candidates:
        node = int(np.argmax(np.asarray(counts) > rule.most_candidates))
        raise InputError(
            f"{rounds.path}: round {r}: node {node} has {counts[node]} children, and {rule.name} verifies at "
            f"most {rule.most_candidates}; name the rule that the engine follows with --rule"
        )
    if target_only(rule):
        return
    inner = [node for node, count in enumerate(counts) if count and tree.draft_row[node] < 0]
    if inner:
        raise InputError(
            f"{rounds.path}: round {r}: {rule.name} looks at the draft, and there is no draft_logits row "
            f"after node {inner[0]}; save those rows, or name a rule that needs none (--rule eagle, --rule "
            "sglang)"
        )


def _round(result: Replay, r: int, sampling: Sampling, uniforms: bool) -> int:
    """One round: checks along the accepted path and of the token after it; returns how many coins decided."""
    rounds = result.rounds
    assert isinstance(rounds, TreeRounds)
    entry = rounds.rounds[r]
    tree = entry["tree"]
    path = [0, *tree.path.tolist()]
    beside = [n for n in tree.shape.children[path[-2]].tolist() if n != path[-1]] if len(path) > 1 else []
    rows = rounds.rows(r, [*path, *beside[:1]], sampling)
    used = 0
    for d, node in enumerate(path):
        logged = path[d + 1] if d + 1 < len(path) else None
        if logged is None and entry["stopped"]:
            break
        used += _children(result, r, rows.at(slice(d, d + 1)), node, logged, uniforms)
    if entry["next_token"] is not None:
        _next_token(result, r, rows, path, uniforms)
    return used


def _seen(rounds: TreeRounds, r: int, node: int) -> bool:
    """Whether the outcome of the tests below a node is logged however their coins fall (see `replay`)."""
    tree = rounds.rounds[r]["tree"]
    return int(tree.shape.depth[node]) < rounds.emitted.counts[r] and _before_end(rounds, r, node)


def _children(result: Replay, r: int, rows: RoundRows, node: int, logged: int | None, uniforms: bool) -> int:
    """The tests of the children of a node up to the accepted one. Returns how many coins decided."""
    rounds = result.rounds
    assert isinstance(rounds, TreeRounds)
    assert isinstance(result.rule, Rule)
    entry = rounds.rounds[r]
    tree = entry["tree"]
    children = tree.shape.children[node].tolist()
    tried = children if logged is None else children[: children.index(logged) + 1]
    if not tried:
        return 0
    tokens = tree.tokens[tried]
    given, compared = thresholds(result.rule, rows, tokens)
    place = int(tree.shape.depth[node])
    shared = one_coin(result.rule)
    for k, child in enumerate(tried):
        if _seen(rounds, r, node):
            outcome = (child == logged, *given[:, k].tolist())
            result.tallies["tokens"].setdefault(place, []).append(outcome)
        u = float(entry["u"][node if shared else child]) if uniforms and entry["u"] is not None else None
        x = int(tokens[k])
        q = None if target_only(result.rule) else float(rows.q[0, x])
        found = status_of(child == logged, compared[:, k], u, entry["u_slack"])
        if found is not None:
            recomputed, margin, allowance, status = found
            result.checks.append(
                Check(rounds.path, r, place, "acceptance", x, float(rows.p[0, x]), q, float(compared[0, k]),
                      u, _word(child == logged), _word(recomputed), margin, allowance, status, child)
            )  # fmt: skip
    return 1 if shared else len(tried)


def _word(accepted: bool) -> str:
    return "accepted" if accepted else "rejected"


def _next_token(result: Replay, r: int, rows: RoundRows, path: list[int], uniforms: bool) -> None:
    """The token after the path: whether it can have been drawn, or was; and evidence on its law."""
    entry = result.rounds.rounds[r]
    tree, y, d = entry["tree"], entry["next_token"], len(path) - 1
    children = tree.shape.children[path[-1]]
    tokens = tree.tokens[children]
    here = rows.at(slice(d, d + 1))
    rule = result.rule
    assert isinstance(rule, Rule)
    law, box = law_after(rule, here, tokens)
    kind = "residual" if len(children) else "bonus"
    v = float(entry["u_next"][0]) if uniforms and entry["u_next"] is not None else None

    def moved(up: np.ndarray) -> np.ndarray:
        return law_after(rule, _moved(here, up), tokens)[0]

    status, recomputed, margin = redrawn(law, box.high, y, v, moved)
    q = None if target_only(rule) or not len(children) else float(here.q[0, y])
    result.checks.append(
        Check(result.rounds.path, r, d, kind, y, float(here.p[0, y]), q, None, v, str(y), recomputed, margin,
              None, status, path[-1])
    )  # fmt: skip
    if box.high.sum() > 0:
        test = result.draws.setdefault(kind, ChangingLaws(_AFTER))
        test.add(box.low, box.high, y, _others(rule, rows, d, tokens))


def _moved(rows: RoundRows, up: np.ndarray) -> RoundRows:
    """The same rows with their logits at the ends of their slack."""
    p, q = rows.moved(up[None])
    return RoundRows(rows.target, rows.draft, rows.target_slack, rows.draft_slack, rows.sampling, p, q)


def _others(rule: Rule, rows: RoundRows, d: int, tokens: np.ndarray) -> list[np.ndarray | None]:
    """Laws to bet on, as `_AFTER` names them; None where there is none."""
    p = rows.p[d]
    plain = None
    if rows.sampling != _PLAIN:
        plain = _PLAIN.probabilities(rows.target[d : d + 1], dtype=np.float64)[0]
    struck = np.where(np.isin(np.arange(len(p)), tokens), 0.0, p)
    beside = rows.p[d + 1] if len(rows.p) > d + 1 else None
    return [
        rows.p[d - 1] if d else None, p, None if target_only(rule) else rows.q[d],
        normalize(struck, p) if struck.any() else None, beside, plain,
    ]  # fmt: skip


def _drafts(result: Replay, r: int, sampling: Sampling) -> None:
    """Evidence that siblings are independent draws from the draft's row after their parent."""
    rounds = result.rounds
    assert isinstance(rounds, TreeRounds)
    tree = rounds.rounds[r]["tree"]
    inner = [
        node for node, nodes in enumerate(tree.shape.children) if len(nodes) and _before_end(rounds, r, node)
    ]
    if tree.draft is None or not inner:
        return
    rows = rounds.rows(r, inner, sampling)
    box, test = rows.draft_box(), result.draws.setdefault("draft", ChangingLaws(DRAFT))
    plain = None if sampling == _PLAIN else _PLAIN.probabilities(rows.draft, dtype=np.float64)
    row = {node: i for i, node in enumerate(inner)}
    for i, node in enumerate(inner):
        above = row.get(int(tree.shape.parent[node]))
        others = [rows.p[i], None if above is None else rows.q[above], None if plain is None else plain[i]]
        for token in tree.tokens[tree.shape.children[node]].tolist():
            test.add(box.low[i], box.high[i], token, others)


def _before_end(rounds: TreeRounds, r: int, node: int) -> bool:
    """Whether no token on the way to a node, itself included, ends the text."""
    tree = rounds.rounds[r]["tree"]
    while node > 0:
        if int(tree.tokens[node]) in rounds.stops:
            return False
        node = int(tree.shape.parent[node])
    return True
