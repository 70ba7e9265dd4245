"""The global state of torch around a call: seeded from the caller's generator, and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seeded"]


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Torch draws from a seed of ``rng``, on one thread: tensors are small, and waiting for threads is
    not.
    """
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(int(rng.integers(2**63)))
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
