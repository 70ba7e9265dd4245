"""Greedy multi-path block verification: of K paths the greatest in an order is verified as a block.

Thomas and Pal, Greedy Multi-Path Block Verification for Faster Decoding in Speculative Sampling, arXiv
2602.16961, read by its abstract and in a public implementation of it. After every prefix the tokens are
ordered by p/q, ties by their index; paths are compared token by token. The greatest of K i.i.d. paths
has, after a prefix on it, a next token of law

    s(x) = [(A + Q B(x) + Q q(x))^K - (A + Q B(x))^K] / [(A + Q)^K - A^K]

with Q the draft's probability of the prefix, A that of paths below it, and B(x) the q-mass of the tokens
below x. That path is verified by `block` with s in the place of q.

Guarantee: exact over the block, for any order that is fixed by the laws, since the path verified is drawn
from s. Assumptions: K paths of one length, i.i.d. from the declared draft. Deviation: the implementation
read cuts p/q at 1 and then takes the first of equals, while its s counts the last of equals as the
greatest; that is `ties="drawn"`, and not exact. What the paper does with ties was not to be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.shipped.block import Block
from resispec_verify.rules.tree_rule import Siblings, TreeRule, paths_of

__all__ = ["GBV"]


@dataclass(frozen=True)
class GBV(TreeRule):
    """Block verification of the greatest of K paths.

    Attributes
    ----------
    ties : {"index", "drawn"}
        Which of equal tokens is the greater: that of the higher index, after p/q itself; or, p/q cut at 1,
        the one drawn first, although the law s is that of the higher index.
    """

    ties: Literal["index", "drawn"] = "index"

    name = "gbv"
    claims_exact = True
    source = "GBV (Thomas, Pal 2026, arXiv 2602.16961)"
    place = 320
    siblings: ClassVar[Siblings] = "iid"
    paths_only = True
    inexact_with: ClassVar[Mapping[str, Any] | None] = {"ties": "drawn"}
    exact_if = "the path that it picks is the greatest of the order that its law s is computed with"

    def __post_init__(self) -> None:
        if self.ties not in ("index", "drawn"):
            raise InputError(f"gbv: ties must be index or drawn, got {self.ties!r}")

    def outcome(
        self, targets: Array, drafts: Array, tokens: Any, parents: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """See `TreeRule.outcome`: the children of the root each begin a path, all of one length."""
        xp = array_namespace(targets, drafts, tokens)
        paths = paths_of(parents, self.name)
        ratios = _ratios(targets, drafts)
        if self.ties == "drawn":
            ratios = xp.clip(ratios, None, 1.0)
        chosen = self._chosen(ratios, tokens, paths)

        def along(values: Any, depth: int) -> Any:
            picked = values[:, paths[0][depth]]
            for k, path in enumerate(paths[1:], start=1):
                here = xp.reshape(chosen == k, (-1, *(1 for _ in picked.shape[1:])))
                picked = xp.where(here, values[:, path[depth]], picked)
            return picked

        lead, (count, vocab) = targets.shape[:-2], targets.shape[-2:]
        flat = [xp.reshape(x, (-1, count, vocab)) for x in (targets, drafts, ratios)]
        named = xp.reshape(tokens, (-1, count))
        length = len(paths[0])
        rows = [[x[:, 0, :], *(along(x, i) for i in range(length))] for x in flat]
        path = [along(named, i) for i in range(length)]
        skewed = _greatest(rows[1][:-1], rows[2][:-1], path, len(paths))
        lengths, laws = Block().outcome(
            xp.stack(rows[0], axis=1), xp.stack(skewed, axis=1), xp.stack(path, axis=-1)
        )
        ends, corrections = [lengths[:, 0]], [laws[:, 0, :]]
        where = {node: (k, i) for k, path in enumerate(paths) for i, node in enumerate(path, start=1)}
        for node in range(1, count):
            k, i = where[node]
            ends.append(xp.where(chosen == k, lengths[:, i], 0.0))
            corrections.append(laws[:, i, :])
        return (
            xp.reshape(xp.stack(ends, axis=-1), (*lead, count)),
            xp.reshape(xp.stack(corrections, axis=-2), (*lead, count, vocab)),
        )

    def _chosen(self, ratios: Array, tokens: Any, paths: list[list[int]]) -> Any:
        """Which path is the greatest, the first of equal ones; ``(B,)``."""
        xp = array_namespace(ratios, tokens)
        count, vocab = ratios.shape[-2:]
        ratios, tokens = xp.reshape(ratios, (-1, count, vocab)), xp.reshape(tokens, (-1, count))
        chosen = xp.zeros(tokens.shape[:1], dtype=xp.int64, device=tokens.device)
        for k in range(1, len(paths)):
            greater = xp.zeros(tokens.shape[:1], dtype=xp.bool, device=tokens.device)
            for j in range(k):
                greater = xp.where(chosen == j, self._greater(ratios, tokens, paths[k], paths[j]), greater)
            chosen = xp.where(greater, k, chosen)
        return chosen

    def _greater(self, ratios: Array, tokens: Any, path: list[int], other: list[int]) -> Any:
        """Whether one path is greater than another; ``(B,)``. They are compared at their first difference."""
        xp = array_namespace(ratios, tokens)
        greater, same, before = None, None, 0
        for node, beside in zip(path, other, strict=True):
            x, y = tokens[:, node], tokens[:, beside]
            high = at(ratios[:, before, :], x[:, None])[:, 0]
            low = at(ratios[:, before, :], y[:, None])[:, 0]
            here = high > low
            if self.ties == "index":
                here = here | ((high == low) & (x > y))
            greater = here if same is None else greater | (same & here)
            same = (x == y) if same is None else same & (x == y)
            before = node
        assert greater is not None
        return xp.asarray(greater)


def _ratios(targets: Array, drafts: Array) -> Array:
    """p/q; 0 where the draft has nothing, and cannot draw."""
    xp = array_namespace(targets, drafts)
    return xp.where(drafts > 0, targets / xp.where(drafts > 0, drafts, 1.0), 0.0)


def _greatest(drafts: list[Array], ratios: list[Array], path: list[Any], count: int) -> list[Array]:
    """The law s of the next token of the greatest of ``count`` paths, after each prefix of it."""
    xp = array_namespace(*drafts)
    reach, beneath = xp.ones_like(drafts[0][:, :1]), xp.zeros_like(drafts[0][:, :1])
    laws = []
    for q, ratio, token in zip(drafts, ratios, path, strict=True):
        order = xp.argsort(ratio, axis=-1, stable=True)
        ranks = xp.argsort(order, axis=-1)
        sums = xp.cumulative_sum(xp.take_along_axis(q, order, axis=-1), axis=-1)
        up_to = xp.take_along_axis(sums, ranks, axis=-1)
        low = beneath + reach * (up_to - q)
        high = beneath + reach * up_to
        # The difference of two powers, divided by high - low.
        slope = xp.zeros_like(q)
        for i in range(count):
            slope = slope + high**i * low ** (count - 1 - i)
        laws.append(normalize(q * slope, q))
        beneath = at(low, token[:, None])
        reach = reach * at(q, token[:, None])
    return laws
