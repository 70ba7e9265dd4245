"""Causal language models in local Hugging Face folders, through transformers, and drafts made from them."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from resispec_verify.errors import InputError
from resispec_verify.models.llama import rounded
from resispec_verify.models.prefix_cache import PrefixCached

__all__ = ["FolderModel", "load_folder", "load_folder_tokenizer", "rounded_model", "without_layers"]


def load_folder(path: Path, device: str = "cpu") -> Any:
    """Load a model in float32 from a folder, never from the network; no code of the folder is run.

    Raises
    ------
    InputError
        If the folder is not one of a causal language model.
    """
    transformers = _transformers()
    if not (path / "config.json").is_file():
        raise InputError(f"{path}: has no config.json, so it is no Hugging Face model; give its folder")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype=torch.float32, trust_remote_code=False
        )
        return model.to(device).eval()
    except ModuleNotFoundError:
        raise
    except Exception as error:  # transformers raises what it likes
        raise InputError(f"{path}: cannot be loaded ({_short(error)})") from None


def load_folder_tokenizer(path: Path) -> Any:
    """Load the tokenizer of a folder.

    Raises
    ------
    InputError
        If there is none.
    """
    try:
        return _transformers().AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises what it likes
        raise InputError(
            f"{path}: has no tokenizer that can be loaded ({_short(error)}); save it with "
            'tokenizer.save_pretrained, or give prompts as token ids: lines {"tokens": [1, 2, 3]} of a '
            ".jsonl file"
        ) from None


class FolderModel(PrefixCached):
    """A transformers model as a `Model`; keys and values are reused if every layer keeps all of them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._past: Any = None
        accepted = inspect.signature(model.forward).parameters
        self._cut = "logits_to_keep" in accepted
        self._cache = next((name for name in ("cache", "past_key_values") if name in accepted), None)
        super().__init__(vocab=0, context=getattr(model.config, "max_position_embeddings", None))
        self.vocab = self.logits([0]).shape[1]  # of the output, which may be padded beyond the tokenizer

    @torch.inference_mode()
    def _forward(self, tokens: Sequence[int], keep: int, last: int) -> Tensor:
        options: dict[str, Any] = {"logits_to_keep": last} if self._cut else {}
        if keep and self._cache:
            surplus = self._past.get_seq_length() - keep
            if surplus:
                self._past.crop(-surplus)
            options[self._cache] = self._past
        ids = torch.tensor([list(tokens)], device=self._model.device)
        out = self._model(input_ids=ids, use_cache=self._cache is not None, **options)
        self._past = getattr(out, self._cache, None) if self._cache else None
        return out.logits[0, -last:].cpu()

    def logits(self, tokens: Sequence[int], last: int = 1):
        """As in `PrefixCached`; all of the sequence is computed where what is kept cannot be cut."""
        # States of recurrent layers and sliding windows have forgotten what a shorter sequence needs.
        kinds = {type(layer).__name__ for layer in getattr(self._past, "layers", ())}
        if kinds != {"DynamicLayer"}:
            self._seen = []
        return super().logits(tokens, last)


def without_layers(model: Any, layers: Sequence[int]) -> Any:
    """A copy that shares the weights, with decoder layers left out and the others renumbered.

    Raises
    ------
    InputError
        If the model has no single list of as many layers as its configuration says.
    """
    made = copy.deepcopy(model, {id(t): t for t in chain(model.parameters(), model.buffers())})
    count = made.config.num_hidden_layers
    stacks = [
        (parent, name, child)
        for parent in made.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.ModuleList) and len(child) == count
    ]
    if len(stacks) != 1:
        raise InputError(f"{type(model).__name__} has no single list of {count} layers to leave some out of")
    parent, name, stack = stacks[0]
    kept = [i for i in range(count) if i not in layers]
    setattr(parent, name, torch.nn.ModuleList(stack[i] for i in kept))
    for number, layer in enumerate(getattr(parent, name)):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number
    made.config.num_hidden_layers = len(kept)
    if getattr(made.config, "layer_types", None):
        made.config.layer_types = [made.config.layer_types[i] for i in kept]
    return made


@torch.no_grad()
def rounded_model(model: Any, bits: int) -> Any:
    """A copy with every matrix, embeddings included, rounded as `rounded` does."""
    made = copy.deepcopy(model)
    for parameter in made.parameters():
        if parameter.ndim == 2:
            parameter.copy_(rounded(parameter, bits))
    return made


def _transformers() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"
