"""Rules that are exact although they look unusual: no checker may reject them."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace
from faults import DraftNotRenormalised

from resispec_verify.kernels.elementwise.probabilities import one_hot
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules import Greedy, Rule, State


class Sequoia(DraftNotRenormalised):
    """Chen et al. 2024: without replacement, R <- norm (R - D)+, D(x) <- 0 and D renormalised."""

    name, source = "sequoia", "Sequoia (Chen et al. 2024)"

    def left(self, draft: Any) -> Any:
        return normalize(draft, draft)


class OneHotTest(Rule):
    """A soft draw tested as if it were one-hot: accept with R(x), then R(x) <- 0 (vllm#40149).

    The same law as emitting the target's own draw and accepting if it equals x (mlxcel#902).
    """

    name, source = "one-hot-test", "vllm#40149, mlxcel#902"
    claims_exact = True
    depends_on = "token"

    def accept(self, state: State) -> Any:
        return state.residual

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        R = state.residual[..., None, :]
        here = one_hot(tokens, R.shape[-1], dtype=R.dtype) > 0
        residual = normalize(xp.where(here, 0.0, R), R)
        return State(residual, xp.broadcast_to(state.draft[..., None, :], residual.shape), state.round + 1)


class Eagle2(OneHotTest):
    """EAGLE-2: the top-ranked tokens in turn, tested with D = 1."""

    name, source = "eagle", "EAGLE-2 (Li et al. 2024)"
    proposal = Greedy()
