"""The children of one node under a rule: with what probability each is accepted, and the law if none is.

A rule tries them in order. Where it has one coin for all of them (SGLang's target-only test), child k is
accepted with it below ``c_k = 1 - prod_(j <= k) (1 - a_j)``, a the acceptances given that those before were
rejected: there the accumulated target mass over the threshold. Else each child has a coin of its own.

What rounding may have done is bounded as for a chain, by moving logits inside their slack. Rules that look at
the target alone accept child k with a probability that rises with its own target mass and with that of those
tried before, so both extremes are reached where these move one way and all others the other. Of other rules
the range over six such moves is taken and half of it added on both sides: an estimate, not a bound.
"""

from __future__ import annotations

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.logged.round_rows import Box, RoundRows
from resispec_verify.rules import Rule
from resispec_verify.rules.shipped.eagle import Eagle
from resispec_verify.rules.shipped.sglang import SGLang
from resispec_verify.rules.shipped.token_match import TokenMatch

__all__ = ["law_after", "one_coin", "target_only", "thresholds"]


def target_only(rule: Rule) -> bool:
    """Whether a rule never looks at the draft's rows."""
    return type(rule) in (Eagle, SGLang, TokenMatch)


def one_coin(rule: Rule) -> bool:
    """Whether the coin of a node decides among all of its children."""
    return type(rule) is SGLang


def thresholds(rule: Rule, rows: RoundRows, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Acceptances of the children ``tokens (k,)`` of the one node of ``rows``, as stored, lowest, highest.

    Returns
    -------
    given : float64 array (3, k)
        Given that those before were rejected.
    coins : float64 array (3, k)
        What a coin is compared with: the same, or `given` accumulated where there is one coin for all.
    """
    value = _accepted(rule, rows.p, rows.q, tokens)[0]
    given, coins = np.empty((3, len(tokens))), np.empty((3, len(tokens)))
    for k in range(len(tokens)):
        laws = rows.moved(_corners(rule, rows.target.shape[-1], tokens[: k + 1]))
        moved = _accepted(rule, *laws, tokens[: k + 1])
        for found, at, ends in (
            (given, value[k], moved[:, k]),
            (coins, _gathered(rule, value[None])[0, k], _gathered(rule, moved)[:, k]),
        ):
            low, high = min(float(ends.min()), at), max(float(ends.max()), at)
            spare = 0.0 if target_only(rule) else (high - low) / 2
            # A quotient for each child tried, and one more for the law itself.
            rounding = 2 * rows.rounding * (k + 1)
            found[:, k] = at, (low - spare) * (1 - rounding), (high + spare) * (1 + rounding)
    return np.clip(given, 0.0, 1.0), np.clip(coins, 0.0, 1.0)


def _gathered(rule: Rule, given: np.ndarray) -> np.ndarray:
    """What coins are compared with, of acceptances ``(n, k)``."""
    return 1 - np.cumprod(1 - given, axis=-1) if one_coin(rule) else given


def _corners(rule: Rule, vocab: int, tokens: np.ndarray) -> np.ndarray:
    """Which tokens move up, ``(n, V)``: the last of ``tokens``, those before it, and both."""
    tried = np.isin(np.arange(vocab), tokens)
    last = np.arange(vocab) == tokens[-1]
    sets = [tried] if target_only(rule) else [tried, last, tried & ~last]
    return np.stack([one for each in sets for one in (each, ~each)])


def _accepted(rule: Rule, p: np.ndarray, q: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Acceptances ``(n, k)`` of the children in order, for laws ``(n, V)``."""
    state = rule.start(p, q, len(tokens))
    found = np.empty((len(p), len(tokens)))
    for k, token in enumerate(tokens.tolist()):
        found[:, k] = np.asarray(rule.accept(state)).reshape(len(p), -1)[:, token]
        if k + 1 < len(tokens):
            state = _rejected(rule, state, token)
    return found


def _rejected(rule: Rule, state: Array, token: int) -> Array:
    if rule.depends_on == "nothing":
        return rule.reject(state, None)  # type: ignore[arg-type]
    return rule.reject(state, np.full((*state.residual.shape[:-1], 1), token))


def law_after(rule: Rule, rows: RoundRows, tokens: np.ndarray) -> tuple[np.ndarray, Box]:
    """The law ``(V,)`` drawn from when all children were rejected, or there are none, and its box.

    The box is of masses, not normalised. Where the law is the target without the tokens it is a bound, else
    an estimate.
    """
    target = rows.target_box()
    struck = np.isin(np.arange(rows.p.shape[-1]), tokens)
    plain = Box(np.where(struck, 0.0, target.low[0]), np.where(struck, 0.0, target.high[0]))
    if not len(tokens):
        return rows.p[0], plain
    law = _final(rule, rows.p, rows.q, tokens)[0]
    if np.allclose(law, normalize(np.where(struck, 0.0, rows.p[0]), rows.p[0]), rtol=1e-9, atol=1e-13):
        return law, plain
    above = rows.p > rows.q
    ups = np.concatenate([above, ~above, struck[None], ~struck[None]])
    laws = np.concatenate([law[None], _final(rule, *rows.moved(ups), tokens)])
    low, high = laws.min(axis=0), laws.max(axis=0)
    return law, Box(np.clip(2 * low - high, 0, None), 2 * high - low)


def _final(rule: Rule, p: np.ndarray, q: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    state = rule.start(p, q, len(tokens))
    for token in tokens.tolist():
        state = _rejected(rule, state, token)
    return np.asarray(rule.final(state)).reshape(len(p), -1)
