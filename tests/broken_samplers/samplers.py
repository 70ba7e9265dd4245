"""Samplers as programs: the faults of public reports, and exact ones that their users call wrong.

All are batched NumPy, in the style of `resispec_verify.testing.assert_lossless`: ``(target, draft, rng) ->
tokens``. The transcriptions are ours; the reports are named in the docstrings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray
EMPTY = -1


def pick(rng: np.random.Generator, law: Array) -> Array:
    """One token a row from ``law (rows, V)``, which need not be normalised; never one of weight 0."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (rng.random(len(law)) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)


def at(law: Array, tokens: Array) -> Array:
    return np.take_along_axis(law, tokens[:, None], axis=-1)[:, 0]


def residual(target: Array, draft: Array) -> Array:
    """Positive part of the difference, normalised; the target where nothing is left."""
    over = np.clip(target - draft, 0.0, None)
    total = over.sum(axis=-1, keepdims=True)
    return np.where(total > 0, over / np.where(total > 0, total, 1.0), target)


def verified(
    target: Array, declared: Array, x: Array, rng: np.random.Generator, rest: Array | None = None
) -> Array:
    """Speculative sampling's test of ``x``, and its draw after a rejection."""
    accept = rng.random(len(x)) * at(declared, x) < at(target, x)
    return np.where(accept, x, pick(rng, residual(target, declared) if rest is None else rest))


def softmax(rows: Array) -> Array:
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def one_hot(tokens: Array, vocab: int) -> Array:
    return (np.arange(vocab) == tokens[:, None]).astype(float)


# Exact


def speculative(target, draft, rng):
    """Leviathan et al. 2023; Chen et al. 2023."""
    return verified(target, draft, pick(rng, draft), rng)


def token_match(target, draft, rng):
    """mlxcel#902: accept if the target's own draw is the candidate, and emit the target's draw."""
    return pick(rng, target)


def soft_draw_tested_as_one_hot(target, draft, rng):
    """vllm#40149: drawn from q, but q treated as one-hot: less acceptance, nothing else."""
    x = pick(rng, draft)
    return verified(target, one_hot(x, draft.shape[-1]), x, rng)


def top_1_tested_as_one_hot(target, draft, rng):
    """EAGLE#110 done right: the argmax of the draft, tested with q = 1."""
    x = draft.argmax(axis=-1)
    return verified(target, one_hot(x, draft.shape[-1]), x, rng)


def top_2_declared(target, draft, rng):
    """transformers#47932 done right: the truncated draft is drawn from and declared."""
    q = top(draft, 2)
    return verified(target, q, pick(rng, q), rng)


def specinfer(target, draft, rng):
    """SpecInfer with two candidates; a duplicate is tested again and updates the residual."""
    return _multi_step(target, draft, [pick(rng, draft), pick(rng, draft)], rng)


def sequoia(target, draft, rng):
    """Sequoia: two without replacement, the draft renormalised after each."""
    return _without_replacement(target, draft, rng, renormalise=True)


def blind(target, draft, rng):
    """Writes into its inputs when it no longer needs them."""
    x = pick(rng, draft)
    accept = rng.random(len(x)) * at(draft, x) < at(target, x)
    fallback = target.copy()
    np.subtract(target, draft, out=target)
    np.clip(target, 0.0, None, out=target)
    rest = np.where(target.sum(axis=-1, keepdims=True) > 0, target, fallback)
    return np.where(accept, x, pick(rng, rest))


def single_precision(target, draft, rng):
    """All of it in float32, carefully."""
    return speculative(target.astype(np.float32), draft.astype(np.float32), rng)


# Faults of the residual


def redraws_from_target(target, draft, rng):
    """Spec-RL#14: after a rejection the token comes from p."""
    return verified(target, draft, pick(rng, draft), rng, target)


def softmax_of_residual(target, draft, rng):
    """transformers#28508: softmax instead of normalising."""
    return verified(target, draft, pick(rng, draft), rng, softmax(np.clip(target - draft, 0.0, None)))


def writes_in_place(target, draft, rng):
    """vllm#16952: the caller's arrays are overwritten, and used after that."""
    target *= 0.5
    target += 0.5 * draft
    return speculative(target, draft, rng)


