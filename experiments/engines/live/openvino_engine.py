"""OpenVINO GenAI as functions that `resispec-verify audit` can call: token ids in, token ids out.

``generate``: continuous batching with a draft model, `DRAFT_TOKENS` draft tokens a round. ``plain``: the
same without a draft. ``prompt_lookup``: n-grams of the text so far as the draft. ``laws``: the target's own
logits, of the same file. All at temperature 1 without filters, past the end of a text, in float32 with one
thread. Models are those of `make_draft`, made on first use.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_draft import draft_gguf, find_gguf, openvino_folder

DRAFT_TOKENS = 4
NGRAM = 2
#: As shipped, the cache of keys and values has 8 bits and activations are quantised as they come: another
#: law, TV .02 at a first token, and one that depends on what was computed at once.
ARITHMETIC = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "INFERENCE_NUM_THREADS": 1,
}
# One call of a pipeline at a time: it is given several completions at once instead.
_lock = threading.Lock()


@functools.cache
def _pipeline(kind: str) -> Any:
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.enable_prefix_caching = False
    properties: dict[str, Any] = dict(ARITHMETIC)
    if kind == "draft":
        folder = str(openvino_folder(draft_gguf()))
        properties["draft_model"] = openvino_genai.draft_model(folder, "CPU", **ARITHMETIC)
    elif kind == "lookup":
        properties["prompt_lookup"] = True
    target = str(openvino_folder(find_gguf()))
    # Not LLMPipeline: with a draft it may crash at its first request.
    return openvino_genai.ContinuousBatchingPipeline(target, scheduler, "CPU", properties)


def _completions(
    kind: str, prompts: Sequence[Sequence[int]], count: int, seeds: Sequence[int], **more: Any
) -> list[dict[str, Any]]:
    import openvino
    import openvino_genai

    configs = []
    for seed in seeds:
        config = openvino_genai.GenerationConfig()
        settings = {
            "do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "ignore_eos": True,
            "max_new_tokens": count, "rng_seed": seed, "apply_chat_template": False, **more,
        }  # fmt: skip
        for name, value in settings.items():
            setattr(config, name, value)
        configs.append(config)
    inputs = [openvino.Tensor(np.asarray([prompt], np.int64)) for prompt in prompts]
    with _lock:
        results = _pipeline(kind).generate(inputs, configs)
    found = [
        {"tokens": list(result.m_generation_ids[0]), "drafted": None, "accepted": None} for result in results
    ]
    # Counts are of the whole call, the same object beside every result, and prompt lookup has none.
    counts = results[0].extended_perf_metrics
    if counts is not None:
        for result in found:
            result["drafted"] = result["accepted"] = 0
        found[0]["drafted"] = counts.get_num_draft_tokens()
        found[0]["accepted"] = counts.get_num_accepted_tokens()
    return found


def generate_many(prompts: Sequence[Sequence[int]], count: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Completions with the draft model, one batch; the counts of all stand beside the first."""
    return _completions("draft", prompts, count, seeds, num_assistant_tokens=DRAFT_TOKENS)


generate_many.many = True  # takes the prompts and seeds of several completions


def generate(prompt_ids: Sequence[int], count: int, seed: int) -> dict[str, Any]:
    """A completion with the draft model."""
    return generate_many([prompt_ids], count, [seed])[0]


def plain_many(prompts: Sequence[Sequence[int]], count: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Completions without a draft, one batch."""
    return _completions("plain", prompts, count, seeds)


plain_many.many = True  # takes the prompts and seeds of several completions


def plain(prompt_ids: Sequence[int], count: int, seed: int) -> dict[str, Any]:
    """A completion without a draft."""
    return plain_many([prompt_ids], count, [seed])[0]


def prompt_lookup_many(
    prompts: Sequence[Sequence[int]], count: int, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Completions with n-grams of the text so far as the draft, one batch."""
    return _completions(
        "lookup", prompts, count, seeds, num_assistant_tokens=DRAFT_TOKENS, max_ngram_size=NGRAM
    )


prompt_lookup_many.many = True  # takes the prompts and seeds of several completions


def prompt_lookup(prompt_ids: Sequence[int], count: int, seed: int) -> dict[str, Any]:
    """A completion with n-grams of the text so far as the draft."""
    return prompt_lookup_many([prompt_ids], count, [seed])[0]


@functools.cache
def _model() -> Any:
    import openvino

    core = openvino.Core()
    model = core.read_model(openvino_folder(find_gguf()) / "openvino_model.xml")
    return core.compile_model(model, "CPU", ARITHMETIC).create_infer_request()


def laws(prompt_ids: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """Log-probabilities before each of ``tokens``, ``(len(tokens), V)``: one pass over all of them."""
    text = np.asarray([[*prompt_ids, *tokens[:-1]]], np.int64)
    length = text.shape[1]
    given = {
        "input_ids": text,
        "attention_mask": np.ones((1, length), np.int64),
        "position_ids": np.arange(length, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    with _lock:
        request = _model()
        request.reset_state()
        names = {name for found in request.model_inputs for name in found.names}
        logits = request.infer({name: value for name, value in given.items() if name in names})[0]
        rows = np.asarray(logits[0, len(prompt_ids) - 1 :], np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


laws.many = True  # takes the prompt and the tokens, not one prefix


def law(prefix_ids: Sequence[int]) -> np.ndarray:
    """Log-probabilities of the next token after a prefix, ``(V,)``."""
    # What stands there does not matter: the pass ends before it.
    return laws(prefix_ids, [0])[0]


def encode(text: str) -> list[int]:
    """Token ids of a text."""
    return [int(token) for token in _pipeline("plain").get_tokenizer().encode(text).input_ids.data[0]]
