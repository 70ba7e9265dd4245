"""transformers as functions that `resispec-verify audit` can call: token ids in, token ids out.

``generate``: `model.generate` with an assistant model, `DRAFT_TOKENS` draft tokens a round. ``plain``: the
same without. ``laws``: the target's own logits in one pass. All at temperature 1 without filters, past the
end of a text, in float32 with one thread. Target and draft are those of `make_draft`, dequantised.
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
from make_draft import draft_gguf, find_gguf

DRAFT_TOKENS = 5
# torch's generator is one for the process.
_lock = threading.Lock()


@functools.cache
def _model(kind: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(1)
    path = find_gguf() if kind == "target" else draft_gguf()
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    # What stands in the file ends a completion at the end of a text.
    model.generation_config = GenerationConfig(pad_token_id=model.config.pad_token_id, eos_token_id=None)
    if kind == "draft":
        model.generation_config.num_assistant_tokens = DRAFT_TOKENS
        model.generation_config.num_assistant_tokens_schedule = "constant"
        model.generation_config.assistant_confidence_threshold = 0.0
    return model.eval()


class _Counting:
    """What the target accepts of the assistant's tokens, by round, while one completion is made."""

    def __init__(self) -> None:
        self.drafted: list[int] = []
        self.accepted: list[int] = []

    def __enter__(self) -> _Counting:
        from transformers.generation.candidate_generator import AssistedCandidateGenerator

        self._class = AssistedCandidateGenerator
        self._before = before = self._class.update_candidate_strategy

        def update(generator, input_ids, scores, num_matches):
            # One row of the target for each draft token, and one more.
            self.drafted.append(int(scores.shape[1]) - 1)
            self.accepted.append(int(num_matches))
            return before(generator, input_ids, scores, num_matches)

        self._class.update_candidate_strategy = update
        return self

    def __exit__(self, *_: object) -> None:
        self._class.update_candidate_strategy = self._before

    def starts(self, count: int) -> list[int]:
        """Where rounds begin: each emits what it accepted and one token more."""
        begins = [0, *np.cumsum(np.add(self.accepted, 1)).tolist()]
        return [begin for begin in begins if begin < count]


def _completion(prompt_ids: Sequence[int], count: int, seed: int, **more: Any) -> list[int]:
    import torch

    prompt = torch.tensor([list(prompt_ids)])
    torch.manual_seed(seed)
    found = _model("target").generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        max_new_tokens=count, **more,
    )  # fmt: skip
    return found[0, prompt.shape[1] :].tolist()


def generate(prompt_ids: Sequence[int], count: int, seed: int) -> dict[str, Any]:
    """A completion with the assistant."""
    with _lock, _Counting() as counted:
        tokens = _completion(prompt_ids, count, seed, assistant_model=_model("draft"))
    return {
        "tokens": tokens,
        "drafted": sum(counted.drafted),
        "accepted": sum(counted.accepted),
        "starts": counted.starts(len(tokens)),
    }


def plain(prompt_ids: Sequence[int], count: int, seed: int) -> dict[str, Any]:
    """A completion without."""
    with _lock:
        return {"tokens": _completion(prompt_ids, count, seed)}


def laws(prompt_ids: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """Log-probabilities before each of ``tokens``, ``(len(tokens), V)``: one pass over all of them."""
    import torch

    text = torch.tensor([[*prompt_ids, *tokens[:-1]]])
    with _lock, torch.inference_mode():
        logits = _model("target")(text).logits[0, len(prompt_ids) - 1 :]
        return torch.log_softmax(logits.double(), dim=-1).numpy()


laws.many = True  # takes the prompt and the tokens, not one prefix


def law(prefix_ids: Sequence[int]) -> np.ndarray:
    """Log-probabilities of the next token after a prefix, ``(V,)``."""
    # What stands there does not matter: the pass ends before it.
    return laws(prefix_ids, [0])[0]


def encode(text: str) -> list[int]:
    """Token ids of a text."""
    return _tokenizer()(text)["input_ids"]


@functools.cache
def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    path = find_gguf()
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
