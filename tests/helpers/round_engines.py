"""Engines that log rounds: right ones, and such whose residual or bonus tokens come from a wrong law.

They draw by an exponential race, as vLLM and SGLang do, so there is no uniform of a next token to log.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from resispec_verify.logged.emitted import Emitted
from resispec_verify.logged.rounds_input import Rounds

VOCAB = 12
Law = Callable[[np.ndarray, np.ndarray, int, float], np.ndarray]
"""(targets (g + 1, V), drafts (g, V), accepted, weight of the block) to the law of the next token."""


def residual(p: np.ndarray, q: np.ndarray, weight: float = 1.0) -> np.ndarray:
    """``norm((weight p - q)_+)``."""
    left = np.clip(weight * p - q, 0.0, None)
    return left / left.sum() if left.sum() > 0 else p


def right(p: np.ndarray, q: np.ndarray, k: int, weight: float = 1.0) -> np.ndarray:
    """What the rule says."""
    return p[k] if k == len(q) else residual(p[k], q[k], weight)


def of_residual(law: Callable[..., np.ndarray]) -> Law:
    """A fault of residual draws alone."""
    return lambda p, q, k, weight: law(p, q, k) if k < len(q) else p[k]


def of_bonus(law: Callable[..., np.ndarray]) -> Law:
    """A fault of bonus draws alone."""
    return lambda p, q, k, weight: right(p, q, k, weight) if k < len(q) else law(p, q, k)


def tempered(p: np.ndarray, temperature: float) -> np.ndarray:
    """The law at another temperature."""
    weights = p ** (1 / temperature)
    return weights / weights.sum()


def greedy(p: np.ndarray) -> np.ndarray:
    """The most probable token."""
    return np.eye(len(p))[np.argmax(p)]


def struck(p: np.ndarray, token: int) -> np.ndarray:
    """The target without one token."""
    left = np.where(np.arange(len(p)) == token, 0.0, p)
    return left / left.sum()


def rest_last(mass: np.ndarray) -> np.ndarray:
    """The law of a search in a cumulative sum that ends below 1: the last token gets the rest."""
    law = mass.copy()
    law[-1] += 1 - mass.sum()
    return law


FAULTS: dict[str, Law] = {
    "residual: the target itself": of_residual(lambda p, q, k: p[k]),
    "residual: the draft": of_residual(lambda p, q, k: q[k]),
    "residual: |p - q|": of_residual(lambda p, q, k: np.abs(p[k] - q[k]) / np.abs(p[k] - q[k]).sum()),
    "residual: not normalised": of_residual(lambda p, q, k: rest_last(np.clip(p[k] - q[k], 0, None))),
    "residual: softmax of it": of_residual(
        lambda p, q, k: np.exp(np.clip(p[k] - q[k], 0, None)) / np.exp(np.clip(p[k] - q[k], 0, None)).sum()
    ),
    "residual: of the row after": of_residual(lambda p, q, k: p[k + 1]),
    "residual: its most probable token": of_residual(lambda p, q, k: greedy(residual(p[k], q[k]))),
    "residual: temperature 0.8": of_residual(lambda p, q, k: tempered(residual(p[k], q[k]), 0.8)),
    "residual: uniform on its support": of_residual(
        lambda p, q, k: (residual(p[k], q[k]) > 0) / (residual(p[k], q[k]) > 0).sum()
    ),
    "bonus: temperature 0.8": of_bonus(lambda p, q, k: tempered(p[k], 0.8)),
    "bonus: temperature 1.25": of_bonus(lambda p, q, k: tempered(p[k], 1.25)),
    "bonus: greedy": of_bonus(lambda p, q, k: greedy(p[k])),
    "bonus: of the row before": of_bonus(lambda p, q, k: p[k - 1]),
    "bonus: the draft's row before": of_bonus(lambda p, q, k: q[k - 1]),
    "bonus: always token 0": of_bonus(lambda p, q, k: np.eye(len(p[k]))[0]),
    "bonus: top-k 6 not undone": of_bonus(
        lambda p, q, k: np.where(p[k] >= np.sort(p[k])[-6], p[k], 0) / np.sort(p[k])[-6:].sum()
    ),
}


#: Laws of the drafts where the declared law is ``q (..., V)``.
DRAFT_FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "draft: its most probable token": lambda q: np.eye(VOCAB)[np.argmax(q, axis=-1)],
    "draft: temperature 0.7": lambda q: q ** (1 / 0.7) / (q ** (1 / 0.7)).sum(axis=-1, keepdims=True),
    "draft: top-k 6 not declared": lambda q: np.where(q >= np.sort(q, axis=-1)[..., -6, None], q, 0.0),
    "draft: the row before": lambda q: np.roll(q, 1, axis=-2),
}


def engine(
    rng: np.random.Generator,
    rounds: int,
    law: Law = right,
    *,
    g: int = 2,
    block: bool = False,
    coins: bool = False,
    spread: float = 0.7,
    dtype: type = np.float32,
    vocab: int = VOCAB,
    stop: int | None = None,
    cut: bool = True,
    drafts: Callable[[np.ndarray], np.ndarray] = lambda q: q,
) -> Rounds:
    """Rounds of an engine whose decisions are right, and whose next tokens come from ``law``; its drafts come
    from ``drafts`` of the declared law.

    Each round is the last of a text where it accepts the token ``stop``; of such a round ``cut`` logs the
    accepted tokens up to it, and no next token.
    """
    target = (1.5 * rng.normal(size=(rounds, g + 1, vocab))).astype(dtype)
    draft = (target[:, :g] + spread * rng.normal(size=(rounds, g, vocab))).astype(dtype)
    p, q = (_softmax(rows.astype(np.float64)) for rows in (target, draft))
    tokens = _race(rng, drafts(q))
    u = rng.random((rounds, g))
    entries, emitted = [], []
    for r in range(rounds):
        k, weight = (_block if block else _accepted)(p[r], q[r], tokens[r], u[r])
        y = int(_race(rng, law(p[r], q[r], k, weight)))
        stopped = cut and stop is not None and stop in tokens[r, :k]
        if stopped:
            k = int(np.argmax(tokens[r] == stop)) + 1
        emitted.append([*tokens[r, :k].tolist(), None if stopped else y])
        entries.append({
            "target_logits": target[r], "draft_logits": draft[r], "draft_tokens": tokens[r], "accepted": k,
            "next_token": None if stopped else y, "u": u[r] if coins else None, "u_next": None,
            "u_slack": 0.0, "stopped": stopped and k < g,
        })  # fmt: skip
    text = Emitted(emitted, [len(one) for one in emitted], [False] * rounds, None, [])
    return Rounds("simulated", entries, {}, text, stops=frozenset() if stop is None else frozenset({stop}))


def _softmax(rows: np.ndarray) -> np.ndarray:
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _race(rng: np.random.Generator, law: np.ndarray) -> np.ndarray:
    """Draws by an exponential race: the token whose exponential time, at rate p, is over first."""
    return np.argmax(law / rng.exponential(size=law.shape), axis=-1)


def _accepted(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, u: np.ndarray) -> tuple[int, float]:
    for i, x in enumerate(tokens):
        if not u[i] * q[i, x] < p[i, x]:
            return i, 1.0
    return len(tokens), 1.0


def _block(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, u: np.ndarray) -> tuple[int, float]:
    """Sun et al. 2024, Algorithm 2, as vLLM's kernel goes through it: the last prefix that passes."""
    found, weight, kept = 0, 1.0, 1.0
    for i, x in enumerate(tokens):
        weight = min(1.0, weight * p[i, x] / q[i, x])
        if i + 1 < len(tokens):
            room = np.clip(weight * p[i + 1] - q[i + 1], 0, None).sum()
            chance = room / (room + 1 - weight) if room + 1 - weight > 0 else 1.0
        else:
            chance = weight
        if u[i] <= chance:
            found, kept = i + 1, weight
    return found, kept
