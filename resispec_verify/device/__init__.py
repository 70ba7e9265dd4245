"""Everything for a CUDA device: kernels in ``replay.cu``, what launches them, and what is built on them.

Nothing here imports CuPy until a `CupyDevice` is made. The kernels have been compiled for a GPU and run on a
CPU, but not run on a GPU; docs/reference/backends.md says what that does and does not show.
"""

from resispec_verify.device.host import (
    MOST_CANDIDATES,
    path_sums,
    shaped_marginals,
    softmax,
    specinfer_rounds,
)
from resispec_verify.device.launch import OPTIONS, SOURCE, CupyDevice, Device

__all__ = [
    "MOST_CANDIDATES",
    "OPTIONS",
    "SOURCE",
    "CupyDevice",
    "Device",
    "path_sums",
    "shaped_marginals",
    "softmax",
    "specinfer_rounds",
]