def no_fallback(target, draft, rng):
    """jaymody#5, MTPLX#82: p == q leaves 0/0 after a rejection, which last-bit differences make possible."""
    x = pick(rng, draft)
    accept = rng.random(len(x)) < at(target, x).astype(np.float32).astype(float) * (1 - 1e-7) / at(draft, x)
    over = np.clip(target - draft, 0.0, None)
    cumulative = np.cumsum(over / over.sum(axis=-1, keepdims=True), axis=-1)
    drawn = (~(cumulative > rng.random(len(x))[:, None])).sum(axis=-1)  # NaN is never above
    return np.where(accept, x, drawn)


def skips_duplicates(target, draft, rng):
    """A mode of SpecHub's code: a duplicate of a rejected candidate leaves the residual as it is."""
    x, y = pick(rng, draft), pick(rng, draft)
    first = rng.random(len(x)) * at(draft, x) < at(target, x)
    R = residual(target, draft)
    second = (x != y) & (rng.random(len(x)) * at(draft, y) < at(R, y))
    last = np.where((x == y)[:, None], R, residual(R, draft))
    return np.where(first, x, np.where(second, y, pick(rng, last)))


# Faults of the test and of the target


def never_checked(target, draft, rng):
    """lattice#243: the draft is emitted."""
    return pick(rng, draft)


def argmax_at_any_temperature(target, draft, rng):
    """ATOM#2318."""
    return target.argmax(axis=-1)


def blend(target, draft, rng):
    """transformers#45979, weight 1/2: lossy by design."""
    return speculative(0.5 * target + 0.5 * draft, draft, rng)


def sharpened(target, draft, rng):
    """A temperature that is a little off: p ** 1.05."""
    p = target**1.05
    return speculative(p / p.sum(axis=-1, keepdims=True), draft, rng)


def divides_by_temperature(target, draft, rng):
    """vllm#27077: a greedy request is one-hot, and its logits are divided by T = 0."""
    temperature = np.where(target.max(axis=-1, keepdims=True) == 1.0, 0.0, 1.0)
    logits = np.log(target) / temperature
    p = softmax(logits)
    return np.argmax(np.cumsum(p, axis=-1) > rng.random((len(p), 1)), axis=-1)


def scored_against(raw) -> Callable[..., Array]:
    """vllm#10198: the target without the request's top-p."""

    def sampler(target, draft, rng):
        return speculative(np.broadcast_to(np.asarray(raw), target.shape), draft, rng)

    return sampler


def target_only(threshold: float) -> Callable[..., Array]:
    """SGLang, tree_speculative_sampling_target_only: two top siblings, accumulated p against the
    threshold."""

    def sampler(target, draft, rng):
        x = np.argsort(-draft, axis=-1, kind="stable")[:, :2]
        p = np.take_along_axis(target, x, axis=-1)
        coin = rng.random((len(x), 1)) * threshold
        accept = coin <= np.cumsum(p, axis=-1)
        tried = np.zeros_like(target)
        np.put_along_axis(tried, x, 1.0, axis=-1)
        rest = np.where(tried > 0, 0.0, target)
        rest = np.where(rest.sum(axis=-1, keepdims=True) > 0, rest, target)
        chosen = np.take_along_axis(x, accept.argmax(axis=-1)[:, None], axis=-1)[:, 0]
        return np.where(accept.any(axis=-1), chosen, pick(rng, rest))

    return sampler


def medusa(target, draft, rng):
    """Typical acceptance of the draft's first token, delta .09 and alpha .3; else the target's argmax."""
    x = draft.argmax(axis=-1)
    entropy = -np.sum(np.where(target > 0, target * np.log(np.maximum(target, 1e-300)), 0.0), axis=-1)
    accept = at(target, x) > np.minimum(0.09, 0.3 * np.exp(-entropy))
    return np.where(accept, x, target.argmax(axis=-1))


# Faults of the proposal


def top(draft: Array, k: int) -> Array:
    """The draft cut to its k most probable tokens."""
    kept = np.zeros_like(draft)
    order = np.argsort(-draft, axis=-1, kind="stable")[:, :k]
    np.put_along_axis(kept, order, np.take_along_axis(draft, order, axis=-1), axis=-1)
    return kept / kept.sum(axis=-1, keepdims=True)


def drafts_greedily(target, draft, rng):
    """transformers#32867, llama.cpp's example: the argmax, tested as if it had been drawn."""
    return verified(target, draft, draft.argmax(axis=-1), rng)


def drafts_from_top_2(target, draft, rng):
    """transformers#47932: drawn from the top 2, declared as the whole draft."""
    return verified(target, draft, pick(rng, top(draft, 2)), rng)


