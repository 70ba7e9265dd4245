"""Pairs of lists, their completions, and M."""

import numpy as np

from resispec_verify import topk
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows


def excess(p, q, s):
    """``M(s)``."""
    return float(np.clip(p - s * q, 0.0, None).sum())


def random_pairs(rng, count):
    """Pairs over 4 to 12 tokens of which the k most probable are listed; some with ties, zeros, or no cap."""
    vocab = int(rng.integers(4, 13))
    laws = rng.dirichlet(np.full(vocab, rng.choice([0.2, 1.0, 5.0])), (2, count))
    kind = rng.integers(4)
    if kind == 0:  # ties
        laws = rng.integers(1, 4, (2, count, vocab)) / 1.0
    elif kind == 1:  # zeros
        laws = np.where(rng.random(laws.shape) < 0.4, 0.0, laws) + 1e-300
        laws[..., 0] += 0.1
    laws /= laws.sum(axis=-1, keepdims=True)
    if rng.random() < 0.3:  # a draft close to the target
        laws[1] = 0.9 * laws[0] + 0.1 * laws[1]
    k, j = rng.integers(1, vocab + 1, 2)
    target, draft = topk.cut(laws[0], k), topk.cut(laws[1], j)
    if rng.random() < 0.2:
        target, draft = (
            TopRows(r.tokens, r.probabilities, r.tail, np.ones(count), vocab) for r in (target, draft)
        )
    return TopPairs(target, draft)


def random_completion(pairs, rng, i=0):
    """Two laws that agree with the lists of position i: at random, or the tails on few tokens."""
    return tuple(_complete(rows, rng, i) for rows in (pairs.target, pairs.draft))


def _complete(rows, rng, i):
    law, free = np.zeros(rows.vocab), np.ones(rows.vocab, bool)
    law[rows.tokens[i]] = rows.probabilities[i]
    free[rows.tokens[i]] = False
    places = rng.permutation(np.flatnonzero(free))
    left, most = rows.tail[i, 0], rows.most[i]
    share = rng.random()
    for at, x in enumerate(places):
        rest = (len(places) - at - 1) * most
        low, high = max(left - rest, 0.0), min(most, left)
        law[x] = high if share < 0.5 else rng.uniform(low, max(low, high))
        left -= law[x]
    return law
