"""Local models: GGUF files and Hugging Face folders, opened, and run over sequences and trees.

`interface`: what a model is to the rest of the package; `opening`: a target and its draft from paths;
`gguf_file` and `llama`: GGUF files, in plain torch; `huggingface`: folders, through transformers;
`tree_models` and `llama_trees`: models at the nodes of a tree. Nothing here imports torch until a model is
opened.
"""

from __future__ import annotations

from resispec_verify.models.interface import Model, TreeModel, check_prompts
from resispec_verify.models.opening import Opened, Variant, encode_all, open_models, tree_model

__all__ = [
    "Model",
    "Opened",
    "TreeModel",
    "Variant",
    "check_prompts",
    "encode_all",
    "open_models",
    "tree_model",
]
