"""Synthetic acceptance: a candidate is accepted at a rate that was asked for, whatever p and q are.

For benchmarks. vLLM (``rejection_sample_method = "synthetic"``, ``synthetic_acceptance_rates``;
``v1/worker/gpu/spec_decode/rejection_sampler_utils.py`` at 02e318bd): accepted iff ``u < rate``, with a rate
a position that is conditional on the positions before; after a rejection the token comes from ``norm((p -
q)_+)`` as ever. llama.cpp (``--spec-synthetic-acceptance-rates``, pull request 27711,
``tools/server/server-context.cpp``): the same test, and after a rejection the target's own draw. SGLang
(``SGLANG_SIMULATE_ACC_LEN``, ``srt/speculative/spec_utils.py`` at 00731f0b): a number of tokens is accepted
whatever they are, and the next one is what the target predicted; by default it then writes one fixed token
everywhere, which no rate describes.

Guarantee: none, and none is claimed. Assumptions: the candidate is drawn from q; one position, so one rate.
Deviations: where p and q are equal vLLM's residual is empty, and an argmax over -inf is emitted; here it is
the target. llama.cpp never accepts a token that ends the text; here it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.residuals import positive_part_condition, standard_residual
from resispec_verify.rules.interface import Rule, State

__all__ = ["Synthetic"]


@dataclass(frozen=True)
class Synthetic(Rule):
    """One candidate, accepted by a coin that knows of no law.

    Attributes
    ----------
    rate : float
        Probability of acceptance, in [0, 1].
    correction : {"residual", "target"}
        What is drawn from after a rejection: as in vLLM, or as in llama.cpp and SGLang.
    """

    rate: float | None = None
    correction: Literal["residual", "target"] = "residual"

    name = "synthetic"
    claims_exact = False
    source = "vLLM, llama.cpp, SGLang (for benchmarks)"
    place = 194
    open_parameters = ("rate",)
    measured_with: ClassVar[Mapping[str, Any]] = {"rate": Fraction(1, 2)}
    depends_on = "nothing"
    most_candidates = 1
    stays_in_support = False
    rejects_its_residual = False

    def __post_init__(self) -> None:
        (rate,) = self.required()
        if not 0.0 <= rate <= 1.0:
            raise InputError(f"synthetic: rate must be in [0, 1], got {rate}")
        if self.correction not in ("residual", "target"):
            raise InputError(f"synthetic: correction must be residual or target, got {self.correction!r}")

    def accept(self, state: State) -> Array:
        """The rate."""
        assert self.rate is not None
        return array_namespace(state.residual).full_like(state.residual, self.rate)

    def reject(self, state: State, tokens: Array) -> State:
        """The standard residual, or the target as it was."""
        rest = state.residual
        if self.correction == "residual":
            rest = standard_residual(state.residual, state.draft)
        return replace(state, residual=rest, round=state.round + 1)

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The standard residual is divided by its sum."""
        if self.correction == "target":
            return 1.0
        return positive_part_condition(before.residual, before.draft)
