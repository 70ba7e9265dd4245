"""Recording dumps: from your own loop (`Recorder`), or from local models (`open_models` and the loops).

Nothing here imports torch until a model is opened.
"""

from __future__ import annotations

from resispec_verify.record.loops import Model, record_flat, record_rounds, record_trees
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
