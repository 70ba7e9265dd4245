"""Hugging Face ``transformers``: its verification step, and its candidate generators (extra ``adapters``).

``check resispec_verify.adapters.transformers:block_sampler --style block`` checks the installed version.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers.generation import utils  # pyright: ignore[reportMissingImports]

from resispec_verify.adapters.torch_state import drawing_from

__all__ = ["block_sampler", "drafts_of", "ensemble_sampler"]


def block_sampler(
    targets: np.ndarray, drafts: np.ndarray, path: np.ndarray, rng: np.random.Generator, **options: Any
) -> np.ndarray:
    """``transformers.generation.utils._speculative_sampling``, row by row: it takes one sequence.

    Parameters
    ----------
    targets, drafts, path, rng
        As for the style "block".
    **options
        Handed on to the function, such as ``assistant_ensemble_weight``.
    """
    rows, length = path.shape
    out = np.full((rows, length + 1), -1, dtype=np.int64)
    names = inspect.signature(utils._speculative_sampling).parameters
    if "is_done_candidate" in names:  # whether the candidate itself ends the text; gone from later releases
        options["is_done_candidate"] = False
    with drawing_from(rng):
        ids = torch.from_numpy(path)
        p, q = (torch.from_numpy(law).log().float() for law in (targets, drafts))
        for row in range(rows):
            tokens, _ = utils._speculative_sampling(
                ids[row : row + 1], q[row : row + 1], length, p[row : row + 1], **options
            )
            out[row, : tokens.shape[1]] = tokens[0].numpy()
    return out


def ensemble_sampler(weight: float) -> Callable[..., np.ndarray]:
    """The same with ``assistant_ensemble_weight``, which is lossy by design: a control that must be
    rejected.
    """

    def sampler(
        targets: np.ndarray, drafts: np.ndarray, path: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        return block_sampler(targets, drafts, path, rng, assistant_ensemble_weight=weight)

    return sampler


def drafts_of(
    make: Callable[[], Any], input_ids: Any, **arguments: Any
) -> Callable[[np.random.Generator], Any]:
    """A candidate generator, for `resispec_verify.testing.assert_draft_as_declared`.

    Parameters
    ----------
    make : callable () -> CandidateGenerator
        A fresh one for each draft, so that the state is always the same.
    input_ids : tensor (1, T)
    **arguments
        Of ``get_candidates`` besides ``input_ids``, such as ``model_outputs``; those it does not take are
        left out.
    """

    def draw(rng: np.random.Generator) -> Any:
        generator = make()
        names = inspect.signature(generator.get_candidates).parameters
        given = {name: value for name, value in arguments.items() if name in names}
        with drawing_from(rng):
            ids, logits = generator.get_candidates(input_ids, **given)
        return ids[0, input_ids.shape[1] :], logits[0]

    return draw
