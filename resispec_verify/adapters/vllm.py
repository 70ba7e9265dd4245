"""vLLM: the arguments of its two verification functions, from laws and a drafted path, and the results back.

Nothing is imported before a function is called; torch is needed then, and vLLM by `block_v1` and `block_v2`.
The kernels are Triton's: they run on a CUDA device, or on the CPU where ``TRITON_INTERPRET=1`` is set before
vLLM is imported (and `supply_log1p` is called, for the second).

Read in vLLM 0.33.0: `rejection_sample` of ``vllm/v1/sample/rejection_sampler.py`` ("V1") and of
``vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py`` ("V2").
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["block_v1", "block_v2", "emitted_v1", "emitted_v2", "supply_log1p", "v1_arguments", "v2_arguments"]


def v1_arguments(
    targets: np.ndarray,
    drafts: np.ndarray | None,
    path: np.ndarray,
    rng: np.random.Generator,
    *,
    greedy: bool = False,
    device: Any = "cpu",
) -> dict[str, Any]:
    """Keyword arguments of V1's ``rejection_sample``; requests are rows, one after the other.

    Parameters
    ----------
    targets : float64 array (rows, L + 1, V)
        Laws, after temperature and filters.
    drafts : float64 array (rows, L, V) or None
        None: no probabilities are handed over, as for drafts by n-grams; the draft is a point mass.
    path : int64 array (rows, L)
        Drafted tokens; -1 after the end of a shorter path.
    rng : Generator
        Of the bonus tokens, which V1 takes as an argument: they are drawn here, from the last target.
    greedy : bool
        Of all requests: temperature 0. Bonus tokens are then the most probable ones.

    Returns
    -------
    dict
        ``draft_token_ids`` int32 (tokens,), ``num_draft_tokens`` list, ``max_spec_len``,
        ``cu_num_draft_tokens`` int32 (rows,), ``draft_probs`` float32 (tokens, V) or None,
        ``target_logits`` float32 (tokens, V),
        ``bonus_token_ids`` int32 (rows, 1), ``sampling_metadata`` with the four attributes that are read.
    """
    import torch

    rows, length = path.shape
    there = path >= 0
    lengths = there.sum(axis=1)
    last = targets[np.arange(rows), lengths]
    bonus = last.argmax(axis=-1) if greedy else _draw(last, rng)

    def tensor(array: np.ndarray, dtype: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(array), device=device).to(dtype)

    temperature = None if greedy else torch.ones(rows, dtype=torch.float32, device=device)
    return {
        "draft_token_ids": tensor(path[there], torch.int32),
        "num_draft_tokens": lengths.tolist(),
        "max_spec_len": length,
        "cu_num_draft_tokens": tensor(np.cumsum(lengths), torch.int32),
        "draft_probs": None if drafts is None else tensor(drafts[there], torch.float32),
        "target_logits": tensor(targets[:, :length][there], torch.float64).log().float(),
        "bonus_token_ids": tensor(bonus[:, None], torch.int32),
        "sampling_metadata": SimpleNamespace(
            all_greedy=greedy, all_random=not greedy, temperature=temperature, generators={}
        ),
    }


def emitted_v1(output: Any) -> np.ndarray:
    """V1's result as the style "block" wants it: int64 ``(rows, L + 1)``, -1 after the last token."""
    return output.cpu().numpy().astype(np.int64)


