"""CSD (calibrated speculative decoding): a rejected candidate is rescued if memory and target agree to it.

Zhou et al., arXiv 2604.13634, as far as its abstract goes: an "Online Correction Memory, which aggregates
historical rejections to propose recurring divergence patterns as rescue candidates", and a "Semantic
Consistency Gating, which verifies candidate admissibility using probability ratios". Guarantee: none, it is
lossy by design.

What the abstract does not say is an assumption here, and a parameter without a default:

* verification before the rescue is speculative sampling, one candidate (assumption);
* a pattern is a pair: the rejected candidate x and the token y that the target would emit instead, drawn
  from ``norm((p - q)_+)``. ``memory`` is the set of pairs that have recurred often enough; how it is
  gathered is not modelled, so the marginal is that of one position with the memory as given (assumption);
* the gate passes x when ``p(x) >= ratio max p`` (assumption: the ratio is to the target's best token).

So x is accepted with ``a + (1 - a) g(x) sum of the residual over the memory's y for x``, ``a = min(1,
p/q)``, g the gate; otherwise the token is drawn from the rest of the residual.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import at, one_hot
from resispec_verify.kernels.elementwise.residuals import (
    accept_ratio,
    normalize,
    positive_part_condition,
    standard_residual,
)
from resispec_verify.rules.interface import Rule, State

__all__ = ["CSD"]


@dataclass(frozen=True)
class CSD(Rule):
    """Speculative sampling with a rescue.

    Attributes
    ----------
    ratio : float
        The gate: least ``p(x) / max p`` of a rescued candidate, in (0, 1].
    memory : iterable of (int, int)
        Pairs (rejected candidate, the target's token) for which the candidate is put forward again.
    """

    ratio: float | None = None
    memory: Iterable[tuple[int, int]] | None = None

    name = "csd"
    claims_exact = False
    source = "CSD (arXiv 2604.13634), abstract only"
    place = 180
    open_parameters = ("ratio", "memory")
    untranscribed = "the formula of its gate is in no source"
    depends_on = "token"
    most_candidates = 1

    def __post_init__(self) -> None:
        ratio, memory = self.required()
        if not 0.0 < ratio <= 1.0:
            raise InputError(f"csd: ratio must be in (0, 1], got {ratio}")
        try:
            pairs = frozenset((int(x), int(y)) for x, y in memory)
        except (TypeError, ValueError):
            raise InputError("csd: memory must be pairs of tokens such as [(5, 17), (3, 8)]") from None
        if any(token < 0 for pair in pairs for token in pair):
            raise InputError("csd: memory must hold token ids, none of them negative")
        object.__setattr__(self, "memory", pairs)

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """The standard residual and the gate."""
        xp = array_namespace(target, draft)
        gate = target >= self.ratio * xp.max(target, axis=-1, keepdims=True)
        extra = {"gate": gate, "rest": standard_residual(target, draft)}
        return State(target, draft, extra=extra)

    def accept(self, state: State) -> Array:
        """The standard test, and the rescue of what it rejects."""
        xp = array_namespace(state.residual)
        accept, rest = accept_ratio(state.residual, state.draft), state.extra["rest"]
        rescued = xp.zeros_like(accept)
        for x, y in self._pairs(accept.shape[-1]):
            here, there = (xp.asarray([t], device=accept.device) for t in (x, y))
            rescued = rescued + one_hot(here, accept.shape[-1], dtype=accept.dtype)[0, :] * at(rest, there)
        rescued = xp.where(state.extra["gate"], xp.clip(rescued, None, 1.0), 0.0)
        return accept + (1.0 - accept) * rescued

    def reject(self, state: State, tokens: Array) -> State:
        """The standard residual without the tokens for which the candidate would have been rescued."""
        xp = array_namespace(state.residual)
        passed = at(xp.astype(state.extra["gate"], state.residual.dtype), tokens)[..., None] > 0
        rest = state.extra["rest"][..., None, :]
        here = xp.zeros((*tokens.shape, rest.shape[-1]), dtype=rest.dtype, device=rest.device)
        for x, y in self._pairs(rest.shape[-1]):
            there = one_hot(xp.asarray(y, device=rest.device), rest.shape[-1], dtype=rest.dtype)
            here = here + xp.astype(tokens == x, rest.dtype)[..., None] * there
        return state.after(normalize(xp.where(passed & (here > 0), 0.0, rest), rest))

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The standard residual is divided by its sum."""
        return positive_part_condition(before.residual, before.draft)

    def _pairs(self, vocab: int) -> list[tuple[int, int]]:
        """The memory, without tokens that a smaller vocabulary does not have: they cannot occur."""
        return sorted(pair for pair in self.memory or () if max(pair) < vocab)
