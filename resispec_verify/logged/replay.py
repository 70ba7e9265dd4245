"""Replay the decisions of real speculative rounds: every acceptance, and what was emitted after it.

Speculative sampling (Leviathan et al. 2023, Appendix A.1; Chen et al. 2023, Algorithm 2) accepts draft token
``x_i`` where ``u_i < min(1, p_i(x_i) / q_i(x_i))``, stops at the first rejection, then emits one token from
``norm((p_i - q_i)_+)``, or from ``p_g`` where all were accepted. Another rule's own acceptance and residual
take the place of these two.

What a log cannot decide is kept apart. Its logits were rounded when they were stored, and the engine's
softmax was rounded too: the probability that the engine compared its coin with lies somewhere in the interval
that `acceptance` computes. A coin inside is a near-tie, whichever way it fell.

The tokens that follow, and the drafts themselves, are draws from known laws, whose evidence is collected: see
`replay_next` and `replay_drafts`. Block
verification decides about a block as a whole: see `replay_block`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.evidence.changing_laws import ChangingLaws
from resispec_verify.logged.block import goes_on, passes
from resispec_verify.logged.checks import Check, status_of
from resispec_verify.logged.coins import repeats
from resispec_verify.logged.drafts import bet_on_drafts
from resispec_verify.logged.next_tokens import NextToken, bet_on
from resispec_verify.logged.reported import Reported
from resispec_verify.logged.reported_rounds import add_round
from resispec_verify.logged.round_rows import RoundRows, read_rows, tv_slack
from resispec_verify.logged.rounds_input import Rounds
from resispec_verify.rules import Block, PathRule, Rule
from resispec_verify.sampling.text import adjusts

__all__ = [
    "Check",
    "Replay",
    "replay",
    "replayable",
    "tests_of",
]


@dataclass
class Replay:
    """What the rounds of one dump gave under one rule.

    Attributes
    ----------
    checks : list of Check
        In order. Acceptances without a coin appear only where they are impossible.
    tallies : dict
        By position in the round: (accepted, its probability, lowest, highest) of each decision, given the
        drafted tokens (``"tokens"``), and given only the rows (``"rows"``: ``sum min(p, q)``): of more than i
        accepted if i were. Only where it was certain beforehand that the outcome would be seen.
    draws : dict
        Tests of the laws of drawn tokens, by ``"draft"``, ``"residual"`` and ``"bonus"``.
    repeated : int
        Rounds whose coins all came in an earlier round.
    repeated_chance : float or None
        Bound on the probability of so many by chance; None where coins are not used.
    reported : Reported
        Log-probabilities that the engine reported, beside those of the rows.
    """

    rounds: Rounds
    rule: Rule | Block
    temperatures: list[float] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    tallies: dict[str, dict[int, list[tuple[bool, float, float, float]]]] = field(default_factory=dict)
    draws: dict[str, ChangingLaws] = field(default_factory=dict)
    repeated: int = 0
    repeated_chance: float | None = None
    notes: list[str] = field(default_factory=list)
    reported: Reported = field(default_factory=Reported)

    def diverges(self) -> list[Check]:
        """The checks that contradict the rule."""
        return [check for check in self.checks if check.status == "divergence"]


def acceptance(rule: Rule, rows: RoundRows, tokens: np.ndarray) -> np.ndarray:
    """Acceptance probability of ``tokens (m,)``, lowest and highest; ``(3, m)``.

    With all logits inside their slack, p(x) is greatest, and q(x) least, where x's own logit moves one way
    and all others the other; an acceptance that rises with p(x) and falls with q(x) has its extremes there.
    On top comes the float32 rounding of exp, of the sum and of the quotient, for each of p and q. Filters are
    applied after the move; which *others* of several tied tokens stay is not varied.
    """
    here = np.arange(rows.target.shape[-1]) == tokens[:, None]
    found = []
    for p, q in ((rows.p, rows.q), rows.moved(~here), rows.moved(here)):
        state = rule.start(p, q, 1)
        found.append(np.take_along_axis(rule.accept(state), tokens[:, None], axis=-1)[:, 0])
    value, low, high = found
    low, high = low * (1 - 2 * rows.rounding), np.minimum(high * (1 + 2 * rows.rounding), 1.0)
    return np.stack([value, np.minimum(low, value), np.maximum(high, value)])


def replayable(rule: Rule | PathRule, where: str) -> Rule | Block:
    """The rule, if rounds can be replayed with it; raises `InputError`, which begins with ``where``."""
    if isinstance(rule, Block):
        if changed := rule.changed_options():
            raise InputError(
                f"{where}: replay knows block with its defaults only; leave out {', '.join(changed)}"
            )
        return rule
    if not isinstance(rule, Rule):
        raise InputError(f"{where}: replay knows of the rules for paths only block")
    if rule.depends_on == "tuple" or rule.least_candidates > 1:
        raise InputError(
            f"{where}: decides about several candidates of one position at once; replay needs a "
            "rule that verifies one draft token a position, such as speculative, or block"
        )
    return rule


def tests_of(rule: Rule | Block) -> int:
    """Tests at each place in the round: given the drafted token, and given only the rows where the acceptance
    over drafts is known, ``sum min(p, q)``.
    """
    return 1 + (
        type(rule).accept is Rule.accept and type(rule).start is Rule.start if isinstance(rule, Rule) else 0
    )


def replay(
    rounds: Rounds,
    rule: Rule | Block,
    options: Mapping[str, Any] | None = None,
    *,
    uniforms: bool = True,
    advance: Callable[[int], Any] = lambda done: None,
) -> Replay:
    """Recompute the rounds of one dump.

    Parameters
    ----------
    options : mapping
        Fields of `Sampling` that replace what the dump states.
    uniforms : bool
        Use logged coins; without them only what is impossible, and the statistics, can speak.

    Raises
    ------
    InputError
        Logits that are not finite (file, round, key and row are named).
    """
    result = Replay(rounds, rule, tallies={"tokens": {}, "rows": {}})
    for r, entry in enumerate(rounds.rounds):
        sampling = rounds.sampling(r, options or {})
        if sampling.temperature not in result.temperatures:
            result.temperatures.append(sampling.temperature)
        rows = _drafts(result, r, entry, sampling)
        decide = _block if isinstance(rule, Block) else _decisions
        decide(result, r, entry, sampling, rows, entry["u"] if uniforms else None)
        if entry["next_token"] is not None:
            result.checks.append(_next_token(result, r, entry, sampling, uniforms))
        if entry.get("reported") is not None:
            whole = slice(0, len(entry["draft_tokens"]) + 1)
            used = _read(result, r, entry, whole, sampling)
            plain = _read(result, r, entry, whole, Sampling()) if adjusts(sampling) else used
            add_round(result.reported, r, entry, used, plain)
        advance(1)
    _repeats(result, uniforms)
    if rounds.constant:
        result.notes.append(
            f"a target's row of equal values in {len(rounds.constant)} rounds (first: {rounds.constant[0]}): "
            "padding? Row g is to be the one after the g drafted tokens"
        )
    if (k := rounds.emitted.differs) is not None:
        result.notes.append(f"output_tokens differs from what the rounds emitted, first at index {k}")
    return result


def _drafts(result: Replay, r: int, entry: Mapping[str, Any], sampling: Sampling) -> RoundRows | None:
    """Evidence on what the drafts were drawn from; the rows that were read, if of the declared draft."""
    if not (count := _until_end(result.rounds, r)):
        return None
    other = entry.get("proposal_logits") is not None
    if other:
        entry = {**entry, "draft_logits": entry["proposal_logits"]}
    rows = _read(result, r, entry, slice(0, count), sampling)
    bet_on_drafts(result.draws, rows, entry["draft_tokens"][:count])
    return None if other else rows


def _decisions(
    result: Replay,
    r: int,
    entry: Mapping[str, Any],
    sampling: Sampling,
    known: RoundRows | None,
    coins: np.ndarray | None,
) -> None:
    """Append the acceptances of a round, up to its first rejection, to checks and tallies."""
    assert isinstance(result.rule, Rule)
    accepted, decided = entry["accepted"], _decided(entry)
    if not decided:
        return
    tokens = entry["draft_tokens"][:decided]
    rows = _first(result, r, entry, decided, sampling, known)
    p, q = rows.p, rows.q
    values = acceptance(result.rule, rows, tokens)
    _tally(result, r, values)
    for i, x in enumerate(tokens.tolist()):
        px, qx = float(p[i, x]), float(q[i, x])
        if tests_of(result.rule) == 2 and i < _always_seen(result.rounds, r):
            overlap = _overlap(p[i], q[i], rows, i)
            result.tallies["rows"].setdefault(i, []).append((i < accepted, *overlap))
        ratio = px / qx if qx > 0 else math.inf if px > 0 else 0.0
        coin = None if coins is None else float(coins[i])
        _check(result, r, entry, i, i < accepted, values[:, i], (px, qx, ratio), coin)


def _block(
    result: Replay,
    r: int,
    entry: Mapping[str, Any],
    sampling: Sampling,
    known: RoundRows | None,
    coins: np.ndarray | None,
) -> None:
    """The tests of a block's prefixes, from the longest down to the one that was accepted.

    Where the text ended with the accepted drafts, that prefix passed or a longer one: a single check, of the
    one that is nearest to passing.
    """
    accepted, tokens = entry["accepted"], entry["draft_tokens"]
    g = len(tokens)
    if not g:
        return
    rows = _first(result, r, entry, g, sampling, known)
    p, q = rows.p, rows.q
    values = passes(rows, tokens)
    _tally(result, r, goes_on(values))
    tested = np.arange(g - 1, max(accepted, 1) - 2, -1)
    if entry["stopped"]:
        short = -values[2, tested] if coins is None else coins[tested] - values[0, tested]
        tested = tested[[int(np.argmin(short))]]
    for i in tested.tolist():
        x = int(tokens[i])
        px, qx = float(p[i, x]), float(q[i, x])
        coin = None if coins is None else float(coins[i])
        passed = entry["stopped"] or i + 1 == accepted
        _check(result, r, entry, i, passed, values[:, i], (px, qx, float(values[0, i])), coin)


def _repeats(result: Replay, uniforms: bool) -> None:
    """Count rounds that repeat earlier coins, and how probable that is where coins are used at all."""
    entries = [entry for entry in result.rounds.rounds if entry["u"] is not None and len(entry["u"])]
    whole = isinstance(result.rule, Block)
    used = [len(entry["u"]) if whole else _decided(entry) for entry in entries]
    result.repeated, chance = repeats([entry["u"] for entry in entries], used)
    result.repeated_chance = chance if uniforms and entries else None


def _decided(entry: Mapping[str, Any]) -> int:
    """Places of a round whose outcome is logged, had it been decided token by token."""
    accepted = entry["accepted"]
    return accepted if entry["stopped"] else min(accepted + 1, len(entry["draft_tokens"]))


def _always_seen(rounds: Rounds, r: int) -> int:
    """Places whose outcome is seen, once they are reached, however the coins fall.

    A place counts in the statistics only if that was certain before its coin fell. After the first drafted
    end-of-text token, and beyond what the round could emit, engines log their decisions or do not, and what
    they leave out may depend on the outcome: ``accepted`` up to the end of the text and no next token looks
    like a rejection there, or is left out for one, while an acceptance is seen. The end-of-text token is
    known before the coins; so is the most that may be emitted, which shows in the output where it was
    reached, and where it was not, so many were not accepted.
    """
    return min(_until_end(rounds, r), rounds.emitted.counts[r])


def _until_end(rounds: Rounds, r: int) -> int:
    """Drafted tokens up to the first that ends the text."""
    tokens = rounds.rounds[r]["draft_tokens"].tolist()
    return next((i + 1 for i, token in enumerate(tokens) if token in rounds.stops), len(tokens))


def _tally(result: Replay, r: int, values: np.ndarray) -> None:
    """Count whether more than i drafts were accepted, given that i were; ``values (3, m)``, m places."""
    entry = result.rounds.rounds[r]
    for i in range(min(_decided(entry), _always_seen(result.rounds, r))):
        outcome = (i < entry["accepted"], *values[:, i].tolist())
        result.tallies["tokens"].setdefault(i, []).append(outcome)


def _check(
    result: Replay,
    r: int,
    entry: Mapping[str, Any],
    i: int,
    logged: bool,
    values: np.ndarray,
    numbers: tuple[float, float, float],
    u: float | None,
) -> None:
    """One decision of probability ``values``: as stored, lowest and highest."""
    found = status_of(logged, values, u, entry["u_slack"])
    if found is None:
        return
    recomputed, margin, allowance, status = found
    words = ("rejected", "accepted")
    result.checks.append(
        Check(result.rounds.path, r, i, "acceptance", int(entry["draft_tokens"][i]), *numbers, u,
              words[logged], words[recomputed], margin, allowance, status)
    )  # fmt: skip


def _read(result: Replay, r: int, entry: Mapping[str, Any], rows: slice, sampling: Sampling) -> RoundRows:
    return read_rows(f"{result.rounds.path}: round {r}", entry, rows, sampling, result.rounds.kind)


def _first(
    result: Replay,
    r: int,
    entry: Mapping[str, Any],
    count: int,
    sampling: Sampling,
    known: RoundRows | None,
) -> RoundRows:
    """The first rows of a round, read again only where ``known`` are too few."""
    if known is not None and len(known.target) >= count:
        return known.at(slice(0, count))
    return _read(result, r, entry, slice(0, count), sampling)


def _overlap(p: np.ndarray, q: np.ndarray, rows: RoundRows, i: int) -> tuple[float, float, float]:
    """``sum min(p, q)``, lowest and highest: it moves by no more than the TV that p and q move by."""
    value = float(np.minimum(p, q).sum())
    moved = tv_slack(p, rows.target[i], rows.target_slack[i], rows.sampling)
    moved += tv_slack(q, rows.draft[i], rows.draft_slack[i], rows.sampling.draft_sampling)
    return value, max(0.0, value - moved), min(1.0, value + moved)


def _next_token(
    result: Replay, r: int, entry: Mapping[str, Any], sampling: Sampling, uniforms: bool
) -> Check:
    """Whether the token after the accepted drafts can have been drawn, or was; and evidence on its law."""
    accepted, y = entry["accepted"], entry["next_token"]
    whole = isinstance(result.rule, Block)
    first = 0 if whole else max(accepted - 1, 0)
    rows = _read(result, r, entry, slice(first, accepted + 2), sampling)
    draw = NextToken(result.rule, rows, entry, first)
    v = float(entry["u_next"][0]) if uniforms and entry["u_next"] is not None else None
    status, recomputed, margin = draw.check(y, v)
    bet_on(result.draws, draw, y)
    q = None if draw.q is None else float(draw.q[y])
    return Check(result.rounds.path, r, accepted, draw.kind, y, float(draw.p[y]), q, None, v, str(y),
                 recomputed, margin, None, status)  # fmt: skip
