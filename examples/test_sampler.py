"""Two samplers under pytest: the first passes, the second fails, and the message says why.

    pip install '.[testing]' && pytest examples/test_sampler.py
"""

import numpy as np


def pick(law, rng):
    """One token a row, never one of weight 0."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (rng.random(len(law)) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)


def speculative(target, draft, rng):
    """Speculative sampling of one candidate."""
    x = pick(draft, rng)
    rows = np.arange(len(x))
    accept = rng.random(len(x)) * draft[rows, x] < target[rows, x]
    rest = np.clip(target - draft, 0.0, None)
    rest = np.where(rest.sum(axis=-1, keepdims=True) > 0, rest, target)
    return np.where(accept, x, pick(rest, rng))


def forgets_the_residual(target, draft, rng):
    """The same, but a rejected token is drawn again from the target itself."""
    x = pick(draft, rng)
    rows = np.arange(len(x))
    accept = rng.random(len(x)) * draft[rows, x] < target[rows, x]
    return np.where(accept, x, pick(target, rng))


def test_speculative(assert_lossless):
    assert_lossless(speculative, pairs=["base"], draws=20_000)


def test_forgets_the_residual(assert_lossless):
    assert_lossless(forgets_the_residual, pairs=["base"], draws=20_000)