def v2_arguments(
    targets: np.ndarray,
    drafts: np.ndarray | None,
    path: np.ndarray,
    rng: np.random.Generator,
    *,
    temperature: float = 1.0,
    device: Any = "cpu",
) -> dict[str, Any]:
    """Keyword arguments of V2's ``rejection_sample``.

    Parameters
    ----------
    targets, drafts, path
        As for `v1_arguments`. A request has one row of logits more than it has drafted tokens.
    rng : Generator
        Of the seeds, one a request: V2 draws from seed and position inside of its kernels.
    temperature : float
        0 is greedy. Drafts are handed over as they are stored, before temperature: V2 divides them inside of
        the kernel, so that they are multiplied here. Target logits come after temperature.

    Returns
    -------
    dict
        ``target_logits`` float32 (logits, V), ``draft_logits`` float32 (rows, L, V) or None;
        ``draft_sampled`` and ``pos`` int64 (logits,); ``cu_num_logits`` int32 (rows + 1,); ``idx_mapping``
        int32 (rows,); ``expanded_idx_mapping`` and ``expanded_local_pos`` int32 (logits,); ``temperature``
        float32 and ``seed`` int64 (rows,); ``num_speculative_steps``.
    """
    import torch

    rows, length = path.shape
    lengths = (path >= 0).sum(axis=1)
    local = np.tile(np.arange(length + 1), (rows, 1))
    there = local <= lengths[:, None]
    # The first of a request's tokens is the one before the drafted ones, at some position of its text.
    tokens = np.concatenate([np.zeros((rows, 1), np.int64), path], axis=1)
    start = rng.integers(1, 1 << 16, size=(rows, 1))

    def tensor(array: np.ndarray, dtype: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(array), device=device).to(dtype)

    draft_logits = None
    if drafts is not None:
        scale = temperature if temperature > 0 else 1.0
        draft_logits = (tensor(drafts, torch.float64).log() * scale).float()
    return {
        "target_logits": tensor(targets[there], torch.float64).log().float(),
        "draft_logits": draft_logits,
        "draft_sampled": tensor(tokens[there], torch.int64),
        "cu_num_logits": tensor(np.concatenate([[0], np.cumsum(lengths + 1)]), torch.int32),
        "pos": tensor((start + local)[there], torch.int64),
        "idx_mapping": tensor(np.arange(rows), torch.int32),
        "expanded_idx_mapping": tensor(np.repeat(np.arange(rows), lengths + 1), torch.int32),
        "expanded_local_pos": tensor(local[there], torch.int32),
        "temperature": torch.full((rows,), temperature, dtype=torch.float32, device=device),
        "seed": tensor(rng.integers(2**63, size=rows), torch.int64),
        "num_speculative_steps": length,
    }


def emitted_v2(output: Any) -> np.ndarray:
    """V2's result, tokens and how many of them count, as `emitted_v1`."""
    sampled, count = (part.cpu().numpy().astype(np.int64) for part in output)
    return np.where(np.arange(sampled.shape[1]) < count[:, None], sampled, -1)


def block_v1(
    targets: np.ndarray,
    drafts: np.ndarray,
    path: np.ndarray,
    rng: np.random.Generator,
    *,
    probabilities: bool = True,
    greedy: bool = False,
    device: Any = "cpu",
    **options: Any,
) -> np.ndarray:
    """V1's ``rejection_sample`` in the style "block"; ``options`` are handed on, such as ``fly_window_size``.

    Without ``probabilities`` it is not told the drafts. Torch draws from a seed of ``rng``.
    """
    from vllm.v1.sample.rejection_sampler import rejection_sample  # pyright: ignore[reportMissingImports]

    from resispec_verify.adapters.torch_state import drawing_from

    arguments = v1_arguments(
        targets, drafts if probabilities else None, path, rng, greedy=greedy, device=device
    )
    with drawing_from(rng):
        return emitted_v1(rejection_sample(**arguments, **options))


def block_v2(
    targets: np.ndarray,
    drafts: np.ndarray,
    path: np.ndarray,
    rng: np.random.Generator,
    *,
    probabilities: bool = True,
    temperature: float = 1.0,
    device: Any = "cpu",
    **options: Any,
) -> np.ndarray:
    """V2's ``rejection_sample`` in the style "block", such as with ``use_block_verification=True``."""
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import (  # pyright: ignore[reportMissingImports]
        rejection_sample,
    )

    arguments = v2_arguments(
        targets, drafts if probabilities else None, path, rng, temperature=temperature, device=device
    )
    return emitted_v2(rejection_sample(**arguments, **options))


def supply_log1p() -> None:
    """``log(1 + x)`` for `libdevice.log1p`, which Triton's interpreter lacks.

    In the residual, ``p (1 - q / p)``, the difference is an ulp of float32.
    """
    import triton.language as tl  # pyright: ignore[reportMissingImports]
    from vllm.triton_utils import tldevice  # pyright: ignore[reportMissingImports]

    tldevice.log1p = lambda x: tl.log(1.0 + x)


def _draw(law: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One token of each law ``(rows, V)``, never one of probability 0."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (rng.random(len(law)) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)
