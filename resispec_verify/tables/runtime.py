"""What one rejection costs: ResiSpec's GetProxy in three parts, beside what every rule has to do.

The parts are those of the ResiSpec paper's Figure 3, for Algorithm 1 as printed: budgeting (lines 18-20: the
budget Z, and what clipping at R leaves of it), redistribution (line 21), proxy formulation (lines 22-23).
They are written here one by one because `kernels.residuals` does them in one go; a test holds the two equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import Backend
from resispec_verify.distributions import Sampling, make_pair
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules import ResiSpec, SpecInfer
from resispec_verify.tables.row import label

__all__ = ["Timing", "budgeting", "formulation", "redistribution", "time_steps"]

RESISPEC = ("budgeting", "redistribution", "proxy formulation")


@dataclass(frozen=True)
class Timing:
    """Times of one phase.

    Attributes
    ----------
    phase : str
    belongs_to : str
        "every rule", or the rule whose work it is.
    microseconds : list of float
        One an evaluation.
    """

    phase: str
    belongs_to: str
    microseconds: list[float]

    def result(self, whole: float) -> dict[str, Any]:
        """Median and quartiles in microseconds; ``share`` of ``whole`` for the parts of GetProxy."""
        low, median, high = np.quantile(self.microseconds, (0.25, 0.5, 0.75)).tolist()
        return {
            "phase": self.phase,
            "belongs_to": self.belongs_to,
            "median_us": median,
            "quartiles_us": [low, high],
            "share": median / whole if self.phase in RESISPEC else None,
        }


def budgeting(current: Array, draft: Array, rejected: int) -> tuple[Any, Any]:
    """``r = min(Z q, R)`` off the rejected token, with ``Z = |q(x0) - R(x0)|``, and what clipping leaves.

    Parameters
    ----------
    current, draft : array (V,)
        R and q.
    rejected : int
        x0.

    Returns
    -------
    r : array (V,)
    Delta : array ()
        ``Z - sum r``.
    """
    xp = array_namespace(current, draft)
    off = xp.arange(current.shape[-1], device=current.device) != rejected
    Z = xp.abs(draft[rejected] - current[rejected])
    Z = xp.minimum(Z, xp.sum(xp.where(off, current, 0.0)))
    r = xp.where(off, xp.minimum(Z * draft, current), 0.0)
    return r, xp.clip(Z - xp.sum(r), 0.0, None)


def redistribution(current: Array, r: Array, Delta: Array, rejected: int) -> Any:
    """Delta spread over what is left of R, ``R - r``, in proportion; the new r ``(V,)``."""
    xp = array_namespace(current, r)
    off = xp.arange(current.shape[-1], device=current.device) != rejected
    capacity = xp.where(off, current - r, 0.0)
    room = xp.sum(capacity)
    share = xp.where(room > 0, Delta / xp.where(room > 0, room, 1.0), 0.0)
    return r + xp.clip(share, None, 1.0) * capacity


def formulation(current: Array, draft: Array, r: Array, rejected: int) -> Any:
    """``k = R - r + s`` with ``k(x0) = q(x0)``, and ``norm((R - k)_+)``: k and the residual, ``(V,)``."""
    xp = array_namespace(current, draft, r)
    here = xp.arange(current.shape[-1], device=current.device) == rejected
    k = xp.where(here, draft, current - r)
    return k, normalize(xp.clip(current - k, 0.0, None), current)


def time_steps(
    target: np.ndarray,
    draft: np.ndarray,
    *,
    backend: Backend,
    precision: str = "float64",
    temperature: float = 1.0,
    repeats: int = 50,
) -> list[Timing]:
    """Time the phases of one step at one position, each ``repeats`` times, interleaved.

    Parameters
    ----------
    target, draft : array (V,)
        Logits, any float type.
    backend : Backend
        Where the arrays live; a GPU is waited for before the clock is read.
    precision : {"float64", "float32"}
    repeats : int
        Besides two that are not counted.

    Returns
    -------
    list of Timing
        Softmax of both rows; SpecInfer's round (accept, residual); the parts of GetProxy; all of ResiSpec's
        rejection as the package does it. Where no token can be rejected, of token 0.
    """
    dtype = getattr(backend.xp, precision)
    rows = [backend.asarray(np.ascontiguousarray(row)[None, :]) for row in (target, draft)]
    sampling = Sampling(temperature)

    def softmax() -> Any:
        return make_pair(*rows, sampling=sampling, dtype=dtype)

    work = _phases(softmax)
    timings = [Timing(phase, owner, []) for phase, owner, _ in work]
    wait = _waiter(backend)
    for turn in range(repeats + 2):
        for timing, (_, _, phase) in zip(timings, work, strict=True):
            wait()
            begin = time.perf_counter()
            phase()
            wait()
            if turn >= 2:  # the first two compile kernels and fill caches
                timing.microseconds.append(1e6 * (time.perf_counter() - begin))
    return timings


def _phases(softmax: Callable[[], Any]) -> list[tuple[str, str, Callable[[], Any]]]:
    """What is timed: its name, whose work it is, and the work."""
    pair = softmax()
    p, q = pair.target[0, :], pair.draft[0, :]
    xp = array_namespace(p)
    rejected = int(xp.argmax(q - p))
    token = xp.asarray([rejected], dtype=xp.int64, device=p.device)
    specinfer, resispec = SpecInfer(), ResiSpec()
    start = specinfer.start(pair.target, pair.draft, 2)
    shaped = resispec.start(p, q, 2)
    r, Delta = budgeting(p, q, rejected)
    spread = redistribution(p, r, Delta, rejected)
    return [
        ("softmax of target and draft", "every rule", softmax),
        ("acceptance of all tokens", "every rule", lambda: specinfer.accept(start)),
        ("residual", label(specinfer), lambda: specinfer.reject(start, None)),
        (RESISPEC[0], label(resispec), lambda: budgeting(p, q, rejected)),
        (RESISPEC[1], label(resispec), lambda: redistribution(p, r, Delta, rejected)),
        (RESISPEC[2], label(resispec), lambda: formulation(p, q, spread, rejected)),
        ("residual, as the package does it", label(resispec), lambda: resispec.reject(shaped, token)),
    ]


def _waiter(backend: Backend) -> Callable[[], Any]:
    """What waits until the device is done; the CPU always is."""
    if backend.name == "cupy":
        import cupy  # type: ignore[import-not-found]

        return cupy.cuda.get_current_stream().synchronize
    return lambda: None


def results(timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """The rows of ``"results"``."""
    whole = sum(float(np.median(t.microseconds)) for t in timings if t.phase in RESISPEC)
    return [timing.result(whole) for timing in timings]
