"""The order in which engines go from logits to the law that they sample, by the code of one version each.

``adjustments`` come first in every engine here: they change logits token by token, some of them by the text
so far. Temperature and filters follow. docs/reference/sampling.md says where each order was read and
how it was run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from resispec_verify.errors import InputError

__all__ = ["ADJUSTMENTS", "DRAWS", "ORDERS", "SETTING_OF", "Order", "order_of"]

ADJUSTMENTS = (
    "logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "allowed_tokens",
    "bad_words", "min_tokens",
)  # fmt: skip
#: "top_k_top_p": both of the law as it comes there, top-p without renormalising after top-k.
DRAWS = ("temperature", "top_k", "top_p", "top_k_top_p", "min_p", "typical_p", "top_n_sigma", "xtc")
#: The settings that each step needs; a step of another name needs its own.
SETTING_OF = {"top_k_top_p": ("top_k", "top_p"), "xtc": ("xtc_probability",)}


@dataclass(frozen=True)
class Order:
    """Steps in their order, and how an engine reads what is ambiguous in them.

    Attributes
    ----------
    steps : tuple of str
        Of `ADJUSTMENTS`, then of `DRAWS`. What is set and has no step is an error.
    ties : {"kept", "cut"}
        Whether tokens tied with the k-th stay.
    inclusive : bool
        Whether top-p keeps a token with exactly its share of the mass above it.
    repeats, counts : {"text", "output"}
        What repetition penalties, and presence and frequency penalties, look at: prompt and output, or the
        output alone.
    last_n : int or None
        How many of its last tokens, where nothing else is stated; None for all.
    history : {"token", "block-start"}
        Whether penalties at a drafted token have seen those drafted before it.
    sources : tuple of str
        Where the order was read.
    """

    name: str
    steps: tuple[str, ...]
    ties: Literal["kept", "cut"] = "kept"
    inclusive: bool = False
    repeats: Literal["text", "output"] = "text"
    counts: Literal["text", "output"] = "output"
    last_n: int | None = None
    history: Literal["token", "block-start"] = "token"
    sources: tuple[str, ...] = ()

    @property
    def adjustments(self) -> tuple[str, ...]:
        """The steps on logits as the model gives them."""
        return tuple(step for step in self.steps if step in ADJUSTMENTS)

    @property
    def draws(self) -> tuple[str, ...]:
        """Temperature and filters."""
        return tuple(step for step in self.steps if step in DRAWS)


ORDERS = {
    order.name: order
    for order in (
        Order(
            "transformers",
            ("logit_bias", "repetition_penalty", "bad_words", "min_tokens", "allowed_tokens",
             "temperature", "top_k", "top_p", "min_p", "typical_p"),
            sources=("transformers 5.24.0: generation/utils.py, _get_logits_processor",
                     "transformers 5.24.0: generation/logits_process.py"),
        ),
        Order(
            "vllm",
            ("allowed_tokens", "bad_words", "min_tokens", "logit_bias", "repetition_penalty",
             "frequency_penalty", "presence_penalty", "temperature", "min_p", "top_k", "top_p"),
            sources=("vLLM 0.33.0: v1/sample/sampler.py, Sampler",
                     "vLLM 0.33.0: v1/worker/gpu/sample/sampler.py, apply_sampling_params"),
        ),
        Order(
            "sglang",
            ("min_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "allowed_tokens",
             "logit_bias", "temperature", "top_k_top_p", "min_p"),
            ties="cut", inclusive=True, repeats="output",
            sources=("SGLang 0.5.23: srt/sampling/sampling_batch_info.py, apply_logits_bias",
                     "SGLang 0.5.23: srt/layers/sampler.py, top_k_top_p_min_p_sampling_from_probs_torch"),
        ),
        Order(
            "sglang-verify",
            ("min_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias",
             "allowed_tokens", "temperature", "top_k", "top_p"),
            repeats="output", history="block-start",
            sources=("SGLang 0.5.23: srt/speculative/eagle_utils.py",),
        ),
        Order(
            "llama.cpp",
            ("logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "top_n_sigma",
             "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"),
            ties="cut", counts="text", last_n=64,
            sources=("llama.cpp as in xllamacpp 2026.10.11549: common/common.h, samplers",
                     "llama.cpp as in xllamacpp 2026.10.11549: src/llama-sampler.cpp"),
        ),
    )
}  # fmt: skip


def order_of(value: str | Sequence[str] | Order) -> Order:
    """An engine's order by its name, or one of one's own: steps in a list, or a text with commas.

    Raises
    ------
    InputError
        An unknown name or step, one twice, or an adjustment after temperature or a filter.
    """
    if isinstance(value, Order):
        return value
    if isinstance(value, str) and value in ORDERS:
        return ORDERS[value]
    steps = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
    known = (*ADJUSTMENTS, *DRAWS)
    if bad := [step for step in steps if step not in known]:
        raise InputError(
            f"order has {bad[0]!r}, which is no engine ({', '.join(ORDERS)}) and no step ({', '.join(known)})"
        )
    if len(set(steps)) < len(steps) or ("top_k_top_p" in steps and {"top_k", "top_p"} & set(steps)):
        raise InputError(f"order {','.join(steps)} has a step twice; give each once")
    first = next((i for i, step in enumerate(steps) if step in DRAWS), len(steps))
    if late := [step for step in steps[first:] if step in ADJUSTMENTS]:
        raise InputError(f"order has {late[0]} after {steps[first]}; what changes logits comes before those")
    return Order(",".join(steps), steps)
