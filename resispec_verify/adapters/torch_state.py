"""The global state of torch around a call: its draws come from the caller's generator, and it is put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from resispec_verify.testing.uniforms import served_from

__all__ = ["drawing_from"]


@contextmanager
def drawing_from(rng: np.random.Generator) -> Iterator[None]:
    """Torch draws from a seed of ``rng``, and at the ends of the uniforms from ``rng`` itself.

    On one thread: tensors are small, and waiting for threads is not.
    """
    threads = torch.get_num_threads()
    with served_from(rng, ordinary="seed", libraries=["torch"]), torch.no_grad():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
