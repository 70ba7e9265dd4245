"""Logits to (target, draft) pairs: temperature, filters, and the proposal candidates are really drawn from.

The *declared* draft is what the verification rule divides by. The *proposal* is what the candidates were
sampled from. They are one distribution in a correct engine and two inputs here, equal unless said otherwise:
the most common public fault is that they differ.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from resispec_verify import inputs
from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.inputs import SUM_TOLERANCE, real, whole
from resispec_verify.kernels.elementwise.probabilities import filter_logits, softmax, temper

__all__ = ["Pair", "Sampling", "pair_from_logits", "pair_from_probabilities"]

_ELEMENTS = 1 << 19  # of a temporary: 4 MiB in float64


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from logits.

    Attributes
    ----------
    temperature : float
        ``>= 0``; 0 is the one-hot of the first argmax.
    top_k : int or None
        ``>= 1``; tokens tied with the k-th are kept.
    top_p, min_p : float or None
        In ``(0, 1]`` and ``[0, 1]``.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            if getattr(self, name) is not None or name == "temperature":
                real(name.replace("_", "-"), getattr(self, name))
        if self.top_k is not None:
            whole("top-k", self.top_k, 1)
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(f"temperature must be a finite number >= 0, got {self.temperature:g}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise InputError(f"top-p must be in (0, 1], got {self.top_p:g}")
        if self.min_p is not None and not 0.0 <= self.min_p <= 1.0:
            raise InputError(f"min-p must be in [0, 1], got {self.min_p:g}")

    def probabilities(self, logits: Array, *, dtype: Any) -> Array:
        """Probabilities ``(..., V)`` of logits ``(..., V)`` in the working precision ``dtype``.

        Raises
        ------
        InputError
            NaN, +inf or only -inf in a row, or something that is no array of numbers.
        """
        rows = inputs.logits(logits=logits)["logits"]
        return self.law_of(rows, dtype=_working(rows, dtype))

    def law_of(self, logits: Array, *, dtype: Any) -> Array:
        """`probabilities` of logits that are known to be right.

        NumPy's rows are taken a few at a time, so that their temporaries stay in the cache.
        """
        if is_numpy_array(logits) and logits.ndim == 2 and logits.size > _ELEMENTS:
            laws, step = np.empty(logits.shape, dtype), max(1, _ELEMENTS // logits.shape[1])
            for i in range(0, len(logits), step):
                laws[i : i + step] = self._law(logits[i : i + step], dtype)
            return laws
        return self._law(logits, dtype)

    def _law(self, logits: Array, dtype: Any) -> Array:
        tempered = temper(logits, self.temperature, dtype=dtype)
        return softmax(filter_logits(tempered, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p))

    def overridden(self, temperature: float | None, top_k: int | None, top_p: float | None) -> Sampling:
        """The same with the given fields replaced where they are not None."""
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return dataclasses.replace(self, **{k: v for k, v in given.items() if v is not None})


@dataclass(frozen=True)
class Pair:
    """Target, declared draft and true proposal at some positions.

    Attributes
    ----------
    target, draft : array (..., V)
        Probabilities, non-negative, each row summing to 1 up to rounding.
    proposal : array (..., V) or None
        What candidates are really drawn from; None means the declared draft.
    """

    target: Any
    draft: Any
    proposal: Any = None

    @property
    def drawn_from(self) -> Array:
        """The proposal, or the draft where they are the same."""
        return self.draft if self.proposal is None else self.proposal


def pair_from_logits(
    target: Array,
    draft: Array,
    *,
    sampling: Sampling,
    dtype: Any,
    proposal: Array = None,
    proposal_sampling: Sampling | None = None,
) -> Pair:
    """Make a pair from logits ``(..., V)``; the target and the declared draft share ``sampling``.

    Parameters
    ----------
    target, draft : array (..., V)
        Any floating type; -inf where a token is impossible.
    dtype : dtype
        Working precision, float32 or float64 of the arrays' library.
    proposal : array (..., V), optional
        Logits of the true proposal where it is another model's output.
    proposal_sampling : Sampling, optional
        How candidates are really drawn, where that differs from ``sampling``.

    Raises
    ------
    InputError
        Shapes, libraries or devices that differ; NaN, +inf or only -inf in a row.
    """
    for name, value in (("sampling", sampling), ("proposal_sampling", proposal_sampling)):
        if not isinstance(value, Sampling) and (value is not None or name == "sampling"):
            raise InputError(f"{name} must be a Sampling, such as Sampling(0.7); got {inputs.shown(value)}")
    rows = inputs.logits(target=target, draft=draft, proposal=proposal)
    return make_pair(
        rows["target"],
        rows["draft"],
        sampling=sampling,
        dtype=_working(rows["target"], dtype),
        proposal=rows.get("proposal"),
        proposal_sampling=proposal_sampling,
    )


def make_pair(
    target: Array,
    draft: Array,
    *,
    sampling: Sampling,
    dtype: Any,
    proposal: Array = None,
    proposal_sampling: Sampling | None = None,
) -> Pair:
    """`pair_from_logits` of logits that are known to be right: what a dump's reader has looked at."""
    drawn = None
    if proposal is not None or (proposal_sampling is not None and proposal_sampling != sampling):
        drawn = (proposal_sampling or sampling).law_of(draft if proposal is None else proposal, dtype=dtype)
    return Pair(sampling.law_of(target, dtype=dtype), sampling.law_of(draft, dtype=dtype), drawn)


