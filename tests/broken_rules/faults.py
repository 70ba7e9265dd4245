"""Rules and proposals from public reports, each with its fault: every checker must reject them.

The transcriptions are ours; the reports are named in the class docstrings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from array_api_compat import array_namespace

from resispec_verify.kernels.elementwise.probabilities import one_hot
from resispec_verify.kernels.elementwise.residuals import accept_ratio, normalize, standard_residual
from resispec_verify.rules import Greedy, Rule, State, WithoutReplacement


def softmax(rows: Any) -> Any:
    xp = array_namespace(rows)
    weights = xp.exp(rows)
    return weights / xp.sum(weights, axis=-1, keepdims=True)


class Faulty(Rule):
    """One candidate after another with the standard residual; subclasses break one method."""

    claims_exact = True
    depends_on = "nothing"

    def reject(self, state: State, tokens: Any) -> State:
        residual = standard_residual(state.residual, state.draft)
        return replace(state, residual=residual, round=state.round + 1)


# Faults of the residual


class RedrawsFromTarget(Faulty):
    """Spec-RL#14: after a rejection the token comes from p, not from the residual."""

    name, source = "redraws-from-target", "Spec-RL#14"

    def reject(self, state: State, tokens: Any) -> State:
        return replace(state, round=state.round + 1)


class SoftmaxOfResidual(Faulty):
    """transformers#28508: the positive part goes through a softmax instead of being normalised."""

    name, source = "softmax-of-residual", "transformers#28508"
    stays_in_support = False

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        over = xp.clip(state.residual - state.draft, 0.0, None)
        return replace(state, residual=softmax(over), round=state.round + 1)


class UnnormalisedResidual(Faulty):
    """The positive part is never normalised, so mass is lost."""

    name, source = "unnormalised-residual", "ours"

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        return replace(
            state, residual=xp.clip(state.residual - state.draft, 0.0, None), round=state.round + 1
        )


@dataclass(frozen=True)
class LosesTheFinalDraw(Faulty):
    """A share of the final draw is dropped."""

    lost: float = 1e-9
    name, source = "loses-the-final-draw", "ours"

    def final(self, state: State) -> Any:
        return (1.0 - self.lost) * state.residual


@dataclass(frozen=True)
class TinyBias(Faulty):
    """Speculative sampling for a target in which ``bias`` has moved from token 0 to token 1."""

    bias: float = 1e-9
    name, source = "tiny-bias", "ours"

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        xp = array_namespace(target)
        tokens = xp.arange(target.shape[-1], device=target.device)
        moved = xp.astype(tokens == 1, target.dtype) - xp.astype(tokens == 0, target.dtype)
        return State(target + self.bias * moved, draft)


@dataclass(frozen=True)
class TinyBiasByToken(TinyBias):
    """The same for the general engine: the residual is handed out once for each rejected token."""

    name = "tiny-bias-by-token"
    depends_on = "token"

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        residual = standard_residual(state.residual, state.draft)[..., None, :]
        shape = (*tokens.shape, residual.shape[-1])
        draft = xp.broadcast_to(state.draft[..., None, :], shape)
        return State(xp.broadcast_to(residual, shape), draft, state.round + 1)


class SkipsDuplicates(Rule):
    """A mode of SpecHub's code: a duplicate of a rejected candidate leaves the residual as it is."""

    name, source = "specinfer-skip-duplicates", "SpecHub (Sun et al. 2024), code"
    claims_exact = True
    depends_on = "token"

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        xp = array_namespace(target)
        return State(target, draft, extra={"seen": xp.zeros_like(target)})

    def accept(self, state: State) -> Any:
        return accept_ratio(state.residual, state.draft) * (1.0 - state.extra["seen"])

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        R, q, seen = (row[..., None, :] for row in (state.residual, state.draft, state.extra["seen"]))
        here = one_hot(tokens, R.shape[-1], dtype=R.dtype)
        duplicate = xp.sum(here * seen, axis=-1, keepdims=True) > 0
        residual = xp.where(duplicate, R, standard_residual(R, q))
        return State(
            residual, xp.broadcast_to(q, residual.shape), state.round + 1, {"seen": xp.maximum(seen, here)}
        )


class WritesInPlace(Faulty):
    """vllm#16952: the sampler writes into the arrays it was given. NumPy only."""

    name, source = "writes-in-place", "vllm#16952"

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        target[...] = 0.5 * (target + draft)
        return State(target, draft)


# Faults of the test


class NeverChecked(Faulty):
    """lattice#243: the first draft token is emitted unchecked."""

    name, source = "never-checked", "lattice#243"
    stays_in_support = False

    def accept(self, state: State) -> Any:
        return array_namespace(state.residual).ones_like(state.residual)


class ArgmaxAtAnyTemperature(Faulty):
    """ATOM#2318: the argmax of the target is emitted at T > 0."""

    name, source = "argmax", "ATOM#2318"

    def accept(self, state: State) -> Any:
        xp = array_namespace(state.residual)
        return one_hot(
            xp.argmax(state.residual, axis=-1), state.residual.shape[-1], dtype=state.residual.dtype
        )

    def reject(self, state: State, tokens: Any) -> State:
        return replace(state, round=state.round + 1)

    def final(self, state: State) -> Any:
        return self.accept(state)


