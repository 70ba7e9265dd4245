"""A tiny random Llama in a GGUF file, and a model that is a function of its tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?"
TOKENS = ["<s>", "</s>", *LETTERS, "Ġ", "th", "he", "Ġa"]
MERGES = ["t h", "h e", "Ġ a"]
WIDTH, HEADS, KV_HEADS, INNER, CONTEXT = 16, 4, 2, 24, 64


class HashModel:
    """Logits that depend on the last three tokens only, and on a seed."""

    def __init__(self, seed: int, vocab: int = 11, context: int | None = None) -> None:
        self.vocab, self.context, self._seed = vocab, context, seed
        self.calls = 0

    def logits(self, tokens, last=1):
        self.calls += 1
        ends = range(len(tokens) - last + 1, len(tokens) + 1)
        return np.stack([self._row(tuple(tokens[max(0, end - 3) : end])) for end in ends])

    def _row(self, recent):
        return 2 * np.random.default_rng([self._seed, *recent]).standard_normal(self.vocab).astype(np.float32)


def write_gguf(
    path: Path, *, blocks=3, seed=0, tokens=TOKENS, tokenizer=True, tied=True, context=CONTEXT, **changes
) -> Path:
    """Write a random Llama of a few thousand parameters; `changes` replace or add metadata and tensors."""
    import gguf

    writer = gguf.GGUFWriter(str(path), changes.pop("architecture", "llama"))
    numbers = {
        "llama.block_count": blocks,
        "llama.context_length": context,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
    }
    for key, value in numbers.items():
        writer.add_uint32(key, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 1000.0)
    if tokenizer:
        writer.add_string("tokenizer.ggml.model", changes.pop("tokenizer_model", "gpt2"))
        writer.add_string("tokenizer.ggml.pre", changes.pop("pre", "gpt-2"))
        writer.add_array("tokenizer.ggml.tokens", list(tokens))
        writer.add_array("tokenizer.ggml.token_type", [3, 3] + [1] * (len(tokens) - 2))
        writer.add_array("tokenizer.ggml.merges", MERGES)
        writer.add_uint32("tokenizer.ggml.bos_token_id", 0)
        writer.add_bool("tokenizer.ggml.add_bos_token", bool(changes.pop("bos", False)))
    weights = random_weights(blocks, seed, len(tokens), tied) | changes.pop("tensors", {})
    for name, array in weights.items():
        writer.add_tensor(name, array)
    assert not changes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_weights(blocks: int, seed: int, vocab: int, tied: bool) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = {"token_embd": (vocab, WIDTH), "output_norm": (WIDTH,)}
    if not tied:
        shapes["output"] = (vocab, WIDTH)
    key = WIDTH // HEADS * KV_HEADS
    for b in range(blocks):
        parts = {
            "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (key, WIDTH), "attn_v": (key, WIDTH),
            "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
        }  # fmt: skip
        shapes |= {f"blk.{b}.{name}": shape for name, shape in parts.items()}
    return {
        f"{name}.weight": (
            1 + 0.1 * generator.standard_normal(shape)
            if len(shape) == 1
            else generator.standard_normal(shape) * (1.5 if name in ("token_embd", "output") else 0.4)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }
