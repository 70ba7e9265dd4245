"""Recording dumps: from your own loop (`Recorder`), or from models (`record_flat` and the other loops).

`recorder` and `structured`: the three recorders; `loops`: from models; `pt_file`: writing `.pt` files piece
by piece; `arrays`: what is handed over, checked; `prompts`: texts from a file. Nothing here imports torch.
"""

from __future__ import annotations

from resispec_verify.models import Model
from resispec_verify.record.loops import record_flat, record_rounds, record_trees
from resispec_verify.record.recorder import Recorder
from resispec_verify.record.structured import RoundsRecorder, TreeRecorder

__all__ = [
    "Model",
    "Recorder",
    "RoundsRecorder",
    "TreeRecorder",
    "record_flat",
    "record_rounds",
    "record_trees",
]
