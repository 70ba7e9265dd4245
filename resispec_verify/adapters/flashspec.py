"""``flashspec``: its rejection steps (extra ``adapters``).

``check resispec_verify.adapters.flashspec:block_sampler --style block`` checks the installed version.
"""

from __future__ import annotations

import numpy as np
import torch
from flashspec.sampling.rejection import (  # pyright: ignore[reportMissingImports]
    rejection_step,
    rejection_step_onehot,
)

from resispec_verify.adapters.torch_state import drawing_from

__all__ = ["block_sampler", "onehot_sampler"]


def block_sampler(
    targets: np.ndarray, drafts: np.ndarray, path: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """``rejection_step`` on the CPU, in the style "block"."""
    with drawing_from(rng):
        found = rejection_step(
            torch.from_numpy(path), _log(drafts), _log(targets), generator=torch.default_generator
        )
    return _emitted(path, found.numpy())


def onehot_sampler(
    targets: np.ndarray, drafts: np.ndarray, path: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """``rejection_step_onehot``: the path is tested as if it had been certain; also for paths padded with
    -1.
    """
    lengths = torch.from_numpy((path >= 0).sum(axis=1))
    ids = torch.from_numpy(np.maximum(path, 0))
    with drawing_from(rng):
        found = rejection_step_onehot(ids, _log(targets), lengths, generator=torch.default_generator)
    return _emitted(path, found.numpy())


def _log(law: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(law).log().float()


def _emitted(path: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Accepted tokens, then the next one, then -1."""
    accepted, token = found[:, :1], found[:, 1:]
    place = np.arange(path.shape[1] + 1)
    padded = np.concatenate([path, np.full((len(path), 1), -1)], axis=1)
    return np.where(place < accepted, padded, np.where(place == accepted, token, -1))
