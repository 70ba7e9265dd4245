"""What a rule over paths really emits, on toy chains: the joint law of a block against the target's.

A block is completed to L + 1 tokens: the accepted prefix, the corrected token, and the target's own
continuation. A rule is exact over the block when that joint law is the target's. Every path of L tokens is
enumerated, in floats, so this is for a handful of tokens: a marginal of the first token is not enough, for a
rule can be right in each token and wrong in the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.inputs import arrays, shown
from resispec_verify.rules.path_rule import PathRule

__all__ = ["PathMarginal", "joint_law", "levels_of", "path_marginal"]


@dataclass(frozen=True)
class PathMarginal:
    """The block that a rule emits on a chain.

    Attributes
    ----------
    joint, target : float64 (V,) * (L + 1)
        Law of the completed block, and the target's.
    accepted : float64 (L + 1,)
        Probability that exactly 0, ..., L drafted tokens are accepted.
    rounding : float
        Bound on the rounding error of ``joint`` in total variation.
    """

    joint: np.ndarray
    target: np.ndarray
    accepted: np.ndarray
    rounding: float

    @property
    def tv(self) -> float:
        """Total variation between the emitted block and the target's."""
        return 0.5 * float(np.abs(self.joint - self.target).sum())

    @property
    def mean_accepted(self) -> float:
        """Expected number of accepted tokens, without the corrected one."""
        return float((np.arange(self.accepted.size) * self.accepted).sum())


def joint_law(chain: Sequence[Any]) -> np.ndarray:
    """Law of a sequence from its conditional laws; level i is ``(V,) * (i + 1)``, the last axis a law."""
    law = np.ones(())
    for level in chain:
        law = law[..., None] * np.asarray(level, np.float64)
    return law


def path_marginal(rule: PathRule, targets: Sequence[Any], drafts: Sequence[Any]) -> PathMarginal:
    """Enumerate every drafted path of a toy chain.

    Parameters
    ----------
    rule : PathRule
    targets : sequence of L + 1 arrays
        Level i is ``(V,) * (i + 1)``: the target's law of token i + 1 after each prefix of i tokens.
    drafts : sequence of L arrays
        The same for the draft, which the paths are drawn from.

    Raises
    ------
    InputError
        Levels that do not have these shapes, or whose laws do not sum to 1.
    """
    if isinstance(rule, type) or not isinstance(rule, PathRule):
        raise InputError(f"rule must be a PathRule, such as rules.Block(); got {shown(rule)}")
    length = len(drafts)
    if len(targets) != length + 1:
        raise InputError(f"a path of {length} tokens needs {length + 1} target levels, got {len(targets)}")
    targets = levels_of(targets, "targets")
    vocab = targets[0].shape[-1]
    drafts = levels_of(drafts, "drafts", vocab)
    paths = np.indices((vocab,) * length).reshape(length, vocab**length).T
    prefixes = [tuple(paths[:, :i].T) for i in range(length + 1)]

    def along(chain: list[np.ndarray]) -> np.ndarray:
        rows = np.empty((len(paths), len(chain), vocab))
        for i, level in enumerate(chain):
            rows[:, i, :] = level[prefixes[i]]
        return rows

    lengths, corrections = rule.outcome(along(targets), along(drafts), paths)
    reach = joint_law(drafts).reshape(-1)[:, None] * lengths  # (paths, L + 1)
    joint = np.zeros((vocab,) * (length + 1))
    for i in range(length + 1):
        emitted = reach[:, i, None] * corrections[:, i, :]
        block = emitted.reshape((vocab,) * i + (-1, vocab)).sum(axis=-2)
        for level in targets[i + 1 :]:
            block = block[..., None] * level
        joint += block
    # A term passes through the row sums of a law (V terms), a product of L + 1 factors, and V**L additions.
    roundings = (length + 1) * (2 * vocab + 8) + len(paths)
    # A law whose row misses the sum 1 moves mass by that much at its level.
    off = sum(float(np.abs(1.0 - level.sum(axis=-1)).max()) for level in (*targets, *drafts))
    rounding = off + 0.5 * float(np.finfo(np.float64).eps) * roundings
    return PathMarginal(joint, joint_law(targets), reach.sum(axis=0), rounding)


def levels_of(chain: Sequence[Any], name: str, vocab: int | None = None) -> list[np.ndarray]:
    """The levels of a chain in float64; raises `InputError` where they are none, by their ``name``."""
    named = {f"{name}[{i}]": level for i, level in enumerate(chain)}
    levels = [to_numpy(level).astype(np.float64, copy=False) for level in arrays(**named).values()]
    vocab = vocab or (levels[0].shape[-1] if levels and levels[0].ndim else 0)
    for i, level in enumerate(levels):
        if level.shape != (vocab,) * (i + 1):
            raise InputError(f"{name}[{i}] must have shape {(vocab,) * (i + 1)}, got {level.shape}")
        if not (level >= 0).all() or not np.allclose(level.sum(axis=-1), 1.0, rtol=0.0, atol=1e-9):
            raise InputError(f"{name}[{i}] must hold laws: non-negative rows that sum to 1 within 1e-9")
    return levels
