"""`check` on samplers in a file, from the command line."""

from __future__ import annotations

import numpy as np

from resispec_verify.cli import main

FEW = ("--draws", "600", "--no-search", "--input", "base")


def check(*words):
    return main(["check", *map(str, words)])


def good(target, draft, rng):
    total = target.sum(axis=-1, keepdims=True)
    last = target.shape[-1] - 1 - np.argmax(target[:, ::-1] > 0, axis=-1)
    return np.minimum((np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * total).sum(axis=-1), last)


GOOD = '''
"""Samplers."""
import numpy as np

def good(target, draft, rng):
    print("a sampler may print")
    below = np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * target.sum(axis=-1, keepdims=True)
    return below.sum(axis=-1)

def greedy(target, draft, rng):
    return target.argmax(axis=-1)

constant = 3
'''
