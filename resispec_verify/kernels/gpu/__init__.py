"""Replay on a CUDA device: kernels in ``replay.cu``, and what launches them.

Nothing here imports CuPy until a `CupyDevice` is made. The kernels have been compiled for a GPU and run on a
CPU, but not run on a GPU; docs/gpu.md says what that does and does not show.
"""

from resispec_verify.kernels.batched_paths import PathSums
from resispec_verify.kernels.gpu.device import OPTIONS, SOURCE, CupyDevice, Device
from resispec_verify.kernels.gpu.replay import (
    MOST_CANDIDATES,
    path_sums,
    shaped_marginals,
    softmax,
    specinfer_rounds,
)

__all__ = [
    "MOST_CANDIDATES",
    "OPTIONS",
    "SOURCE",
    "CupyDevice",
    "Device",
    "PathSums",
    "path_sums",
    "shaped_marginals",
    "softmax",
    "specinfer_rounds",
]
