"""Whether settings on a CUDA device are collected."""

from __future__ import annotations

import functools
import importlib.util
import os

from resispec_verify.backends import get_backend
from resispec_verify.errors import InputError

ASK = "RESISPEC_GPU"


@functools.cache
def cuda_is_collected() -> bool:
    """Where CuPy or torch sees a device, or where the environment asks: ``RESISPEC_GPU=1``."""
    return bool(os.environ.get(ASK)) or _cupy_sees_a_device() or _torch_sees_a_device()


def _cupy_sees_a_device() -> bool:
    try:
        get_backend("cupy")
    except InputError:
        return False
    return True


def _torch_sees_a_device() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
