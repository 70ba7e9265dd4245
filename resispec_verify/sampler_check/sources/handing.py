"""How laws are handed to a sampler: as what, in which precision, and as whose arrays."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.backends import Backend, get_backend, to_numpy
from resispec_verify.errors import InputError
from resispec_verify.sampler_check.calls import Caller

__all__ = ["ARRAYS", "DTYPES", "GIVE", "PLAIN", "Copies", "Handing"]

GIVE = ("probabilities", "logits", "log-probabilities")
DTYPES = ("float64", "float32", "float16")
ARRAYS = ("numpy", "torch", "torch:cuda", "cupy")
# Standard deviation of what is added to each row of logits, which need not be normalised.
_SHIFT = 2.0


@dataclass(frozen=True)
class Handing:
    """How laws, tokens and uniforms are handed over.

    Attributes
    ----------
    give : {"probabilities", "logits", "log-probabilities"}
        Logits have a constant added to each row. Zeros become minus infinity.
    dtype : {"float64", "float32", "float16"}
    arrays : {"numpy", "torch", "torch:cuda", "cupy"}
    uniforms : bool
        Hand in uniforms in place of the generator.

    Raises
    ------
    InputError
        The library of the arrays is not there, or has no device.
    """

    give: str = "probabilities"
    dtype: str = "float64"
    arrays: str = "numpy"
    uniforms: bool = False
    backend: Backend = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", _library(self.arrays))

    def laws(self, laws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is handed over for some laws, and the laws that these numbers are.

        Parameters
        ----------
        laws : float64 array (..., V)

        Returns
        -------
        given : array (..., V)
            Of the dtype asked for.
        laws : float64 array (..., V)
            Computed from ``given`` in float64, so that rounding is no fault of the sampler's. The same array
            where nothing is rounded.
        """
        if self.give == "probabilities":
            if self.dtype == "float64":
                return laws, laws
            given = laws.astype(self.dtype)
            weights = given.astype(np.float64)
        else:
            with np.errstate(divide="ignore"):
                logs = np.log(laws)
            if self.give == "logits":
                rng = np.random.default_rng(zlib.crc32(laws.tobytes()))
                logs += rng.normal(0.0, _SHIFT, (*laws.shape[:-1], 1))
            given = logs.astype(self.dtype)
            exact = given.astype(np.float64)
            top = exact.max(axis=-1, keepdims=True)
            weights = np.exp(exact - np.where(np.isfinite(top), top, 0.0))
        # Rows of zeros, after reserved tokens that never come, stay what they are.
        total = weights.sum(axis=-1, keepdims=True)
        return given, weights / np.where(total > 0, total, 1.0)

    def array(self, values: np.ndarray) -> Any:
        """An array of the library, on its device; it may share the memory of ``values``."""
        return self.backend.asarray(values)

    def coins(self, rng: np.random.Generator, rows: int, candidates: int) -> dict[str, np.ndarray]:
        """Uniforms ``(rows, candidates + 1)`` below 1, by name; nothing where ``rng`` is handed in itself.

        One for the test of each candidate, and the last for the draw after it. At the dtype of the laws,
        but at least float32: on the grid of float16 uniforms, 2**-11 apart, no sampler has the law of
        probabilities that are smaller.
        """
        if not self.uniforms:
            return {}
        dtype = np.float64 if self.dtype == "float64" else np.float32
        return {"uniforms": rng.random((rows, candidates + 1), dtype=dtype)}

    def call(
        self, caller: Caller, given: Mapping[str, np.ndarray], rng: np.random.Generator,
        before: Sequence[Any] = (), after: Sequence[Any] = (),
    ) -> Any:  # fmt: skip
        """Call with copies of the arrays, and with ``rng`` unless uniforms are among them; note what was
        written.

        Parameters
        ----------
        before, after : sequence
            Arguments around the arrays that are looked after elsewhere.
        """
        held = {name: self.array(values.copy()) for name, values in given.items()}
        last = () if "uniforms" in given else (rng,)
        result = caller.call(*before, *held.values(), *after, *last)
        for name, values in given.items():
            if not np.array_equal(values, to_numpy(held[name])):
                caller.note(f"writes into its input {name}")
        return result


class Copies:
    """The laws of calls: copies of rows, made again where the sampler wrote into them."""

    def __init__(self, handing: Handing, **rows: np.ndarray) -> None:
        self.handing, self.rows = handing, rows
        self.given: dict[str, Any] = {}
        self._one = {name: handing.array(row) for name, row in rows.items()}

    def arrays(self, rows: int) -> list[Any]:
        """Writable copies of each row, ``(rows, V)``."""
        for name, row in self.rows.items():
            held = self.given.get(name)
            if held is None or len(held) < rows:
                self.given[name] = self.handing.array(np.tile(row, (rows, 1)))
        return [self.given[name][:rows] for name in self.rows]

    def check(self, caller: Caller, rows: int) -> None:
        """Note what was written, and restore it.

        A comparison, and no product with weights: above some 10,000 entries BLAS starts threads for one,
        which on a busy machine cost milliseconds a call.
        """
        for name in self.rows:
            if not (self.given[name][:rows] == self._one[name]).all():
                caller.note(f"writes into its input {name}")
                del self.given[name]


def _library(arrays: str) -> Backend:
    if arrays != "torch:cuda":
        try:
            return get_backend(arrays)
        except InputError as error:
            raise InputError(str(error).replace("--backend", "--arrays")) from None
    _library("torch")
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise InputError("--arrays torch:cuda: torch finds no CUDA device; use --arrays torch")
    return Backend("torch", importlib.import_module("array_api_compat.torch"), "cuda")


#: Probabilities in float64, as NumPy's arrays.
PLAIN = Handing()
