"""SGLang: the arguments of its chain sampler, from laws and a drafted path, and its result back.

Nothing is imported before a function is called; torch is needed then, and SGLang by `block_chain`. The kernel
is Triton's: it runs on a CUDA device, or on the CPU where ``TRITON_INTERPRET=1`` is set before its import.

Read in SGLang 0.5.23: ``chain_speculative_sampling_triton`` of
``sglang/kernels/ops/speculative/reject_sampling.py``, and its caller in ``srt/speculative/eagle_utils.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.errors import InputError

__all__ = ["block_chain", "chain_arguments", "emitted_chain"]


def chain_arguments(
    targets: np.ndarray,
    drafts: np.ndarray,
    path: np.ndarray,
    rng: np.random.Generator,
    *,
    device: Any = "cpu",
) -> dict[str, Any]:
    """Keyword arguments of ``chain_speculative_sampling_triton``; it draws nothing itself.

    Parameters
    ----------
    targets : float64 array (rows, L + 1, V)
    drafts : float64 array (rows, L, V)
    path : int64 array (rows, L)
        All of one length.
    rng : Generator
        Of the uniforms, float32 below 1.

    Returns
    -------
    dict
        With ``N = L + 1`` slots, the first for the token before the path: ``candidates`` int64 (rows, N);
        ``retrive_index``, ``retrive_next_token`` and ``retrive_next_sibling`` (spelled so) int64 (rows, N);
        ``uniform_samples`` float32 (rows, N) and ``uniform_samples_for_final_sampling`` (rows,);
        ``target_probs`` float32 (rows, N, V), ``draft_probs`` (rows, L, V); and what is filled in:
        ``predicts`` int32 (rows * N,), ``accept_index`` int32 (rows, N), ``accept_token_num`` int32 (rows,).

    Raises
    ------
    InputError
        A path that ends early: the kernel knows none.
    """
    import torch

    if (path < 0).any():
        raise InputError("SGLang's chain sampler takes paths of one length; leave out ragged ones")
    rows, length = path.shape
    slots = length + 1

    def tensor(array: np.ndarray, dtype: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(array), device=device).to(dtype)

    following = np.tile(np.append(np.arange(1, slots), -1), (rows, 1))
    return {
        "predicts": torch.full((rows * slots,), -1, dtype=torch.int32, device=device),
        "accept_index": torch.full((rows, slots), -1, dtype=torch.int32, device=device),
        "accept_token_num": torch.zeros(rows, dtype=torch.int32, device=device),
        "candidates": tensor(np.concatenate([np.zeros((rows, 1), np.int64), path], axis=1), torch.int64),
        "retrive_index": tensor(np.arange(rows * slots).reshape(rows, slots), torch.int64),
        "retrive_next_token": tensor(following, torch.int64),
        "retrive_next_sibling": torch.full((rows, slots), -1, dtype=torch.int64, device=device),
        "uniform_samples": tensor(rng.random((rows, slots), dtype=np.float32), torch.float32),
        "uniform_samples_for_final_sampling": tensor(rng.random(rows, dtype=np.float32), torch.float32),
        "target_probs": tensor(targets, torch.float32),
        "draft_probs": tensor(drafts, torch.float32),
        "threshold_single": 1.0,
        "threshold_acc": 1.0,
        "deterministic": True,
    }


def emitted_chain(arguments: dict[str, Any]) -> np.ndarray:
    """What the kernel filled in, as the style "block" wants it: int64 ``(rows, L + 1)``, -1 after the last.

    Accepted slots follow each other, and the prediction at a slot is the token after it.
    """
    index = arguments["accept_index"].cpu().numpy()
    predicts = arguments["predicts"].cpu().numpy().astype(np.int64)
    count = arguments["accept_token_num"].cpu().numpy() + 1
    there = np.arange(index.shape[1]) < count[:, None]
    return np.where(there, predicts[np.maximum(index, 0)], -1)


def block_chain(
    targets: np.ndarray,
    drafts: np.ndarray,
    path: np.ndarray,
    rng: np.random.Generator,
    *,
    block_verification: bool = False,
    device: Any = "cpu",
) -> np.ndarray:
    """The chain sampler in the style "block"; token by token, or with block verification."""
    from sglang.kernels.ops.speculative.reject_sampling import (  # pyright: ignore[reportMissingImports]
        chain_speculative_sampling_triton,
    )

    arguments = chain_arguments(targets, drafts, path, rng, device=device)
    chain_speculative_sampling_triton(**arguments, block_verification=block_verification)
    return emitted_chain(arguments)
