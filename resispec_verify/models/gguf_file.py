"""Llama models in GGUF files: weights, hyperparameters and tokenizer.

`gguf` reads the file and dequantises its tensors. It builds no tokenizer and checks no architecture: those
are here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, TokenType, dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from resispec_verify.errors import InputError
from resispec_verify.models.llama import Llama

__all__ = ["load_llama", "load_tokenizer", "open_gguf"]

LAYER = (
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip
USE_TRANSFORMERS = "save the model as a Hugging Face folder instead"


def open_gguf(path: Path) -> GGUFReader:
    """Open a GGUF file; its tensors are memory-mapped.

    Raises
    ------
    InputError
        If it is not one.
    """
    try:
        return GGUFReader(path)
    except Exception as error:  # the reader trusts the file: struct, NumPy and value errors of all kinds
        raise InputError(f"{path}: is not a readable GGUF file ({error}); copy it again") from None


def load_llama(reader: GGUFReader, name: str, dtype: torch.dtype = torch.float32) -> Llama:
    """Dequantise every weight to float32, then hold it as `dtype`.

    Parameters
    ----------
    reader : GGUFReader
        The file.
    name : str
        Named in errors.
    dtype : torch.dtype
        float32 or float64.

    Raises
    ------
    InputError
        Another architecture, or a variant of it that `Llama` does not compute.
    """
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise InputError(
            f"{name}: architecture {architecture!r}; only 'llama' is read from GGUF files: {USE_TRANSFORMERS}"
        )
    blocks = _number(reader, name, "llama.block_count")
    heads = _number(reader, name, "llama.attention.head_count")
    kv_heads = _number(reader, name, "llama.attention.head_count_kv", heads)
    _check_tensors(reader, name, blocks)
    weights = {}
    for tensor in reader.tensors:
        try:
            weights[tensor.name] = torch.tensor(dequantize(tensor.data, tensor.tensor_type), dtype=dtype)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise InputError(f"{name}: {tensor.name} is of type {kind}, which gguf cannot read") from None
    width = weights["blk.0.attn_q.weight"].shape[0] // heads
    if field(reader, "llama.rope.dimension_count", width) != width:
        raise InputError(f"{name}: turns only a part of each head, which is not computed: {USE_TRANSFORMERS}")
    return Llama(
        weights,
        blocks=tuple(range(blocks)),
        heads=heads,
        kv_heads=kv_heads,
        context=_number(reader, name, "llama.context_length"),
        eps=float(field(reader, "llama.attention.layer_norm_rms_epsilon", 1e-5)),
        rope_base=float(field(reader, "llama.rope.freq_base", 10000.0)),
    )


def load_tokenizer(reader: GGUFReader, name: str) -> Tokenizer:
    """Byte-level BPE tokenizer from the vocabulary and merges in the file.

    The file names the pre-tokenizer only: ``smollm`` is single digits first, then the GPT-2 pattern, and
    ``gpt-2`` the pattern alone.

    Raises
    ------
    InputError
        If the file has none, or one of another kind.
    """
    remedy = 'give prompts as token ids, lines {"tokens": [1, 2, 3]} of a .jsonl file'
    tokens, kind = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.model")
    merges = field(reader, "tokenizer.ggml.merges")
    if not tokens or kind is None:
        raise InputError(f"{name}: has no tokenizer; {remedy}")
    splitter = field(reader, "tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or splitter not in ("smollm", "gpt-2") or merges is None:
        raise InputError(f"{name}: tokenizer {kind!r} with pre-tokenizer {splitter!r} is not read; {remedy}")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges]))
    words: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if splitter == "smollm":
        words = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    tokenizer.pre_tokenizer = words  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    kinds = field(reader, "tokenizer.ggml.token_type", [])
    pairs = list(zip(tokens, kinds, strict=False))
    tokenizer.add_special_tokens([token for token, kind in pairs if kind == TokenType.CONTROL])
    tokenizer.add_tokens([token for token, kind in pairs if kind == TokenType.USER_DEFINED])
    return tokenizer


def first_token(reader: GGUFReader) -> list[int]:
    """The token that the file wants before every text, if it does."""
    begin = field(reader, "tokenizer.ggml.bos_token_id")
    return [int(begin)] if begin is not None and field(reader, "tokenizer.ggml.add_bos_token", False) else []


def field(reader: GGUFReader, key: str, default: Any = None) -> Any:
    """Value of a metadata field."""
    found = reader.get_field(key)
    return default if found is None else found.contents()


def _number(reader: GGUFReader, name: str, key: str, default: int | None = None) -> int:
    value = field(reader, key, default)
    if not isinstance(value, int) or value < 1:
        shown = "missing" if value is None else "not one number"
        raise InputError(f"{name}: {key} is {shown}, so the model cannot be built: {USE_TRANSFORMERS}")
    return value


def _check_tensors(reader: GGUFReader, name: str, blocks: int) -> None:
    """Refuse what the forward pass would leave out: biases, experts, scaled rotary frequencies."""
    needed = {f"blk.{b}.{part}.weight" for b in range(blocks) for part in LAYER}
    needed |= {"token_embd.weight", "output_norm.weight"}
    present = {tensor.name for tensor in reader.tensors}
    missing, unknown = sorted(needed - present), sorted(present - needed - {"output.weight"})
    if missing or unknown:
        what = f"has no {missing[0]}" if missing else f"has {unknown[0]}, which is not computed"
        raise InputError(f"{name}: {what}; this is not a plain Llama: {USE_TRANSFORMERS}")
    scaling = field(reader, "llama.rope.scaling.type", "none")
    if scaling != "none":
        raise InputError(f"{name}: rope scaling {scaling!r} is not computed: {USE_TRANSFORMERS}")
