"""Torch's random functions on uniforms of a NumPy generator; see `uniforms`.

They are caught where torch dispatches them, below ``torch.distributions`` and all else that calls them: what
torch itself tags as random is served, or named as not served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from resispec_verify.sampler_check.generators import DIGITS, DrawLog, drawn_as

__all__ = ["seeded", "served"]

_RANDOM = torch.Tag.nondeterministic_seeded
_DTYPES = {getattr(torch, name): name for name in DIGITS}
# Random, without uniforms that could have ends.
_INTEGERS = ("randint", "randint_like", "randperm", "random_", "random", "randint_like_")
_SEEDING = ("manual_seed", "seed", "set_rng_state")


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Torch's generator of the CPU draws from a seed of ``rng``, and is put back."""
    before = torch.default_generator.get_state()
    torch.manual_seed(int(rng.integers(2**63)))
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def served(rng: np.random.Generator, dtype: str | None, log: DrawLog) -> Iterator[None]:
    """Torch's random functions draw from ``rng``."""
    mode = _Serving(rng, dtype, log)
    first = torch.initial_seed()
    replaced = [
        (module, name, getattr(module, name)) for module in (torch, torch.random) for name in _SEEDING
    ]
    try:
        for module, name, plain in replaced:
            setattr(module, name, mode.stopping(name, plain))
        with mode:
            yield
    finally:
        if mode.serving and torch.initial_seed() not in (first, mode.seed):
            mode.miss("torch, seeded inside")
        if mode.before is not None:
            torch.default_generator.set_state(mode.before)
        for module, name, plain in replaced:
            setattr(module, name, plain)


