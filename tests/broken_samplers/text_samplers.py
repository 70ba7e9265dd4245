"""Samplers of the text style: an engine's loop over several rounds, and its faults by keyword."""

from __future__ import annotations

import numpy as np
from samplers import EMPTY, at, block_speculative, pick, residual

# Candidates a round.
K = 3


def write(
    target, draft, prompt, length, rng, *, coins=None, bonus_from_draft=False, stale=False, first_row=False
):
    """Draft K tokens, verify, append, until every text has its length; it may give more.

    Faults: coins that are drawn once a text and used in every round, a token after the accepted ones that
    the draft gives, a round after a rejection that begins at the rejected token, one accepted length for all
    rows.
    """
    rows, k = prompt.shape
    texts = np.zeros((rows, k + length + 2 * K + 2), np.int64)
    texts[:, :k] = prompt
    row, have = np.arange(rows), np.full(rows, k)
    seen = prompt[:, -1].copy()  # the token after which the next round begins
    while have.min() < k + length:  # the last round may give more: what is too much is cut by the caller
        going = have < k + length
        path, laws, declared = _drafted(target, draft, texts, have, seen, rng)
        if bonus_from_draft:
            laws[:, K] = draft(path)[:, -1]
        new = _verified(laws, declared, path, rng, coins)
        if first_row:
            new[:, 1:] = np.where(new[:1, 1:] == EMPTY, EMPTY, np.where(new[:, 1:] == EMPTY, 0, new[:, 1:]))
        count = (new != EMPTY).sum(axis=-1)
        for i in range(K + 1):
            there = going & (i < count)
            texts[row[there], have[there]] = new[there, i]
            have[there] += 1
        seen = texts[row, have - 1]
        if stale:
            seen = np.where(count <= K, path[row, np.minimum(count, K) - 1], seen)
    return texts[:, k : have.min()]


def _drafted(target, draft, texts, have, seen, rng):
    """A path (rows, K), and the laws of both models along it."""
    rows = np.arange(len(texts))
    context = texts.copy()
    context[rows, have - 1] = seen
    declared = []
    for i in range(K):
        declared.append(draft(context)[rows, have - 1 + i])
        context[rows, have + i] = pick(rng, declared[-1])
    path = np.stack([context[rows, have + i] for i in range(K)], axis=1)
    after = target(context)
    return path, np.stack([after[rows, have - 1 + i] for i in range(K + 1)], axis=1), np.stack(declared, 1)


def _verified(laws, declared, path, rng, coins):
    if coins is None:
        return block_speculative(laws, declared, path, rng)
    out = np.full((len(path), K + 1), EMPTY)
    alive = np.ones(len(path), bool)
    for i in range(K):
        accept = coins[:, i] * at(declared[:, i], path[:, i]) < at(laws[:, i], path[:, i])
        new = np.where(accept, path[:, i], pick(rng, residual(laws[:, i], declared[:, i])))
        out[alive, i] = new[alive]
        alive &= accept
    out[alive, K] = pick(rng, laws[:, K])[alive]
    return out


def right(target, draft, prompt, length, rng):
    return write(target, draft, prompt, length, rng)


def coins_once_a_text(target, draft, prompt, length, rng):
    """Sequoia's code: coins are drawn at the start and used in every round."""
    return write(target, draft, prompt, length, rng, coins=rng.random((len(prompt), K)))


def bonus_from_the_draft(target, draft, prompt, length, rng):
    """The token after K accepted ones is the draft's own next one."""
    return write(target, draft, prompt, length, rng, bonus_from_draft=True)


def stale_after_a_rejection(target, draft, prompt, length, rng):
    """The next round begins after the token that was rejected, as a cache does that is not rolled back."""
    return write(target, draft, prompt, length, rng, stale=True)


def accepted_length_of_the_first_row(target, draft, prompt, length, rng):
    """All rows of a batch are cut where the first one is."""
    return write(target, draft, prompt, length, rng, first_row=True)


def one_seed_for_every_text(target, draft, prompt, length, rng):
    """Each text is right by itself, and they are all alike."""
    one = write(target, draft, prompt[:1], length, rng)
    return np.repeat(one, len(prompt), axis=0)


def one_coin_for_all_tokens(target, draft, prompt, length, rng):
    """The target's draws by an inverse transform, all from one uniform a text."""
    texts, coin = prompt, rng.random((len(prompt), 1))
    for _ in range(length):
        cumulative = np.cumsum(target(texts)[:, -1], axis=-1)
        new = (cumulative <= coin * cumulative[:, -1:]).sum(axis=-1)
        texts = np.concatenate([texts, new[:, None]], axis=1)
    return texts[:, prompt.shape[1] :]