@dataclass(frozen=True)
class ScoredAgainst(Faulty):
    """vllm#10198: right for a target that is not the request's, here one without its top-p."""

    scored: tuple[float, ...] = ()
    name, source = "scored-against", "vllm#10198"
    stays_in_support = False

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        xp = array_namespace(target)
        scored = xp.asarray(self.scored, dtype=target.dtype, device=target.device)
        return State(xp.broadcast_to(scored, target.shape), draft)


@dataclass(frozen=True)
class Blend(Faulty):
    """transformers#45979: exact for ``weight p + (1 - weight) q``, lossy for p by design."""

    weight: float = 0.5
    name, source = "blend", "transformers#45979"
    claims_exact = False
    stays_in_support = False

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        return State(self.weight * target + (1.0 - self.weight) * draft, draft)


@dataclass(frozen=True)
class TargetOnly(Rule):
    """SGLang's target-only test of siblings: one coin against the accumulated target mass / threshold.

    Seen candidate by candidate: with P the target mass of the siblings tried before, the next one is accepted
    with probability ``min(1, p(x) / (threshold - P))``. Exact at threshold 1 for distinct siblings.
    """

    threshold: float = 1.0
    name, source = "target-only", "SGLang, tree_speculative_sampling_target_only"
    claims_exact = False
    depends_on = "token"
    proposal = Greedy()

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        xp = array_namespace(target)
        tried = xp.zeros((*target.shape[:-1], 1), dtype=target.dtype, device=target.device)
        return State(target, draft, extra={"target": target, "tried": tried})

    def accept(self, state: State) -> Any:
        xp = array_namespace(state.residual)
        left = xp.clip(self.threshold - state.extra["tried"], 1e-300, None)
        return xp.clip(state.extra["target"] / left, None, 1.0)

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        R, p, tried = (
            row[..., None, :] for row in (state.residual, state.extra["target"], state.extra["tried"])
        )
        here = one_hot(tokens, R.shape[-1], dtype=R.dtype)
        residual = normalize(xp.where(here > 0, 0.0, R), R)
        p = xp.broadcast_to(p, residual.shape)
        return State(
            residual,
            xp.broadcast_to(state.draft[..., None, :], residual.shape),
            state.round + 1,
            {"target": p, "tried": tried + xp.sum(here * p, axis=-1, keepdims=True)},
        )


# Faults of the proposal, or rules that do not know theirs


class LlamaCpp(Faulty):
    """llama.cpp's example: candidates are the top-ranked tokens, tested as if they had been drawn."""

    name, source = "llama-cpp", "llama.cpp, examples/speculative"
    proposal = Greedy()


class DraftNotRenormalised(Rule):
    """EAGLE#74: without replacement, but the tested draft is not renormalised after a rejection."""

    name, source = "draft-not-renormalised", "EAGLE#74"
    claims_exact = True
    depends_on = "token"
    proposal = WithoutReplacement()

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        here = one_hot(tokens, state.residual.shape[-1], dtype=state.residual.dtype) > 0
        draft = self.left(xp.where(here, 0.0, state.draft[..., None, :]))
        residual = standard_residual(state.residual, state.draft)[..., None, :]
        return State(xp.broadcast_to(residual, draft.shape), draft, state.round + 1)

    def left(self, draft: Any) -> Any:
        return draft


@dataclass(frozen=True)
class SortedPair:
    """llama.cpp#5625: two i.i.d. draws, sorted by the draft (descending) before they are tested."""

    name: str = "sorted-pair"

    def next(self, draft: Any, drawn: tuple[Any, ...]) -> Any:
        """With ``T_i`` the mass of rank i and below: first T_i^2 - T_{i+1}^2, then j > i or i again."""
        xp = array_namespace(draft)
        order = xp.argsort(-draft, axis=-1, stable=True)
        rank = xp.argsort(order, axis=-1)
        tail = xp.flip(xp.cumulative_sum(xp.flip(xp.take_along_axis(draft, order, axis=-1))))
        tail = xp.take_along_axis(tail, rank, axis=-1)
        first = draft * (2.0 * tail - draft)  # T_i^2 - T_{i+1}^2, with T_{i+1} = T_i - q_i
        if not drawn:
            return first
        (token,) = drawn
        here = one_hot(token, draft.shape[-1], dtype=draft.dtype)
        own = xp.sum(xp.astype(here > 0, rank.dtype) * rank)
        pair = draft * xp.sum(here * draft) * xp.where(rank > own, 2.0, xp.where(rank == own, 1.0, 0.0))
        return pair / xp.sum(here * first)


@dataclass(frozen=True)
class MergedPair:
    """The half of llama.cpp#5625 that merges: two i.i.d. draws, of which a duplicate is dropped."""

    name: str = "merged-pair"

    def next(self, draft: Any, drawn: tuple[Any, ...]) -> Any:
        """Not renormalised: what is missing is the probability that there is no second candidate."""
        xp = array_namespace(draft)
        for token in drawn:
            draft = xp.where(one_hot(token, draft.shape[-1], dtype=draft.dtype) > 0, 0.0, draft)
        return draft