def sorted_candidates(target, draft, rng):
    """llama.cpp#5625: two i.i.d. candidates, the one the draft prefers first."""
    x, y = pick(rng, draft), pick(rng, draft)
    swap = at(draft, y) > at(draft, x)
    return _multi_step(target, draft, [np.where(swap, y, x), np.where(swap, x, y)], rng)


def merged_candidates(target, draft, rng):
    """llama.cpp#5625, the other half: two i.i.d. candidates, a duplicate is dropped."""
    x, y = pick(rng, draft), pick(rng, draft)
    first = rng.random(len(x)) * at(draft, x) < at(target, x)
    R = residual(target, draft)
    second = (x != y) & (rng.random(len(x)) * at(draft, y) < at(R, y))
    last = np.where((x == y)[:, None], R, residual(R, draft))
    return np.where(first, x, np.where(second, y, pick(rng, last)))


def draft_not_renormalised(target, draft, rng):
    """EAGLE#74: two without replacement, the draft not renormalised."""
    return _without_replacement(target, draft, rng, renormalise=False)


def shared_gumbel(target, draft, rng):
    """vllm#54282: draft and recovery share one Gumbel vector."""
    with np.errstate(divide="ignore"):
        noise = -np.log(-np.log(np.clip(rng.random(draft.shape), 1e-300, 1 - 2**-53)))
        x = np.argmax(np.log(draft) + noise, axis=-1)
        accept = rng.random(len(x)) * at(draft, x) < at(target, x)
        return np.where(accept, x, np.argmax(np.log(residual(target, draft)) + noise, axis=-1))


def _multi_step(target, draft, candidates, rng):
    R, out = target, np.full(len(target), EMPTY)
    for x in candidates:
        accept = (out == EMPTY) & (rng.random(len(x)) * at(draft, x) < at(R, x))
        out = np.where(accept, x, out)
        R = residual(R, draft)
    return np.where(out == EMPTY, pick(rng, R), out)


def _without_replacement(target, draft, rng, *, renormalise):
    R, D, out = target, draft, np.full(len(target), EMPTY)
    drawn_from = draft
    for _ in range(2):
        there = drawn_from.sum(axis=-1) > 0  # else the draft has no token left
        x = pick(rng, np.where(there[:, None], drawn_from, target))
        accept = (out == EMPTY) & there & (rng.random(len(x)) * at(D, x) < at(R, x))
        out = np.where(accept, x, out)
        R = np.where(there[:, None], residual(R, D), R)
        drawn_from = np.where(one_hot(x, draft.shape[-1]) > 0, 0.0, drawn_from)
        total = drawn_from.sum(axis=-1, keepdims=True)
        D = drawn_from / np.where(total > 0, total, 1.0) if renormalise else drawn_from
    return np.where(out == EMPTY, pick(rng, R), out)


# Faults of the randomness


def one_seed_for_every_row(target, draft, rng):
    """vllm#50440."""
    seed = int(rng.integers(2**32))
    one = speculative(target[:1], draft[:1], np.random.default_rng(seed))
    return np.repeat(one, len(target))


def one_seed_for_every_call(target, draft, rng):
    """The request's seed is set before each step."""
    return speculative(target, draft, np.random.default_rng(0))


class ReusesItsCoins:
    """Sequoia's code: coins and noise are drawn once and used at every step; each marginal is right."""

    def __init__(self) -> None:
        self.coins: dict[tuple[int, ...], int] = {}

    def __call__(self, target, draft, rng):
        seed = self.coins.setdefault(target.shape, int(rng.integers(2**32)))
        return speculative(target, draft, np.random.default_rng(seed))


def first_row_for_all(target, draft, rng):
    """The first row's law is used for every row."""
    return speculative(
        np.repeat(target[:1], len(target), axis=0), np.repeat(draft[:1], len(draft), axis=0), rng
    )


# Faults at the ends of the uniforms


def accepts_at_zero(target, draft, rng):
    """``u <= p / q`` accepts a token of probability 0 when u = 0."""
    x = pick(rng, draft)
    accept = rng.random(len(x)) * at(draft, x) <= at(target, x)
    return np.where(accept, x, pick(rng, residual(target, draft)))


def left_inverse(target, draft, rng):
    """An inverse transform that takes the first token at u = 0, whatever its probability."""
    cumulative = np.cumsum(target, axis=-1)
    return np.minimum((cumulative < rng.random((len(target), 1))).sum(axis=-1), target.shape[-1] - 1)


