"""A decoding loop over trees of candidates, for any verification rule and any local pair of models.

Nothing here imports torch until a model that needs it is used.
"""

from __future__ import annotations

from resispec_verify.decoding.loop import Decoded, Step, decode, decode_steps
from resispec_verify.models.tree_models import TreeModel, tree_model

__all__ = ["Decoded", "Step", "TreeModel", "decode", "decode_steps", "tree_model"]
