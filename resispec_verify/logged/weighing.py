"""Logs to weights: which tokens were emitted, and the laws that the rule drew them from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, kind, load_mapping, open_dump, open_rounds
from resispec_verify.dumps.formats.mapped import are_tokens
from resispec_verify.dumps.kinds.values import integers
from resispec_verify.dumps.opening import PathLike
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.logged.node_rules import laws_of, laws_of_round, node_rule
from resispec_verify.logged.round_rows import read_rows
from resispec_verify.logged.rounds_input import Rounds, read_rounds
from resispec_verify.logged.weights import TRUNCATE, Weights
from resispec_verify.rules import Block, PathRule, Rule
from resispec_verify.sampling.text import needs_text
from resispec_verify.tables.reading import Reading, pairs_of

__all__ = ["Followed", "Weighing", "following", "weigh", "weights_of_dump", "weights_of_rounds"]


@dataclass(frozen=True)
class Weighing:
    """How a log is weighed.

    Attributes
    ----------
    candidates : int or None
        Candidates a position of a flat dump; None is 1, and what rounds have.
    options : mapping
        Fields of `Sampling` in the place of what the dump states.
    kind : {"logits", "probabilities", "log-probabilities"} or None
        What the rows are.
    stops : tuple of int
        Tokens that end a text, beside those that a rounds dump states.
    truncate : float
        C of the truncated weights, at least 1.
    budget : Budget
        Work on each law. What has no place makes weights intervals, whether or not a verdict would need it.
    """

    candidates: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None
    stops: tuple[int, ...] = ()
    truncate: float = TRUNCATE
    budget: Budget = field(default_factory=lambda: Budget(gap=1e-3, until_decided=False))


def weigh(
    path: PathLike,
    rule: Rule | PathRule,
    where: str,
    how: Weighing,
    advance: Callable[[int], Any] = lambda done: None,
) -> Weights:
    """Weights of the tokens of a rounds dump, or of a flat one that says what was emitted.

    Parameters
    ----------
    where : str
        How the rule was given; begins errors about it.

    Raises
    ------
    InputError
        A log or a rule that gives no weights, or an option that is for the other kind of log.
    """
    rounds = _is_one_file(path) and kind(load_mapping(path)) == "rounds"
    known = node_rule(rule, where, rounds=rounds)
    if rounds:
        if how.candidates not in (None, 1):
            raise InputError(
                f"{path}: rounds test one drafted token a position, so candidates must be 1, not "
                f"{how.candidates}"
            )
        return weights_of_rounds(path, known, how, advance)
    if how.stops:
        raise InputError(f"{path}: is no rounds dump: where texts end is not asked; leave out eos")
    assert isinstance(known, Rule)
    dump = open_dump(path)
    return weights_of_dump(dump, following(dump, path), known, how, advance)


@dataclass(frozen=True)
class Followed:
    """The tokens that were emitted at the positions of a flat dump, and of which text each is.

    Attributes
    ----------
    tokens : int64 array (positions,)
        -1 where it is not known.
    texts : int or None
        How many texts the positions are of, one after the other and equally long; None if that is unknown.
    """

    tokens: np.ndarray
    texts: int | None


def following(dump: FlatDump, path: PathLike) -> Followed:
    """What was emitted at each position: ``next_tokens``, or ``tokens`` where row i predicts token i + 1.

    Raises
    ------
    InputError
        Neither is there, or neither fits the positions.
    """
    where = f"{dump.path}: next_tokens"
    leading: tuple[int, ...] = dump.shape[:-1] or (1,)
    if dump.left_out:
        raise InputError(
            f"{dump.path}: a mask leaves out {dump.left_out} positions, and which tokens are left is not "
            "said; save the rows that count, without the mask"
        )
    mapping = load_mapping(path) if _is_one_file(path) else {}
    texts = int(np.prod(leading[:-1])) if len(leading) > 1 else None
    if mapping.get("next_tokens") is not None:
        found = integers(where, mapping["next_tokens"], leading, -1, dump.vocab - 1)
        return Followed(found.reshape(-1), texts)
    tokens, rows = dump.tokens, dump.positions // (texts or 1)
    if tokens is None or not are_tokens(tokens):
        raise InputError(f"{where} is missing: weights are of tokens; save the emitted one of each position")
    if tokens.shape == (*leading[:-1], rows + 1):
        after = tokens[..., 1:]
        integers(f"{dump.path}: tokens", after, leading, 0, dump.vocab - 1)
        return Followed(np.asarray(after, np.int64).reshape(-1), texts or 1)
    raise InputError(
        f"{dump.path}: tokens is {list(tokens.shape)}, and {[*leading[:-1], rows + 1]} would say which token "
        "followed each row; save next_tokens, the emitted token of each position"
    )


def weights_of_dump(
    dump: FlatDump,
    followed: Followed,
    rule: Rule,
    how: Weighing,
    advance: Callable[[int], Any] = lambda done: None,
) -> Weights:
    """Weights of the tokens at the positions of a flat dump, each drawn by the rule from ``candidates``.

    Raises
    ------
    InputError
        As `pairs_of`; no position of which the token is known.
    """
    candidates = how.candidates or 1
    found = Weights(dump.path, rule, rule.verifiable(candidates), how.truncate)
    dump, reading = _asked(dump, how)
    length = dump.positions if followed.texts is None else dump.positions // followed.texts
    order = []
    for batch in pairs_of(dump, reading, advance=advance):
        known = np.flatnonzero(followed.tokens[batch.positions] >= 0)
        if not known.size:
            continue
        pair, places = batch.pair, batch.positions[known]
        proposal = None if pair.proposal is None else pair.proposal[known]
        laws = laws_of(rule, pair.target[known], pair.draft[known], candidates, proposal, how.budget)
        if batch.sampling.temperature not in found.temperatures:
            found.temperatures.append(batch.sampling.temperature)
        for i, place in enumerate(places.tolist()):
            text, index = (None, place) if followed.texts is None else divmod(place, length)
            found.place(text, index)
            found.weigh(int(followed.tokens[place]), pair.target[known[i]], laws, i)
            order.append(place)
    if not order:
        raise InputError(f"{dump.path}: the emitted token is known of no position; save next_tokens")
    if unknown := int((followed.tokens < 0).sum()):
        found.notes.append(f"of {unknown} positions the emitted token is not known; they are left out")
    found.sort(order)
    return found


def _asked(dump: FlatDump, how: Weighing) -> tuple[FlatDump, Reading]:
    """The dump and how it is read: with each option in the place of what is stated, as in rounds."""
    stated = dump.sampling
    if set(how.options) <= {"order"}:
        return dump, Reading(kind=how.kind, order=how.options.get("order"))
    if isinstance(stated, tuple):
        return replace(dump, sampling=tuple({**one, **how.options} for one in stated)), Reading(kind=how.kind)
    return dump, Reading((Sampling(**{**(stated or {}), **how.options}),), kind=how.kind)


def weights_of_rounds(
    path: PathLike,
    rule: Rule | Block,
    how: Weighing,
    advance: Callable[[int], Any] = lambda done: None,
) -> Weights:
    """Weights of the tokens that logged rounds emitted.

    Raises
    ------
    InputError
        As `read_rounds`; an emitted token that is not logged, an output that the rounds did not emit,
        block verification of drafts that are from another law than the declared one, or penalties that stand
        still in a block.
    """
    rounds = read_rounds(path, kind=how.kind, stops=how.stops, options=how.options)
    used = [rounds.sampling(r, how.options) for r in range(len(rounds.rounds))]
    if any(needs_text(one) and one.reads_history == "block-start" for one in used):
        raise InputError(
            f"{path}: with history 'block-start' the target of a token depends on where its round began, and "
            "no product of weights leads to one law of texts; state history 'token' if the engine had that"
        )
    prompts = [one.prompt for one in open_rounds(path).rounds]
    if (k := rounds.emitted.differs) is not None:
        raise InputError(
            f"{path}: output_tokens is not what the rounds emitted, first at index {k}: weights would be of "
            "other tokens; replay shows where"
        )
    found = Weights(str(path), rule, 1, how.truncate)
    text, index = 0, 0
    for r in range(len(rounds.rounds)):
        place = {"text": text, "request": prompts[r], "position": index}
        index += _round(found, rounds, r, place, how)
        if rounds.emitted.ends[r]:
            text, index = text + 1, 0
        advance(1)
    if not found.token:
        raise InputError(f"{path}: the rounds emitted no token")
    return found


def _round(
    found: Weights,
    rounds: Rounds,
    r: int,
    place: Mapping[str, Any],
    how: Weighing,
) -> int:
    """Add what one round emitted, from this place on; how many tokens that is."""
    entry, sampling = rounds.rounds[r], rounds.sampling(r, how.options)
    emitted = rounds.emitted.tokens[r][: rounds.emitted.counts[r]]
    if emitted and emitted[-1] is None:
        if not rounds.emitted.ends[r]:
            raise InputError(
                f"{rounds.path}: round {r}: next_token is not logged, and the text goes on after it; log "
                "every emitted token"
            )
        emitted = emitted[:-1]
    if not emitted:
        return 0
    where, span = f"{rounds.path}: round {r}", slice(0, len(emitted))
    tokens = np.asarray(emitted, np.int64)
    rows = read_rows(where, entry, span, sampling, rounds.kind)
    drawn = None
    if entry.get("proposal_logits") is not None:
        if isinstance(found.rule, Block):
            raise InputError(
                f"{where}: drafts are drawn from proposal_logits, and block verification has no law of "
                "single tokens then; weigh another rule"
            )
        other = {**entry, "draft_logits": entry["proposal_logits"]}
        drawn = read_rows(where, other, span, sampling, rounds.kind).q
    laws = laws_of_round(found.rule, rows.p, rows.q, tokens, drawn, how.budget)
    if sampling.temperature not in found.temperatures:
        found.temperatures.append(sampling.temperature)
    for depth, token in enumerate(tokens.tolist()):
        found.place(**{**place, "position": place["position"] + depth}, round=r, depth=depth)
        found.weigh(token, rows.p[depth], laws, depth)
    return len(emitted)


def _is_one_file(path: PathLike) -> bool:
    return os.path.isfile(path) and not str(path).endswith("index.json")