def _working(rows: Array, dtype: Any) -> Any:
    """The working precision: a floating type of the library of the rows, or its name."""
    xp = array_namespace(rows)
    for name in ("float64", "float32"):
        if dtype == getattr(xp, name) or (isinstance(dtype, str) and dtype == name):
            return getattr(xp, name)
    raise InputError(
        f"dtype must be float64 or float32 of the library of the logits ({xp.__name__}), got "
        f"{inputs.shown(dtype)}"
    )


def pair_from_probabilities(target: Array, draft: Array, proposal: Array = None) -> Pair:
    """Make a pair from probabilities given by hand; checked, never renormalised.

    Raises
    ------
    InputError
        Lengths that differ, an empty vocabulary, a value that is negative or not finite, or a row whose sum
        is further than 1e-9 from 1.
    """
    given = inputs.arrays(target=target, draft=draft, proposal=proposal)
    rows = {name: to_numpy(row).astype(np.float64, copy=False) for name, row in given.items()}
    target, draft, proposal = rows["target"], rows["draft"], rows.get("proposal")
    for name, row in rows.items():
        if row.shape != target.shape:
            raise InputError(f"target has shape {target.shape} but {name} has {row.shape}; they must match")
        check_probabilities(row, name, SUM_TOLERANCE)
    return Pair(target, draft, proposal)


def check_probabilities(
    rows: np.ndarray, name: str, tolerance: float | np.ndarray, first_position: int | None = None
) -> None:
    """Raise `InputError` unless every row ``(..., V)`` is a distribution within ``tolerance``.

    There may be one tolerance a row. Errors name the position, counted from ``first_position`` if given.
    """

    def where(i: int) -> str:
        return name if first_position is None else f"{name}, position {first_position + i}"

    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise InputError(f"{name} has no tokens; give at least one probability")
    flat = rows.reshape(-1, rows.shape[-1])
    bad = ~(np.isfinite(flat) & (flat >= 0)).all(axis=-1)
    if bad.any():
        i = int(np.argmax(bad))
        x = int(np.argmax(~(np.isfinite(flat[i]) & (flat[i] >= 0))))
        raise InputError(
            f"{where(i)}: token {x} has probability {flat[i, x]:g}; "
            "probabilities must be finite and non-negative"
        )
    sums = flat.sum(axis=-1, dtype=np.float64)
    off = np.abs(sums - 1.0) > tolerance
    if off.any():
        i = int(np.argmax(off))
        raise InputError(
            f"{where(i)}: probabilities sum to {sums[i]:.12g}, not 1 "
            f"(tolerance {np.broadcast_to(tolerance, sums.shape)[i]:g}); give rows that do"
        )
