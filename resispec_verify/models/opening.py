"""Opening a target and its draft: a GGUF file or a Hugging Face folder, or a draft made from the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.models.interface import Model, TreeModel
from resispec_verify.models.prefix_cache import Windowed
from resispec_verify.models.tree_models import NodeByNode

__all__ = ["Opened", "Variant", "encode_all", "open_models", "tree_model"]

PACKAGES = {"gguf": "torch gguf tokenizers", "folder": "torch transformers"}


@dataclass(frozen=True)
class Variant:
    """What is taken from a target to make a draft of it.

    Attributes
    ----------
    skip_layers : tuple of int
        Layers left out, counted from 0.
    window : int or None
        How many of the last tokens the draft sees.
    round_bits : int or None
        Bits to which its matrices, embeddings included, are rounded in groups of 32.
    """

    skip_layers: tuple[int, ...] = ()
    window: int | None = None
    round_bits: int | None = None

    def __bool__(self) -> bool:
        return bool(self.skip_layers) or self.window is not None or self.round_bits is not None

    def __str__(self) -> str:
        parts = []
        if self.skip_layers:
            parts.append(f"without layers {', '.join(map(str, self.skip_layers))}")
        if self.window is not None:
            parts.append(f"seeing only the last {self.window} tokens")
        if self.round_bits is not None:
            parts.append(f"matrices rounded to {self.round_bits} bits in groups of 32")
        return f"the target {' and '.join(parts)}" if parts else "the target"


@dataclass(frozen=True)
class Opened:
    """Target and draft, and what turns text into tokens.

    Attributes
    ----------
    target, draft : Model
        Of one vocabulary.
    encode : callable
        Text to token ids; raises `InputError` where the target has no tokenizer that is read.
    """

    target: Model
    draft: Model
    encode: Callable[[str], list[int]]


@dataclass(frozen=True)
class _Source:
    """A model that was loaded, with what can be made of it."""

    model: Model
    variant: Callable[[Variant], Model]
    encode: Callable[[str], list[int]]
    vocabulary: Callable[[], dict[str, int]]
    layers: int


def open_models(target: Path, draft: Path | None, variant: Variant, device: str = "cpu") -> Opened:
    """Open a target, and another model or a variant of the target as its draft.

    Parameters
    ----------
    target, draft : Path
        A GGUF file or a Hugging Face folder; for the draft None means `variant` of the target.
    variant : Variant
        Used if there is no draft of its own.
    device : str
        Where Hugging Face models are computed; GGUF files are computed on the CPU.

    Raises
    ------
    InputError
        A path that is no model, a package that is missing, layers that are not there, or vocabularies that
        differ.
    """
    source = _open(target, device)
    if draft is None:
        outside = [layer for layer in variant.skip_layers if not 0 <= layer < source.layers]
        if outside:
            raise InputError(
                f"layer {outside[0]} is not one of the target's {source.layers}, 0 to {source.layers - 1}"
            )
        if len(set(variant.skip_layers)) == source.layers:
            raise InputError("every layer is left out; keep at least one")
        return Opened(source.model, source.variant(variant), source.encode)
    other = _open(draft, device)
    _check_vocabularies(source, other)
    return Opened(source.model, other.model, source.encode)


def _check_vocabularies(target: _Source, draft: _Source) -> None:
    widths = target.model.vocab, draft.model.vocab
    if widths[0] != widths[1]:
        raise InputError(
            f"target and draft have vocabularies of {widths[0]} and {widths[1]} tokens; give a draft that "
            "shares the target's tokenizer"
        )
    try:
        first, second = target.vocabulary(), draft.vocabulary()
    except InputError:
        return  # one of them has no tokenizer to compare
    changed = sorted((number, token) for token, number in first.items() if second.get(token) != number)
    if changed:
        raise InputError(
            f"the tokenizers of target and draft differ on {len(changed)} tokens, such as "
            f"{ascii(changed[0][1])[:40]}; give a draft that shares the target's tokenizer"
        )


def _open(path: Path, device: str) -> _Source:
    if not path.exists():
        raise InputError(f"{path}: no such model; give a GGUF file or a Hugging Face folder on this machine")
    kind = "folder" if path.is_dir() else "gguf"
    if kind == "gguf" and path.suffix.lower() != ".gguf":
        raise InputError(
            f"{path}: is neither a .gguf file nor a folder; give a GGUF file or Hugging Face folder"
        )
    if kind == "gguf" and device != "cpu":
        raise InputError(f"{path}: GGUF files are computed on the CPU; leave --device out")
    try:
        return _open_gguf(path) if kind == "gguf" else _open_folder(path, device)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{path}: needs the package {error.name}, which is missing; run: pip install {PACKAGES[kind]}"
        ) from None


def _open_gguf(path: Path) -> _Source:
    from resispec_verify.models import gguf_file
    from resispec_verify.models.llama import LlamaModel

    reader = gguf_file.open_gguf(path)
    llama = gguf_file.load_llama(reader, str(path))

    def variant(wanted: Variant) -> Model:
        made = llama.without(wanted.skip_layers)
        return _windowed(LlamaModel(made.rounded(wanted.round_bits) if wanted.round_bits else made), wanted)

    def encode(text: str) -> list[int]:
        ids = gguf_file.load_tokenizer(reader, str(path)).encode(text, add_special_tokens=False).ids
        return gguf_file.first_token(reader) + ids

    def vocabulary() -> dict[str, int]:
        return gguf_file.load_tokenizer(reader, str(path)).get_vocab()

    return _Source(LlamaModel(llama), variant, encode, vocabulary, len(llama.blocks))


def _open_folder(path: Path, device: str) -> _Source:
    from resispec_verify.models import huggingface

    model = huggingface.load_folder(path, device)

    def variant(wanted: Variant) -> Model:
        made = huggingface.without_layers(model, wanted.skip_layers) if wanted.skip_layers else model
        made = huggingface.rounded_model(made, wanted.round_bits) if wanted.round_bits else made
        return _windowed(huggingface.FolderModel(made), wanted)

    def encode(text: str) -> list[int]:
        return list(huggingface.load_folder_tokenizer(path)(text)["input_ids"])

    def vocabulary() -> dict[str, int]:
        return huggingface.load_folder_tokenizer(path).get_vocab()

    layers = int(getattr(model.config, "num_hidden_layers", 0))
    return _Source(huggingface.FolderModel(model), variant, encode, vocabulary, layers)


def _windowed(model: Model, variant: Variant) -> Model:
    return model if variant.window is None else Windowed(model, variant.window)


def encode_all(opened: Opened, prompts: Sequence[Any]) -> list[list[int]]:
    """Token ids of prompts, each a text or token ids already."""
    return [opened.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]


def tree_model(model: Model) -> TreeModel:
    """The fastest tree model there is for a `Model`: one forward pass a tree where it is a GGUF Llama.

    It shares the weights of `model` but no state; a model that looks at the last tokens only is evaluated
    one forward pass a level, and any other node by node.
    """
    inner = model.model if isinstance(model, Windowed) else model
    llama = getattr(inner, "llama", None)
    if llama is None:
        return NodeByNode(model)
    from resispec_verify.models import llama_trees  # which imports torch

    if isinstance(model, Windowed):
        return llama_trees.WindowedLlamaTree(llama, model.window)
    return llama_trees.LlamaTree(llama)
