"""A flat dump on a CUDA device: logits in their stored type, softmax, rounds or paths, and a few sums a row.

`benchmarks/gpu.py` uses this. No command does: they need bounds and verdicts, which `evidence.on_device`
gets from the same path kernels. See docs/reference/backends.md for what has been tested, and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.device import Device, shaped_marginals, softmax, specinfer_rounds
from resispec_verify.dumps import FlatDump
from resispec_verify.dumps.rows import rows_of
from resispec_verify.errors import InputError

__all__ = ["Replayed", "replay_dump"]

_MOST_PATHS = 5e7  # a row, where a gap may be left


class Replayed(NamedTuple):
    """Operational marginals by position, in the order of the dump.

    Attributes
    ----------
    tv : float64 (N,)
        ``1/2 sum |placed - target|``, of the placed mass as it is.
    acceptance : float64 (N, n)
        Placed probability that candidate ``i + 1`` is the one emitted.
    gap : float64 (N,)
        Mass not placed.
    """

    tv: np.ndarray
    acceptance: np.ndarray
    gap: np.ndarray


def replay_dump(
    dump: FlatDump,
    device: Device,
    rule: Literal["specinfer", "resispec"],
    candidates: int,
    *,
    temperature: float = 1.0,
    gap: float = 1e-3,
    batch: int = 16,
) -> Replayed:
    """Replay one rule over all positions; the rows of a batch are copied while the one before is computed.

    Parameters
    ----------
    device : Device
    candidates : int
        At most 16 for ``specinfer``, 1 to 3 for ``resispec``.
    temperature : float
        ``> 0``; no filters.
    gap : float
        Mass that ``resispec`` may leave unplaced; 0 follows every path.
    batch : int
        Positions at a time.

    Raises
    ------
    InputError
        Vocabularies of two widths, what the kernels cannot do, or logits that are not finite (file, key and
        position named).
    """
    if dump.pad:
        raise InputError(f"{dump.path}: vocabularies of two widths on the GPU; use --backend numpy")
    brain = tuple(rows.dtype.name == "bfloat16" for rows in (dump.target, dump.draft))
    found: list[tuple[np.ndarray, ...]] = []
    done = 0
    for rows in device.stage(_stored(dump, batch)):
        p, q = (
            softmax(device, part, temperature=temperature, bfloat16=bits)
            for part, bits in zip(rows, brain, strict=True)
        )
        placed, acceptance, left = _marginals(device, rule, p, q, candidates, gap)
        tv = 0.5 * device.xp.sum(device.xp.abs(placed - p), axis=-1)
        found.append(tuple(to_numpy(values) for values in (tv, acceptance, left)))
        bad = np.flatnonzero(~np.isfinite(found[-1][0]))
        if bad.size:  # a row that is not finite: the reader says which value
            dump.batch(done + int(bad[0]), done + int(bad[0]) + 1)
            raise InputError(f"{dump.path}: position {done + int(bad[0])} gave no finite marginal on the GPU")
        done += len(found[-1][0])
    return Replayed(*(np.concatenate(values) for values in zip(*found, strict=True)))


def _stored(dump: FlatDump, batch: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Target and draft logits as stored, the 2 bytes of bfloat16 as uint16, which CuPy has a name for."""
    for start in range(0, dump.positions, batch):
        stop = min(start + batch, dump.positions)
        parts = (np.ascontiguousarray(rows_of(rows, start, stop)) for rows in (dump.target, dump.draft))
        yield tuple(part.view(np.uint16) if part.dtype.name == "bfloat16" else part for part in parts)


def _marginals(
    device: Device, rule: str, p: Array, q: Array, candidates: int, gap: float
) -> tuple[Any, Any, Any]:
    if rule == "resispec":
        most = _MOST_PATHS if gap else np.inf
        sums = shaped_marginals(device, p, q, candidates, gap=gap, most_paths=most)
        return sums.mass, sums.acceptance, device.xp.sum(sums.unexpanded, axis=-1)
    placed, accepted = specinfer_rounds(device, p, q, candidates)
    return placed, accepted, device.xp.zeros(len(p))