class _Serving(TorchDispatchMode):
    """Serves until torch is seeded."""

    def __init__(self, rng: np.random.Generator, dtype: str | None, log: DrawLog) -> None:
        super().__init__()
        self.rng, self.dtype, self.log = rng, dtype, log
        self.serving = True
        self.seed: int | None = None
        self.before: torch.Tensor | None = None  # torch's state, where it had to draw for itself
        self.scratch: dict[torch.device, torch.Generator] = {}
        self.known: dict[Any, tuple[bool, Any]] = {}

    def stopping(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A function that seeds torch: from there on its draws are its own."""

        def function(*arguments: Any, **options: Any) -> Any:
            self.miss(f"torch, after torch.{name}")
            self.serving = False
            return plain(*arguments, **options)

        return function

    def miss(self, name: str) -> None:
        """Remember what was not served."""
        if name not in self.log.not_served:
            self.log.not_served.append(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """One operation of torch."""
        kwargs = kwargs or {}
        found = self.known.get(func)
        if found is None:
            found = self.known[func] = _RANDOM in func.tags, _SERVED.get(str(func))
        is_random, function = found
        if not is_random or not self.serving:
            return func(*args, **kwargs)
        if function is not None:
            result = function(self, func, *args, **kwargs)
            if result is not NotImplemented:
                return result
        name = func._schema.name.removeprefix("aten::")
        if name not in _INTEGERS:
            self.miss(f"torch.{name}")
        if self.seed is None:
            self.before = torch.default_generator.get_state()
            self.seed = int(np.random.Generator.integers(self.rng, 2**63))
            torch.default_generator.manual_seed(self.seed)
        return func(*args, **kwargs)

    def uniforms(self, name: str, own: str, like: torch.Tensor) -> np.ndarray:
        """Uniforms in the shape of a tensor, of type ``own`` or of the coarser one that was asked for."""
        dtype = own if self.dtype is None or DIGITS[own] < DIGITS[self.dtype] else self.dtype
        return drawn_as(self.rng, f"torch.{name}", dtype, tuple(like.shape))

    def checked(self, func: Any, probabilities: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        """The result of the function itself, from nobody's generator: what it refuses, it refuses."""
        device = probabilities.device
        generator = self.scratch.setdefault(device, torch.Generator(device=device))
        return func(probabilities, *arguments, **{**options, "generator": generator})


def _put(result: torch.Tensor, values: np.ndarray) -> torch.Tensor:
    return result.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def _rand(
    mode: _Serving, func: Any, size: Any, *, out: Any = None, generator: Any = None, **options: Any
) -> Any:
    result = torch.empty(size, **options) if out is None else out.resize_(size)
    return _uniform(mode, func, result) if result.dtype in _DTYPES else NotImplemented


def _rand_like(
    mode: _Serving, func: Any, self: Any, *, out: Any = None, generator: Any = None, **options: Any
) -> Any:
    result = torch.empty_like(self, **options) if out is None else out.resize_(self.shape)
    return _uniform(mode, func, result) if result.dtype in _DTYPES else NotImplemented


def _uniform(
    mode: _Serving, func: Any, self: Any, low: Any = 0.0, high: Any = 1.0, *, generator: Any = None
) -> Any:
    """Computed as torch does, in float64 or in float32."""
    name = func._schema.name.removeprefix("aten::")
    found = mode.uniforms(name, _DTYPES[self.dtype], self)
    kind = np.float64 if self.dtype == torch.float64 else np.float32
    low, high = kind(low), kind(high)
    return _put(self, found.astype(kind) * (high - low) + low)


def _exponential(mode: _Serving, func: Any, self: Any, rate: float = 1.0, *, generator: Any = None) -> Any:
    return _put(self, _exponentials(mode, func, self, rate))


def _exponentials(mode: _Serving, func: Any, like: torch.Tensor, rate: float = 1.0) -> np.ndarray:
    found = -np.log1p(-mode.uniforms(func._schema.name.removeprefix("aten::"), "float64", like).astype(float))
    if like.device.type != "cpu":
        found = np.maximum(found, torch.finfo(torch.float32).eps / 2)
    return found / rate if math.isfinite(rate) else np.zeros_like(found)


def _multinomial(
    mode: _Serving, func: Any, self: Any, samples: int, replacement: bool = False, *, generator: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    checked = mode.checked(func, self, samples, replacement, **({} if out is None else {"out": out}))
    if not replacement or samples == 1:
        race = self / _put(torch.empty_like(self), _exponentials(mode, func, self))
        return checked.copy_(race.topk(samples, dim=-1)[1] if samples > 1 else race.argmax(-1, keepdim=True))
    if self.device.type != "cpu":
        return NotImplemented
    kind = np.float64 if self.dtype == torch.float64 else np.float32
    law = self.detach().to(torch.float64).numpy().astype(kind).reshape(-1, self.shape[-1])
    cumulative = np.add.accumulate(law, axis=-1)
    cumulative /= cumulative[:, -1:].copy()
    cumulative[:, -1] = 1.0
    wanted = mode.uniforms("multinomial", "float64", checked).reshape(len(law), samples)
    found = [np.searchsorted(row, u, side="left") for row, u in zip(cumulative, wanted, strict=True)]
    return checked.copy_(torch.from_numpy(np.stack(found)).reshape(checked.shape))


def _bernoulli(
    mode: _Serving, func: Any, self: Any, p: Any = None, *, generator: Any = None, out: Any = None
) -> Any:
    """``bernoulli(self)``, whose probabilities are ``self``, and ``bernoulli(self, p)``."""
    p = self if p is None else p
    return _below(mode, func, torch.empty_like(self) if out is None else out.resize_(self.shape), p)


def _bernoulli_(mode: _Serving, func: Any, self: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    return _below(mode, func, self, p)


def _below(mode: _Serving, func: Any, result: torch.Tensor, p: Any) -> torch.Tensor:
    given = p if isinstance(p, torch.Tensor) else torch.tensor(p, dtype=torch.float64)
    mode.checked(torch.ops.aten.bernoulli.default, given)
    own = "float32" if isinstance(p, torch.Tensor) and p.dtype != torch.float64 else "float64"
    found = torch.from_numpy(mode.uniforms("bernoulli", own, result)).to(result.device)
    return result.copy_(found < p)


_SERVED: dict[str, Callable[..., Any]] = {
    f"aten.{name}.{overload}": function
    for name, overloads, function in (
        ("rand", ("default", "generator", "out", "generator_out"), _rand),
        ("rand_like", ("default", "generator", "out", "generator_out"), _rand_like),
        ("uniform_", ("default",), _uniform),
        ("exponential_", ("default",), _exponential),
        ("multinomial", ("default", "out"), _multinomial),
        ("bernoulli", ("default", "p", "Tensor", "out"), _bernoulli),
        ("bernoulli_", ("float", "Tensor"), _bernoulli_),
    )
    for overload in overloads
}
