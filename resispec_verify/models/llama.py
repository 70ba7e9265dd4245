"""A Llama forward pass in plain torch, with weights under their GGUF names, and the drafts made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from resispec_verify.models.prefix_cache import PrefixCached

__all__ = ["Llama", "LlamaModel", "rounded"]

Past = dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Llama:
    """A Llama: the hyperparameters, and the weights under their GGUF names.

    Attributes
    ----------
    weights
        ``[out, in]`` for matrices, all of one floating dtype. Without ``output.weight`` the embedding is
        also the output matrix.
    blocks
        The blocks in use, by their number in the file.
    heads, kv_heads
        Number of query heads and of key and value heads.
    context
        Longest sequence the model was trained for.
    eps, rope_base
        RMSNorm epsilon and base of the rotary frequencies.
    """

    weights: dict[str, Tensor]
    blocks: tuple[int, ...]
    heads: int
    kv_heads: int
    context: int
    eps: float
    rope_base: float

    @property
    def output(self) -> Tensor:
        """Output matrix ``[V, width]``."""
        return self.weights.get("output.weight", self.weights["token_embd.weight"])

    def without(self, blocks: Sequence[int]) -> Llama:
        """The same with blocks left out: the residual stream passes them unchanged."""
        return replace(self, blocks=tuple(b for b in self.blocks if b not in blocks))

    def rounded(self, bits: int) -> Llama:
        """The same with every matrix, embeddings included, rounded as `rounded` does."""
        weights = {name: rounded(w, bits) if w.ndim == 2 else w for name, w in self.weights.items()}
        return replace(self, weights=weights)

    @torch.inference_mode()
    def logits(self, tokens: Tensor, last: int, past: Past | None = None) -> Tensor:
        """Raw next-token logits after each of the `last` final prefixes of `tokens`.

        Parameters
        ----------
        tokens
            Token ids, ``[T]``: the sequence, or what comes after the tokens of `past`.
        last
            For how many of the final positions logits are wanted; the output matrix is a good part of a
            small model, so the others are not computed.
        past
            Keys and values of earlier tokens by block; those of `tokens` are added to it.

        Returns
        -------
        Tensor
            ``[last, V]``, in the dtype of the weights.
        """
        start = next(iter(past.values()))[0].shape[1] if past else 0
        total = start + len(tokens)
        positions = torch.arange(start, total, device=tokens.device)
        mask = None
        if start:
            mask = torch.ones(len(tokens), total, dtype=torch.bool, device=tokens.device).tril(start)
        return self.output_rows(self.hidden(tokens, positions, mask, past)[-last:])

    @torch.inference_mode()
    def hidden(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, past: Past | None = None
    ) -> Tensor:
        """What the last block leaves of `tokens`, before the output matrix.

        Parameters
        ----------
        tokens, positions
            Token ids and their positions, ``[T]``. In a tree, tokens of one depth share a position.
        mask
            Boolean ``[T, S + T]``: which of the S tokens of `past`, and of `tokens`, each token sees. None
            if every token sees those up to itself and there is no `past`.
        past
            Keys and values of earlier tokens by block; those of `tokens` are added to it.

        Returns
        -------
        Tensor
            ``[T, width]``; see `output_rows`.
        """
        x = self.weights["token_embd.weight"][tokens]
        past = {} if past is None else past
        width = self.weights[f"blk.{self.blocks[0]}.attn_q.weight"].shape[0] // self.heads
        rotation = self._rotation(positions, width)
        for block in self.blocks:
            x = x + self._attention(block, self._norm(f"blk.{block}.attn_norm", x), rotation, mask, past)
            x = x + self._feed_forward(block, self._norm(f"blk.{block}.ffn_norm", x))
        return x

    @torch.inference_mode()
    def output_rows(self, hidden: Tensor) -> Tensor:
        """Raw next-token logits ``[T, V]`` of what `hidden` returned."""
        return linear(self._norm("output_norm", hidden), self.output)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.eps)

    def _linear(self, block: int, name: str, x: Tensor) -> Tensor:
        return linear(x, self.weights[f"blk.{block}.{name}.weight"])

    def _rotation(self, positions: Tensor, width: int) -> Tensor:
        """Unit complex numbers ``[T, width / 2]`` by which pairs of coordinates are turned."""
        exponent = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
        angles = torch.outer(positions.to(torch.float64), self.rope_base**-exponent)
        return torch.polar(torch.ones_like(angles), angles)

    def _attention(self, block: int, x: Tensor, rotation: Tensor, mask: Tensor | None, past: Past) -> Tensor:
        def split(name: str, heads: int) -> Tensor:
            return self._linear(block, name, x).unflatten(-1, (heads, -1)).transpose(0, 1)

        query = _rotate(split("attn_q", self.heads), rotation)
        key = _rotate(split("attn_k", self.kv_heads), rotation)
        value = split("attn_v", self.kv_heads)
        if block in past:
            key = torch.cat([past[block][0], key], dim=1)
            value = torch.cat([past[block][1], value], dim=1)
        past[block] = key, value
        mixed = scaled_dot_product_attention(
            query[None], key[None], value[None], attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return self._linear(block, "attn_output", mixed[0].transpose(0, 1).flatten(1))

    def _feed_forward(self, block: int, x: Tensor) -> Tensor:
        gate = silu(self._linear(block, "ffn_gate", x))
        return self._linear(block, "ffn_down", gate * self._linear(block, "ffn_up", x))


class LlamaModel(PrefixCached):
    """A `Llama` as a `Model`: it keeps the keys and values of the sequence it saw last."""

    def __init__(self, llama: Llama) -> None:
        super().__init__(vocab=llama.output.shape[0], context=llama.context)
        self.llama = llama
        self._past: Past = {}

    def _forward(self, tokens: Sequence[int], keep: int, last: int) -> Tensor:
        self._past = {b: (k[:, :keep], v[:, :keep]) for b, (k, v) in self._past.items()} if keep else {}
        return self.llama.logits(torch.tensor(tokens), last, self._past)


def rounded(weights: Tensor, bits: int, group: int = 32) -> Tensor:
    """Weights ``[out, in]`` rounded to the nearest of ``2**bits`` even steps between a group's extremes.

    A group is 32 neighbours in a row; the last one of a row may be smaller.
    """
    width = weights.shape[1]
    short = -width % group
    last = weights[:, -1:].expand(-1, short)  # repeating the last value moves no extreme
    groups = torch.cat([weights, last], dim=1).unflatten(1, (-1, group))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    steps = torch.where(step > 0, (groups - low) / step, 0).round()
    return (low + steps * step).flatten(1)[:, :width].contiguous()


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotary embedding of ``[heads, T, width]`` on neighbouring coordinates (2i, 2i + 1).

    GGUF stores the query and key rows of a Llama permuted for this interleaved convention (the original
    checkpoint pairs i with i + width / 2); scores are the same, so the rows are used as they lie.
    """
    pairs = torch.view_as_complex(x.to(torch.float64).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)
