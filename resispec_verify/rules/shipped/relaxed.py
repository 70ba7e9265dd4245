"""Relaxed acceptance: a candidate passes if it is among the target's best tokens and not far below the best.

TensorRT-LLM (``use_relaxed_acceptance_for_thinking``, ``relaxed_topk``, ``relaxed_delta``), kernel
``mtpRelaxedAcceptanceKernel`` of ``cpp/tensorrt_llm/kernels/speculativeDecoding/mtpKernels.cu`` (at 3585984b)
and ``_torch/speculative/mtp.py``. The best N probabilities of the target's softmax are gone through in
descending order, until one lies below ``p(best) - delta``: the candidate is accepted if it is met on the way,
so p(x) equal to the threshold passes, and the best token always does. The token after the accepted ones is
the target's best. No coin decides anything.

The defaults are those that its documentation runs DeepSeek-R1 with, N = 10 and delta = 0.6. The
configuration's own, 1 and 0, are greedy decoding. Delta is a state of the request: it is set when the token
that opens a thinking phase is emitted, and 0 again after the token that closes it; this is the rule within
that phase.

Guarantee: none; lossy by design. It emits no sample: the text that it replaces is greedy, and against that
the total variation is the draft's mass on the accepted tokens other than the best. Assumptions: the
candidate is the draft's best token, as the drafting there is greedy; ties go to the lowest index.
Deviation: the kernel compares values of the logits' type, in float32; this does in the precision given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import one_hot
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Greedy

__all__ = ["Relaxed"]


@dataclass(frozen=True)
class Relaxed(Rule):
    """One candidate against the target's top N; else the target's best.

    Attributes
    ----------
    topk : int
        N, at least 1.
    delta : float
        How far below the best token's probability an accepted one may lie, in [0, 1].
    """

    topk: int = 10
    delta: float = 0.6

    name = "relaxed"
    claims_exact = False
    source = "TensorRT-LLM, relaxed acceptance (while thinking)"
    place = 192
    depends_on = "nothing"
    most_candidates = 1
    proposal = Greedy()
    stays_in_support = False

    def __post_init__(self) -> None:
        if not (isinstance(self.topk, int) and self.topk >= 1):
            raise InputError(f"relaxed: topk must be a whole number of at least 1, got {self.topk}")
        if not 0.0 <= self.delta <= 1.0:
            raise InputError(f"relaxed: delta must be in [0, 1], got {self.delta}")

    def accept(self, state: State) -> Array:
        """1 for the tokens that pass, 0 for the others."""
        xp, p = array_namespace(state.residual), state.residual
        rank = xp.argsort(xp.argsort(-p, axis=-1, stable=True), axis=-1)
        near = p >= xp.max(p, axis=-1, keepdims=True) - self.delta
        return xp.astype((rank == 0) | (near & (rank < self.topk)), p.dtype)

    def reject(self, state: State, tokens: Array) -> State:
        """The target's best token, ties to the lowest index."""
        xp, p = array_namespace(state.residual), state.residual
        best = one_hot(xp.argmax(p, axis=-1), p.shape[-1], dtype=p.dtype)
        return replace(state, residual=best, round=state.round + 1)
