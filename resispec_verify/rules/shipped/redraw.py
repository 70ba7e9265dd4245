"""Redraw: after a rejection the token is drawn from the target, not from the residual.

SPEC-RL (Liu et al., arXiv 2509.23232), ShopeeLLM/Spec-RL at 97da99ed, ``verl/utils/speculative_decoding.py``
(``spec_cut``, ``spec_cut_with_knobs``) and ``verl/trainer/ppo/ray_trainer.py``: the last epoch's answer to a
prompt is the draft, its old policy q, the present policy p. A token is kept with ``min(1, lenience p / q)``;
from the first one that is not, the present policy goes on by itself, so the token in its place is a draw
from p. ``spec_bias`` is the logarithm of the lenience: 0 by default, 0.5 in the published script.

Guarantee: none; lossy by design (its authors, in its issue 14: for training, not to keep a distribution).
Assumption: the draft's token was drawn from q. Deviations: ``p_abs_thresh``, a least p(x) that nothing in the
trainer sets, is left out; the coins, which come from one fixed seed in every step, are taken as fresh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.residuals import accept_ratio
from resispec_verify.rules.interface import Rule, State

__all__ = ["Redraw"]


@dataclass(frozen=True)
class Redraw(Rule):
    """One candidate; what replaces it is a draw from the target.

    Attributes
    ----------
    lenience : float
        Factor of p / q in the test, above 0.
    """

    lenience: float = 1.0

    name = "redraw"
    claims_exact = False
    source = "SPEC-RL (arXiv 2509.23232), ShopeeLLM/Spec-RL"
    place = 196
    depends_on = "nothing"
    most_candidates = 1

    def __post_init__(self) -> None:
        if not (self.lenience > 0 and math.isfinite(self.lenience)):
            raise InputError(f"redraw: lenience must be a finite number above 0, got {self.lenience}")

    def accept(self, state: State) -> Array:
        """``min(1, lenience p / q)``."""
        return accept_ratio(self.lenience * state.residual, state.draft)

    def reject(self, state: State, tokens: Array) -> State:
        """The target stays."""
        return replace(state, round=state.round + 1)
