"""Samplers that get something else than laws and a generator: uniforms, logits, flat batches, reserved
tokens, other arrays. Exact ones, and faults.
"""

from __future__ import annotations

import numpy as np
from samplers import at, block_speculative, pick, residual, softmax, speculative

# Uniforms as an argument


class Served:
    """A generator that hands out given uniforms ``(rows, n)``, a column a call."""

    def __init__(self, uniforms):
        self.left = iter(uniforms.T)

    def random(self, rows):
        return next(self.left)


def specinfer(target, draft, candidates, uniforms, *, closed=False, last=-1):
    """SpecInfer on candidates that are handed in; a coin each, and the last one for the draw after them."""
    rest, out = target, np.full(len(target), -1)
    for i in range(candidates.shape[1]):
        x, odds = candidates[:, i], at(rest, candidates[:, i])
        coin = uniforms[:, i] * at(draft, x)
        accept = (out < 0) & ((coin <= odds) if closed else (coin < odds))
        out = np.where(accept, x, out)
        rest = residual(rest, draft)
    return np.where(out < 0, pick(Served(uniforms[:, [last]]), rest), out)


def coin_reused(target, draft, candidates, uniforms):
    """The draw after a rejection uses the coin of the last test, which is known to be high."""
    return specinfer(target, draft, candidates, uniforms, last=-2)


def accepts_at_zero(target, draft, candidates, uniforms):
    """``u <= p / q``."""
    return specinfer(target, draft, candidates, uniforms, closed=True)


# Logits


def of_logits(logits, temperature=1.0):
    return softmax(logits.astype(np.float64) / temperature)


def from_logits(target, draft, rng):
    """Right for logits and for log-probabilities, in any precision."""
    return speculative(of_logits(target), of_logits(draft), rng)


def wrong_temperature(target, draft, rng):
    """Temperature 1.1 for the target."""
    return speculative(of_logits(target, 1.1), of_logits(draft), rng)


def takes_logits_for_log_probabilities(target, draft, rng):
    """Takes exponentials and does not normalise them."""
    return speculative(np.exp(target.astype(np.float64)), np.exp(draft.astype(np.float64)), rng)


# Flat batches


def flat(targets, drafts, path, lengths, rng, *, shift=0, bonus=0):
    """Pads, verifies, and returns as many columns as the longest path of the call needs."""
    counts = np.diff(lengths)
    rows, longest, vocab = len(counts), int(counts.max()), targets.shape[-1]
    padded = np.full((rows, longest), -1)
    p, q = np.zeros((rows, longest + 1, vocab)), np.zeros((rows, longest, vocab))
    for row, count in enumerate(counts):
        first = min(lengths[row] + shift, len(path) - count) if count else 0
        start = lengths[row] + row + bonus
        padded[row, :count] = path[first : first + count]
        q[row, :count] = drafts[first : first + count]
        p[row, : count + 1] = (
            targets[start : start + count + 1]
            if not bonus
            else targets[np.minimum(np.arange(start, start + count + 1), len(targets) - 1)]
        )
    return block_speculative(p, q, padded, rng)


def flat_forgets_the_extra_rows(targets, drafts, path, lengths, rng):
    """Each row of targets has one more than its path: without it row i begins i too early."""
    rows = len(lengths) - 1
    moved = np.concatenate([targets[lengths[row] : lengths[row + 1] + 1] for row in range(rows)])
    return flat(moved, drafts, path, lengths, rng)


def flat_off_by_one(targets, drafts, path, lengths, rng):
    """Candidates and drafts of a row begin one too late."""
    return flat(targets, drafts, path, lengths, rng, shift=1)


# Reserved tokens


def with_reserved(target, draft, rng):
    """Cuts off the first token, which is reserved, and puts it back."""
    return 1 + speculative(target[:, 1:], draft[:, 1:], rng)


def forgets_the_offset(target, draft, rng):
    """Does not put it back."""
    return speculative(target[:, 1:], draft[:, 1:], rng)


def clamps(target, draft, rng):
    """Keeps tokens away from the reserved one by a bound that is one too high."""
    return np.maximum(speculative(target, draft, rng), 2)
