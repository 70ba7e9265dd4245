"""Inputs on which samplers fail: pairs of a target and a draft, and chains of them over several positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from resispec_verify.errors import InputError

__all__ = ["Chain", "Input", "battery", "battery_names", "chains", "inputs_of", "named", "named_inputs"]


@dataclass(frozen=True)
class Input:
    """One pair.

    Attributes
    ----------
    name : str
    target, draft : float64 array (V,)
        Probabilities.
    share : float
        Its draws, as a share of the budget of one pair.
    """

    name: str
    target: np.ndarray
    draft: np.ndarray
    share: float = 1.0


@dataclass(frozen=True)
class Chain:
    """Targets and drafts at several positions, each given the token before.

    Attributes
    ----------
    name : str
    target : float64 array (L + 1, V, V)
        ``target[i, x]`` is the law of token i after token x; of the first, all rows are equal.
    draft : float64 array (L, V, V)
    """

    name: str
    target: np.ndarray
    draft: np.ndarray
    share: float = 0.25


def _softmax(rows: np.ndarray) -> np.ndarray:
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _wide(vocab: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A law of power-law tail, as of a language model, and a draft that is a noisy copy of it."""
    rng = np.random.default_rng(seed)
    logits = -1.2 * np.log(np.arange(vocab) + 2.0)
    target = rng.permutation(logits)
    return _softmax(target), _softmax(target + rng.normal(0.0, 1.0, vocab))


@cache
def named(name: str) -> Input:
    """The input of the battery with this name."""
    if name == "wide":
        return Input(name, *_wide(4096, 1), 1 / 16)
    if name == "very-wide":
        return Input(name, *_wide(151_936, 2), 1 / 256)
    adversarial = np.random.default_rng(0).normal(0.0, 1.5, 16)
    laws: dict[str, tuple[Sequence[float], Sequence[float], float]] = {
        "base": ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1], 1.0),
        "v4": ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], 0.5),
        "equal": ([0.25, 0.05, 0.4, 0.3], [0.25, 0.05, 0.4, 0.3], 0.125),
        "one-hot": ([0.0, 1.0, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1], 1 / 64),
        "both-one-hot": ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0], 1 / 64),
        # No target at both ends, where an inverse transform goes wrong; no draft in the middle.
        "zeros": ([0.0, 0.3, 0.2, 0.5, 0.0, 0.0], [0.3, 0.0, 0.4, 0.1, 0.0, 0.2], 0.125),
        # Ten tenths sum to less than 1 in floating point.
        "tenths": ([0.1] * 10, [0.05, 0.15] * 5, 0.125),
        "peaked": ([0.9994, 0.0003, 0.0002, 0.0001], [0.7, 0.1, 0.1, 0.1], 0.25),
        "adversarial": (list(_softmax(adversarial)), list(_softmax(-adversarial)), 0.25),
    }
    target, draft, share = laws[name]
    return Input(name, np.array(target), np.array(draft), share)


def battery_names() -> tuple[str, ...]:
    """The names of the fixed battery, cheap ones first."""
    return (
        "base", "v4", "equal", "one-hot", "both-one-hot", "zeros", "tenths", "peaked", "adversarial", "wide",
        "very-wide",
    )  # fmt: skip


def battery() -> tuple[Input, ...]:
    """The fixed battery."""
    return tuple(named(name) for name in battery_names())


def chains() -> tuple[Chain, ...]:
    """The chains of the block style."""
    return (_chain("bonus"), _chain("certain"), _chain("random-3"), _chain("random-4"))


def inputs_of(style: str) -> tuple[Input | Chain, ...]:
    """The fixed inputs of a style, cheap ones first."""
    return chains() if style == "block" else battery()


def named_inputs(names: Sequence[str], style: str = "tokens") -> list[Input | Chain]:
    """Fixed inputs of a style by name.

    Raises
    ------
    InputError
        The style has no input of that name.
    """
    there = {one.name: one for one in inputs_of(style)}
    if unknown := [name for name in names if name not in there]:
        raise InputError(f"no input named {unknown[0]!r} for the style {style}; there are {', '.join(there)}")
    return [there[name] for name in names]


@cache
def _chain(name: str) -> Chain:
    if name == "bonus":  # the token after an accepted one comes from another law than the first
        target = np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.2, 0.8]]])
        draft = np.array([[[0.6, 0.4], [0.6, 0.4]]])
        return Chain(name, target, draft)
    if name == "certain":  # a drafted token that must never come out
        target = np.array([[[1.0, 0.0, 0.0]] * 3, [[0.2, 0.3, 0.5]] * 3, [[0.5, 0.3, 0.2]] * 3])
        draft = np.array([[[0.2, 0.7, 0.1]] * 3, [[0.4, 0.3, 0.3]] * 3])
        return Chain(name, target, draft)
    vocab, length, seed = {"random-3": (3, 3, 3), "random-4": (4, 2, 4)}[name]
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(vocab), size=(length + 1, vocab))
    draft = 0.5 * target[:length] + 0.5 * rng.dirichlet(np.ones(vocab), size=(length, vocab))
    target[0], draft[0] = target[0, :1], draft[0, :1]
    return Chain(name, target, draft)
