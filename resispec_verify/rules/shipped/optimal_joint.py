"""Optimal joint verification: the largest acceptance of any exact rule, for any number of i.i.d. candidates.

Each candidate takes a uniform place in the pieces of [0, 1) that its token owns, and the leftmost wins. The
winner x, whose law is m, is accepted with ``min(1, p(x) / m(x))``; otherwise the token is drawn from
``norm (p - m)_+``. See `kernels.layouts` for the pieces and docs/explanation/optimal-rules.md for the proof.

Guarantee: exact for every layout; with the layout of `best_layout` the acceptance ``sum min(p, m)`` is the
optimal-transport limit (Sun et al. 2023; Hu et al. 2025, arXiv 2502.18779). That a candidate is selected
first, and verified by speculative sampling then, is the canonical form of Khisti et al. (arXiv 2410.18234);
that the feasible m are a polymatroid is in Global Resolution (arXiv 2511.15898), which finds m by convex
minimisation. Candidates must be i.i.d. from the draft. The layout is found in float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.kernels.elementwise.residuals import (
    accept_ratio,
    positive_part_condition,
    standard_residual,
)
from resispec_verify.kernels.optimal.layouts import Layout, best_layout, race_law, winning_shares
from resispec_verify.rules.interface import State
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = ["OptimalJoint"]


@dataclass(frozen=True)
class OptimalJoint(TupleRule):
    """Select one of the candidates by a race, then verify it by speculative sampling.

    Attributes
    ----------
    find_layout : callable
        Maps target, draft (float64, ``(V,)``) and n to a `Layout`; replaceable, since a layout never costs
        exactness.
    """

    find_layout: Callable[[Any, Any, int], Layout] = best_layout

    name = "optimal-joint"
    claims_exact = True
    source = "this project, docs/explanation/optimal-rules.md"
    place = 130

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Lay out the tokens of one position ``(V,)``; the law of the winner is the draft that is tested."""
        if candidates == 0:
            return State(target, draft)  # nothing to lay out, and nothing is emitted as a candidate
        p, q = (np.ascontiguousarray(to_numpy(row), np.float64) for row in (target, draft))
        layout = self.find_layout(p, q, candidates)
        winner = _like(race_law(layout, q, q, candidates), target)
        extra = {"layout": layout, "accept": accept_ratio(target, winner), "winner": winner}
        return State(target, draft, extra=extra)

    def emitted(self, state: State, tuples: Array) -> Array:
        """The probability to win, times that of acceptance."""
        draft, tokens = to_numpy(state.draft).astype(np.float64), to_numpy(tuples)
        if not state.extra:
            return _like(np.zeros(tokens.shape), state.residual)
        won = winning_shares(state.extra["layout"], draft, tokens)
        accept = to_numpy(state.extra["accept"]).astype(np.float64)
        return _like(won * accept[np.clip(tokens, 0, None)], state.residual)

    def emitted_law(self, state: State, drawn_from: Array, candidates: int) -> Array:
        """The law of the winner, times its acceptance."""
        if not state.extra:
            return None
        drawn, draft = (to_numpy(row).astype(np.float64) for row in (drawn_from, state.draft))
        return (
            _like(race_law(state.extra["layout"], drawn, draft, candidates), drawn_from)
            * state.extra["accept"]
        )

    def final(self, state: State) -> Array:
        """What the winner's law leaves of the target."""
        if not state.extra:
            return state.residual
        return standard_residual(state.residual, state.extra["winner"])

    def final_condition(self, state: State) -> Array:
        """What the winner's law leaves is divided by its sum."""
        return positive_part_condition(state.residual, state.extra["winner"]) if state.extra else 1.0


def _like(values: np.ndarray, array: Array) -> Array:
    xp = array_namespace(array)
    return xp.asarray(values, dtype=array.dtype, device=array.device)
