"""What a rule over paths really emits, on toy chains: the joint law of a block against the target's.

A block is completed to L + 1 tokens: the accepted prefix, the corrected token, and the target's own
continuation. A rule is exact over the block when that joint law is the target's. Every path of L tokens is
enumerated, in floats, so this is for a handful of tokens: a marginal of the first token is not enough, for a
rule can be right in each token and wrong in the pair. Where a policy cuts paths, each is enumerated with what
is kept of it.
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
from resispec_verify.rules.stopping import AfterVerification, StopPolicy

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


def path_marginal(
    rule: PathRule, targets: Sequence[Any], drafts: Sequence[Any], *, stop: StopPolicy | None = None
) -> PathMarginal:
    """Enumerate every drafted path of a toy chain.

    Parameters
    ----------
    rule : PathRule
    targets : sequence of L + 1 arrays
        Level i is ``(V,) * (i + 1)``: the target's law of token i + 1 after each prefix of i tokens.
    drafts : sequence of L arrays
        The same for the draft, which the paths are drawn from.
    stop : StopPolicy, optional
        Which tokens of a path are kept, such as ``TopProbability(0.5)``; by default all. A shorter path is
        verified as one of its length, or cut after verification (`AfterVerification`).

    Raises
    ------
    InputError
        Levels that do not have these shapes, or whose laws do not sum to 1; a policy that is none, or does
        not give the probability of each number of tokens.
    """
    if isinstance(rule, type) or not isinstance(rule, PathRule):
        raise InputError(f"rule must be a PathRule, such as rules.Block(); got {shown(rule)}")
    if stop is not None and not isinstance(stop, StopPolicy):
        raise InputError(f"stop must be a StopPolicy, such as TopProbability(0.5); got {shown(stop)}")
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

    lengths, emitted = _verified(rule, along(targets), along(drafts), paths, stop)
    drawn = joint_law(drafts).reshape(-1)
    joint = np.zeros((vocab,) * (length + 1))
    for i in range(length + 1):
        mass = drawn[:, None] * emitted[:, i, :]
        block = mass.reshape((vocab,) * i + (-1, vocab)).sum(axis=-2)
        for level in targets[i + 1 :]:
            block = block[..., None] * level
        joint += block
    # A term passes through the row sums of a law (V terms), a product of L + 1 factors, and V**L additions;
    # with a policy, through up to L additions of what is cut, and up to L + 1 of the numbers kept.
    roundings = (length + 1) * (2 * vocab + 8) + len(paths) + (0 if stop is None else 2 * length + 4)
    # A law whose row misses the sum 1 moves mass by that much at its level.
    off = sum(float(np.abs(1.0 - level.sum(axis=-1)).max()) for level in (*targets, *drafts))
    rounding = off + 0.5 * float(np.finfo(np.float64).eps) * roundings
    return PathMarginal(joint, joint_law(targets), (drawn[:, None] * lengths).sum(axis=0), rounding)


def _verified(
    rule: PathRule, targets: np.ndarray, drafts: np.ndarray, paths: np.ndarray, stop: StopPolicy | None
) -> tuple[np.ndarray, np.ndarray]:
    """Each path's law of the accepted length, ``(N, L + 1)``, and of it and the next token, with V more."""
    lengths, corrections = rule.outcome(targets, drafts, paths)
    if stop is None:
        return lengths, lengths[..., None] * corrections
    kept = _kept(stop, drafts, paths)
    accepted, emitted = np.zeros(lengths.shape), np.zeros(corrections.shape)
    for count in range(lengths.shape[1]):
        if isinstance(stop, AfterVerification):
            some, following = _cut(lengths, corrections, targets, count, stop.then)
        else:
            some, following = rule.outcome(targets[:, : count + 1], drafts[:, :count], paths[:, :count])
        share = kept[:, count, None] * some
        accepted[:, : count + 1] += share
        emitted[:, : count + 1] += share[..., None] * following
    return accepted, emitted


def _kept(stop: StopPolicy, drafts: np.ndarray, paths: np.ndarray) -> np.ndarray:
    kept = to_numpy(stop.kept(drafts.copy(), paths.copy()))
    right = (len(paths), paths.shape[1] + 1)
    if kept.shape != right:
        raise InputError(f"{type(stop).__name__}.kept must have shape {right}, one a path; got {kept.shape}")
    if not (kept >= 0).all() or not np.allclose(kept.sum(axis=-1), 1.0, rtol=0.0, atol=1e-9):
        raise InputError(f"{type(stop).__name__}.kept must hold laws: non-negative rows that sum to 1")
    return kept


def _cut(
    lengths: np.ndarray, corrections: np.ndarray, targets: np.ndarray, count: int, then: str
) -> tuple[np.ndarray, np.ndarray]:
    """What a rule accepted of whole paths, cut to ``count`` tokens."""
    some, following = lengths[:, : count + 1].copy(), corrections[:, : count + 1].copy()
    beyond = lengths[:, count + 1 :].sum(axis=1)
    some[:, count] += beyond
    taken = np.ones(len(lengths)) if then == "target" else _ratio(beyond, some[:, count])
    following[:, count] = taken[:, None] * targets[:, count] + (1 - taken)[:, None] * corrections[:, count]
    return some, following


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0)


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
