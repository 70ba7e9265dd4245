"""A decoding loop over trees of candidates, for any verification rule and any local pair of models.

`candidates`: a tree as it is drawn from the draft; `loop`: steps that grow, verify and emit.
Nothing here imports torch until a model that needs it is used.
"""

from __future__ import annotations

from resispec_verify.decoding.loop import Decoded, Step, decode, decode_steps
from resispec_verify.models import TreeModel, tree_model

__all__ = ["Decoded", "Step", "TreeModel", "decode", "decode_steps", "tree_model"]
