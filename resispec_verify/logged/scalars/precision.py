"""How precisely numbers of a log were written, told from the numbers themselves.

A log that was rounded to four decimals cannot say what the engine compared. The coarsest of these that holds
*all* numbers of a column so far is taken for what they were rounded to: bfloat16, float16, a number of
decimals up to 8, a number of significant digits up to 7. float32 is what a probability has at best.
Few numbers may lie on a coarse grid by chance; then the band is too wide, and less is decided, never more.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # type: ignore[import]
import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.logged.rounds_input import half_ulp

__all__ = ["Precision"]

_TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
_DECIMALS, _DIGITS = 8, 7
#: Half a unit in the last place of float32, relative.
FLOAT32 = 2.0**-24
# A decimal number that was parsed is within half of this of the decimal, and so is its rounding.
_EXACT = 4 * np.finfo(np.float64).eps


@dataclass
class Precision:
    """Of one column.

    Parameters
    ----------
    given : str or None
        "float32", "float16", "bfloat16" or a number of decimals, instead of what the numbers say.
    """

    given: str | None = None
    _seen: bool = False
    _decimals: int = 1
    _digits: int = 1

    def __post_init__(self) -> None:
        self._types = dict.fromkeys(_TYPES, True)
        if self.given is not None and self.given not in (*_TYPES, "float32") and not _is_decimals(self.given):
            raise InputError(
                "--precision must be float32, float16, bfloat16 or a number of decimals in 1..15, "
                f"got {self.given!r}"
            )

    def see(self, values: np.ndarray) -> None:
        """Learn from more values ``(n,)``; NaN, 0 and 1 say nothing."""
        values = np.unique(values[(values != 0) & (values != 1) & np.isfinite(values)])
        if self.given is not None or not len(values):
            return
        self._seen = True
        for name, kind in _TYPES.items():
            if self._types[name]:
                self._types[name] = bool(np.array_equal(values.astype(kind).astype(np.float64), values))
        size = np.abs(values)
        while self._decimals <= _DECIMALS and not _close(np.round(size, self._decimals), size):
            self._decimals += 1
        while self._digits <= _DIGITS and not _close(_to_digits(size, self._digits), size):
            self._digits += 1

    def _fits(self) -> list[str]:
        """All that the numbers lie on."""
        if self.given is not None:
            return [f"{self.given} decimals" if _is_decimals(self.given) else self.given]
        if not self._seen:
            return ["exact"]
        kinds = [name for name in _TYPES if self._types[name]]
        decimals = [f"{self._decimals} decimals"] if self._decimals <= _DECIMALS else []
        digits = [f"{self._digits} digits"] if self._digits <= _DIGITS else []
        return [*kinds, *decimals, *digits] or ["float32"]

    @property
    def name(self) -> str:
        """What the numbers were rounded to: the coarsest, at one half, that they lie on."""
        return max(self._fits(), key=lambda kind: float(_half(kind, np.asarray([0.5]))[0]))

    def half(self, values: np.ndarray) -> np.ndarray:
        """The most that writing has moved each value ``(n,)``: half a unit of its last place.

        The widest of all that the numbers lie on: 0.25, 0.5 and 0.75 are of any type, and of two decimals.
        """
        return np.max([_half(kind, values) for kind in self._fits()], axis=0)

    def bits(self) -> float:
        """Bits of a uniform: one value comes with probability ``2^-bits`` at most."""
        fixed = {"bfloat16": 8.0, "float16": 11.0, "float32": 23.0, "exact": 0.0}
        return min(
            fixed[kind] if kind in fixed else min(23.0, int(kind.split()[0]) * float(np.log2(10.0)))
            for kind in self._fits()
        )


def _half(kind: str, values: np.ndarray) -> np.ndarray:
    if kind in _TYPES:
        return half_ulp(values, _TYPES[kind])
    floor = FLOAT32 * np.abs(values)
    if kind.endswith("decimals"):
        return np.maximum(floor, 0.5 * 10.0 ** -int(kind.split()[0]))
    if kind.endswith("digits"):
        return np.maximum(floor, 0.5 * 10.0 ** (_exponent(np.abs(values)) + 1 - int(kind.split()[0])))
    return floor if kind == "float32" else np.zeros_like(values)


def _is_decimals(text: str) -> bool:
    return text.isdecimal() and 1 <= int(text) <= 15


def _close(rounded: np.ndarray, values: np.ndarray) -> bool:
    return bool((np.abs(rounded - values) <= _EXACT * values).all())


def _exponent(values: np.ndarray) -> np.ndarray:
    """Of ten, of the first digit."""
    with np.errstate(divide="ignore"):
        found = np.floor(np.log10(values) + 1e-12)
    return np.where(np.isfinite(found), found, -300.0)


def _to_digits(values: np.ndarray, digits: int) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = 10.0 ** (digits - 1 - _exponent(values))
        rounded = np.round(values * scale) / scale
    return np.where(np.isfinite(rounded), rounded, values)
