"""ResiSpec: sequential verification with a residual shaped towards the draft.

Chen, Tao, Mao, Zhan and Ye, arXiv 2608.24411, Algorithm 1. Candidates are i.i.d. from q; accept with
``min(1, R/q)``; after rejecting x the residual is ``r / Z`` with r from GetProxy(R, q, x).

Guarantee: the paper claims exactness (Theorem 1). The rule as printed is not exact: the residual puts mass
where ``q >= R``, and GetProxy's k depends on the rejected token, which Theorem 1's proof does not allow for.
What the paper leaves open is an option here, with the printed Algorithm 1 as the default:

* ``redistribution``: ``proportional`` to the remaining capacity (Algorithm 1, line 21) or ``water-filling``
  (Step 2 of the text);
* ``budget``: the ``local`` gap (line 18) or the ``floor`` of Eq. 13, cut to the mass off the rejected token
  where Eq. 13 is infeasible;
* ``hole``: the capacity leaves the rejected token out (``excluded``, which keeps ``r(x0) = 0``) or includes
  it, as line 21 reads (``literal``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.device.dispatch import sum_where_arrays_live
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.proxy_rows import proportional_identity
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.elementwise.residuals import Proxy, normalize, proxy, ratio_or_all
from resispec_verify.kernels.jit import may_compile
from resispec_verify.kernels.paths import shaped as shaped_paths
from resispec_verify.kernels.paths.last_round import last_round
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import strike_out

__all__ = ["ResiSpec", "ShapedRule", "get_proxy"]

Redistribution = Literal["proportional", "water-filling"]
ProxyBudget = Literal["local", "floor"]
Hole = Literal["excluded", "literal"]


def _check_choice(name: str, value: str, choices: Array) -> None:
    if value not in get_args(choices):
        raise InputError(f"{name} must be one of {', '.join(get_args(choices))}; got {value!r}")


@dataclass(frozen=True)
class ShapedRule(Rule):
    """Rejections as in Algorithm 1, with the options that the paper leaves open; whatever the candidates."""

    redistribution: Redistribution = "proportional"
    budget: ProxyBudget = "local"
    hole: Hole = "excluded"

    claims_exact = True
    depends_on = "token"

    def __post_init__(self) -> None:
        _check_choice("redistribution", self.redistribution, Redistribution)
        _check_choice("budget", self.budget, ProxyBudget)
        _check_choice("hole", self.hole, Hole)

    @property
    def _readings(self) -> dict[str, str]:
        """The options as the kernels take them."""
        return {"redistribution": self.redistribution, "budget": self.budget, "hole": self.hole}

    def reject(self, state: State, tokens: Array) -> State:
        """Lines 10-12: ``R <- norm((R - k)_+)``, which is r off the rejected token and 0 on it.

        It is taken from r, which keeps its digits where the budget is small and ``R - k`` cancels.
        """
        xp = array_namespace(state.residual)
        R = state.residual[..., None, :]
        parts = self._proxy(state.residual, state.draft, tokens)
        r = strike_out(parts.r, tokens)
        kept = xp.sum(r, axis=-1, keepdims=True)
        # Where x0 takes less than it could hold, an error of the budget is shared with it (`last_round`).
        full = xp.take_along_axis(parts.r >= R, tokens[..., None], axis=-1)
        return state.after(normalize(r, R), kept=kept, budget=xp.where(full, kept, parts.Z[..., None]))

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """What is left off ``x0`` is divided by its sum; in fair draws it errs by as little as ``q(x0)``."""
        kept = after.extra["kept"]
        if fair:
            return ratio_or_all(at(before.draft, tokens)[..., None], after.extra["budget"])
        return ratio_or_all(array_namespace(kept).ones_like(kept), kept)

    def _proxy(self, current: Array, draft: Array, tokens: Array) -> Proxy:
        return proxy(current, draft, tokens, **self._readings)


@dataclass(frozen=True)
class ResiSpec(ShapedRule):
    """ResiSpec's Algorithm 1: i.i.d. candidates."""

    name = "resispec"
    source = "ResiSpec, Algorithm 1 (arXiv 2608.24411)"
    place = 150

    def last_round(self, state: State) -> tuple[Array, Array] | None:
        """Summed over rejected tokens by the sorted prefix sums of R/q; in float64 on the CPU, compiled."""
        if not may_compile():
            return None
        xp = array_namespace(state.residual)
        R, q = (to_numpy(a).astype(np.float64) for a in (state.residual, state.draft))
        vocab = R.shape[-1]
        rows = zip(R.reshape(-1, vocab), np.broadcast_to(q, R.shape).reshape(-1, vocab), strict=True)
        readings = self._readings
        found = [last_round(ratio_order(p, d), **readings) for p, d in rows]
        like = {"dtype": state.residual.dtype, "device": state.residual.device}
        emitted = np.stack([one.mass for one in found]).reshape(R.shape)
        magnified = np.asarray([one.magnified for one in found]).reshape(R.shape[:-1])
        return xp.asarray(emitted, **like), xp.asarray(magnified, **like)

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """The scalar recursion; where the hole is read literally, with one candidate only."""
        if self.hole == "literal" and candidates != 1:
            return None
        order, readings = ratio_order(to_numpy(target), to_numpy(draft)), self._readings
        if candidates == 1:
            return shaped_paths.single_round(order, **readings)
        del readings["hole"]
        return shaped_paths.shaped_marginal(order, candidates, gap, most_paths, **readings)

    def sum_paths_on_device(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """As printed only: all three options at their defaults."""
        if self != ResiSpec():
            return None
        return sum_where_arrays_live(target, draft, candidates, gap, most_paths)

    def budget_holds(self) -> bool:
        """For the rule as printed."""
        return self == ResiSpec()

    def sum_identity(
        self, target: Array, draft: Array, rounds: int, tokens: Array, uniforms: Array
    ) -> Array | None:
        """As printed only: in compiled passes over a row."""
        if self != ResiSpec():
            return None
        return proportional_identity(target, draft, rounds, tokens=tokens, uniforms=uniforms)

    def proxy(self, current: Array, draft: Array, token: Array) -> Array:
        """GetProxy's k after rejecting one token a row."""
        if self == ResiSpec() and compiled.compilable(current, draft):
            return compiled.proportional_k(current, draft, token)
        return self.proxy_parts(current, draft, token).k

    def proxy_parts(self, current: Array, draft: Array, token: Array) -> Proxy:
        """All of GetProxy after rejecting one token a row: arrays ``(..., V)`` and ``(...,)``."""
        r, s, k, *scalars = self._proxy(current, draft, token[..., None])
        return Proxy(r[..., 0, :], s[..., 0, :], k[..., 0, :], *(v[..., 0] for v in scalars))


def get_proxy(
    target: Array,
    draft: Array,
    rejected: int,
    *,
    redistribution: Redistribution = "proportional",
    budget: ProxyBudget = "local",
    hole: Hole = "excluded",
) -> Proxy:
    """GetProxy of ResiSpec's Algorithm 1 (lines 17-23) for one rejected token.

    Parameters
    ----------
    target, draft : array (V,)
        The current target R and the draft q, probabilities.
    rejected : int
        The rejected token ``x0``, ``0 <= rejected < V``.
    redistribution, budget, hole
        What the paper leaves open; see `ResiSpec`.

    Returns
    -------
    Proxy
        r, s, k ``(V,)``; Z, Delta and capped, 0-d arrays.

    Raises
    ------
    InputError
        A token outside the vocabulary, or one that cannot be rejected (``q(x0) <= R(x0)``).
    """
    xp = array_namespace(target, draft)
    rule = ResiSpec(redistribution, budget, hole)
    vocab = target.shape[-1]
    if not 0 <= rejected < vocab:
        raise InputError(f"rejected token {rejected} is outside the vocabulary 0..{vocab - 1}")
    if not bool(draft[rejected] > target[rejected]):
        raise InputError(
            f"token {rejected} cannot be rejected: draft {float(draft[rejected]):g} is not above target "
            f"{float(target[rejected]):g}"
        )
    tokens = xp.asarray([rejected], device=target.device)
    parts = rule._proxy(target, draft, tokens)
    return Proxy(*(part[0, ...] for part in parts))