def runs_over_the_end(target, draft, rng):
    """An inverse transform without a guard: the last cumulative sum may lie below u."""
    return (np.cumsum(target, axis=-1) <= rng.random((len(target), 1))).sum(axis=-1)


# Rules of the package, by their certified marginals


def emits_law_of(rule: Any, n: int) -> Callable[..., Array]:
    """A sampler that emits exactly what enumeration says the rule emits."""
    from resispec_verify.evidence import operational_marginals
    from resispec_verify.evidence.enumeration import Budget

    budget = Budget(gap=0.0, until_decided=False)

    @cache
    def law(target: bytes, draft: bytes) -> Array:
        pair = (np.frombuffer(row)[None] for row in (target, draft))
        return np.asarray(operational_marginals(rule, *pair, n, budget=budget).placed)[0]

    def sampler(target, draft, rng):
        pairs = np.concatenate([target, draft], axis=-1)
        if (pairs == pairs[:1]).all():
            laws = np.repeat(law(target[0].tobytes(), draft[0].tobytes())[None], len(target), axis=0)
        else:
            laws = np.stack([law(p.tobytes(), q.tobytes()) for p, q in zip(target, draft, strict=True)])
        return pick(rng, laws)

    return sampler


# Candidates handed in


def specinfer_handed_in(target, draft, candidates, rng):
    """SpecInfer's test of candidates from outside, with the index of the accepted one."""
    rows, n = candidates.shape
    R, accepted = target, np.full(rows, n)
    for i in range(n):
        accept = (accepted == n) & (rng.random(rows) * at(draft, candidates[:, i]) < at(R, candidates[:, i]))
        accepted = np.where(accept, i, accepted)
        R = residual(R, draft)
    token = at(candidates, np.minimum(accepted, n - 1))
    return np.where(accepted == n, pick(rng, R), token), accepted


def first_candidate_only(target, draft, candidates, rng):
    """Exact, but the second candidate is never looked at: the acceptance is not SpecInfer's."""
    token, accepted = specinfer_handed_in(target, draft, candidates[:, :1], rng)
    return token, np.where(accepted == 1, candidates.shape[1], accepted)


# Paths


def block_speculative(
    targets,
    drafts,
    path,
    rng,
    *,
    bonus_from_parent=False,
    pads_as_tokens=False,
    fresh=True,
    checks_first=True,
):
    """Speculative sampling token by token along a path, with the token after it; faults by keyword."""
    rows, length = path.shape
    out = np.full((rows, length + 1), EMPTY)
    alive = np.ones(rows, bool)
    ended = np.zeros(rows, bool)
    coins = rng.random(rows)
    for i in range(length):
        x = path[:, i]
        there = np.ones(rows, bool) if pads_as_tokens else x >= 0
        coin = coins if not fresh else rng.random(rows)
        accept = coin * at(drafts[:, i], x) < at(targets[:, i], x)
        if pads_as_tokens:
            accept |= x < 0
        if i == 0 and not checks_first:
            accept[:] = True
        law = np.where(there[:, None], residual(targets[:, i], drafts[:, i]), targets[:, i])
        law = np.where(law.sum(axis=-1, keepdims=True) > 0, law, 1.0)
        other = pick(rng, law)
        stop = alive & ~(accept & there)
        out[alive, i] = np.where(accept & there, np.where(x < 0, x + targets.shape[-1], x), other)[alive]
        ended |= stop
        alive &= ~stop
    last = targets[:, length]
    if bonus_from_parent:
        last = residual(targets[:, length - 1], drafts[:, length - 1])
    last = np.where(last.sum(axis=-1, keepdims=True) > 0, last, 1.0)
    bonus = pick(rng, last)
    out[alive, length] = bonus[alive]
    return out


def bonus_from_parent(targets, drafts, path, rng):
    """EAGLE#47: the token after the accepted ones comes from the parent's residual."""
    return block_speculative(targets, drafts, path, rng, bonus_from_parent=True)


def first_never_checked(targets, drafts, path, rng):
    """lattice#243: the first drafted token is emitted unchecked."""
    return block_speculative(targets, drafts, path, rng, checks_first=False)


def one_coin_for_the_path(targets, drafts, path, rng):
    """One coin a row for all positions."""
    return block_speculative(targets, drafts, path, rng, fresh=False)


def pads_as_tokens(targets, drafts, path, rng):
    """flashinfer#879: -1 is an index like any other."""
    return block_speculative(targets, drafts, path, rng, pads_as_tokens=True)
