"""Serve the global generators of torch, NumPy and ``random`` from one generator.

A sampler that draws by ``torch.rand`` gets a seed from `check` and nothing else, so that its uniforms cannot
be put at their ends. Within `served_from` they come from the generator that `check` hands it.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.sampler_check.generators import DIGITS, DrawLog, EndsGenerator, drawn_as

__all__ = ["served_from"]

LIBRARIES = ("torch", "numpy", "random")
# Functions of NumPy's global generator that give integers or an order: no uniform of theirs has an end.
_INTEGERS = ("randint", "random_integers", "tomaxint", "bytes", "permutation", "shuffle")
_STATE = ("seed", "set_state", "get_state")
_PLAIN_UNIFORMS = ("random", "random_sample", "ranf", "sample", "rand")


class _Block:
    """An open block: whose it is, and what puts the functions back."""

    def __init__(self, thread: threading.Thread, back: ExitStack) -> None:
        self.thread, self.back, self.left = thread, back, False


# Open blocks, the inner ones last. Each puts back what it found, so that they must go from the last on.
_BLOCKS: list[_Block] = []
_LOCK = threading.RLock()


@contextmanager
def served_from(
    rng: np.random.Generator,
    dtype: str | None = None,
    *,
    ordinary: str = "serve",
    libraries: Sequence[str] | None = None,
) -> Iterator[list[str]]:
    """Serve the global generators of torch, NumPy and ``random`` from ``rng``, for the time of the block.

    Parameters
    ----------
    rng : numpy.random.Generator
        Such as a sampler gets from `check`.
    dtype : {"float64", "float32", "float16", "bfloat16"}, optional
        The finest type of uniform: what has a finer one of its own is drawn at this one. Default: each
        function's own; torch's that of the tensor, NumPy's and ``random``'s float64.
    ordinary : {"serve", "seed"}
        What a generator does that is not one of `check`'s with uniforms at their ends. "seed": the global
        generators are seeded from it, draw for themselves, and are put back, so that all other tests see
        the engine's own draws: a generator that is made anew with one seed is caught only so. A seed for
        every block comes from ``rng``.
    libraries : sequence of {"torch", "numpy", "random"}, optional
        Default: all, torch where it is imported already; naming it imports it.

    Yields
    ------
    list of str
        Names of what was called and not served; `check` reports them.

    Raises
    ------
    InputError
        Arguments that make no sense; a block of another thread is open.
    NotImplementedError
        In the block: a function of NumPy that has no uniforms of the coarser ``dtype``.

    Notes
    -----
    Uniforms are multiples of ``2**-53``, ``2**-24`` (float32), ``2**-11`` (float16) or ``2**-8`` (bfloat16),
    from 0 on, always below 1. Every function makes of them what its library makes of them on the CPU, torch
    as release 2.13 does:

    - ``rand``, ``rand_like``, ``uniform_``: the uniforms. ``bernoulli``: ``u < p``, with u a float64 if p is
      one or a Python number, else a float32.
    - ``exponential_``: ``-log1p(-u)`` of a float64 u, whatever the tensor's type. On the CPU that is 0 once
      in ``2**53`` draws (in float16 it underflows once in ``2**25``). Torch's CUDA kernels never give 0, and
      for tensors on a device none is served.
    - ``multinomial``, one sample or no replacement: the largest of ``p / exponential``, so that a token of
      p = 0 is drawn where its exponential is 0. Else: the first token whose cumulative probability is not
      below a float64 u, so that token 0 is drawn at u = 0, whatever its probability; not served on a device.
    - What is made of these is served with them, such as ``torch.distributions`` and ``gumbel_softmax``; also
      where a ``torch.Generator`` is passed, which is then not drawn from.
    - NumPy's global functions: all, as `numpy.random.RandomState` over the words of ``rng``. ``random``: all
      functions of the module.

    Integers and permutations have no ends: torch draws them itself, from a seed of ``rng``.

    Not served, and named in what is yielded: torch's other random functions (``randn``, ``poisson``,
    dropout), which draw from a seed of ``rng``; a library from the moment on at which it is seeded in the
    block; functions of NumPy and ``random`` that were imported by their own name before the block; a torch
    that is first imported in it.

    Never served, and not seen: generators of one's own (``random.Random(seed)``,
    ``numpy.random.default_rng(seed)``), code compiled by ``torch.compile``, and torch in other threads than
    the one that entered. NumPy and ``random`` are served in all threads, for they are one for all; so while a
    block is open no other thread may enter one. Blocks of one thread may be nested: the inner one serves.
    However a block is left, the functions are put back as they were; one that is left before a block inside
    of it, as by generators that are closed out of order, is put back with that one.
    """
    chosen = _libraries(rng, dtype, ordinary, libraries)
    log = rng.log if isinstance(rng, EndsGenerator) else DrawLog()
    before = "torch" in sys.modules
    block = _entered(chosen, rng, dtype, log, ordinary)
    try:
        yield log.not_served
    finally:
        _leave(block)
    if libraries is None and not before and "torch" in sys.modules:
        _miss(log, "torch, first imported inside")


def _entered(
    chosen: list[str], rng: np.random.Generator, dtype: str | None, log: DrawLog, ordinary: str
) -> _Block:
    seeding = ordinary == "seed" and not isinstance(rng, EndsGenerator)
    with _LOCK, ExitStack() as stack:
        here = threading.current_thread()
        if _BLOCKS and _BLOCKS[-1].thread is not here:
            raise InputError(
                f"served_from is open in another thread, {_BLOCKS[-1].thread.name!r}, and what it replaces "
                "is one for all threads; enter it in one thread at a time, or once around all of them"
            )
        for library in chosen:
            stack.enter_context(_context(library, rng, dtype, log, seeding))
        _BLOCKS.append(_Block(here, stack.pop_all()))
        return _BLOCKS[-1]


def _leave(block: _Block) -> None:
    """Put back what this block replaced, as soon as no block inside of it is open."""
    with _LOCK:
        block.left = True
        while _BLOCKS and _BLOCKS[-1].left:
            _BLOCKS.pop().back.close()


def _libraries(rng: Any, dtype: Any, ordinary: Any, libraries: Any) -> list[str]:
    if not isinstance(rng, np.random.Generator):
        raise InputError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    if dtype is not None and dtype not in DIGITS:
        raise InputError(f"dtype must be one of {', '.join(DIGITS)}, got {dtype!r}")
    if ordinary not in ("serve", "seed"):
        raise InputError(f"ordinary must be 'serve' or 'seed', got {ordinary!r}")
    if libraries is None:
        return [name for name in LIBRARIES if name != "torch" or "torch" in sys.modules]
    if isinstance(libraries, str) or (wrong := [name for name in libraries if name not in LIBRARIES]):
        found = libraries if isinstance(libraries, str) else wrong[0]
        raise InputError(f"libraries must be a list of {', '.join(LIBRARIES)}; got {found!r}")
    return list(libraries)


def _context(
    library: str, rng: np.random.Generator, dtype: str | None, log: DrawLog, seeding: bool
) -> AbstractContextManager[Any]:
    if library == "torch":
        from resispec_verify.testing import torch_uniforms

        return torch_uniforms.seeded(rng) if seeding else torch_uniforms.served(rng, dtype, log)
    if library == "numpy":
        return _numpy_seeded(rng) if seeding else _numpy_served(rng, dtype, log)
    return _random_seeded(rng) if seeding else _random_served(rng, dtype, log)


def _miss(log: DrawLog, name: str) -> None:
    if name not in log.not_served:
        log.not_served.append(name)


@contextmanager
def _replaced(owner: Any, replacements: dict[str, Any]) -> Iterator[None]:
    """Attributes of a module or an object, put back as they were."""
    before = {name: vars(owner)[name] for name in replacements if name in vars(owner)}
    for name, value in replacements.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in replacements:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


# NumPy


def _numpy_state() -> str:
    """What moves when NumPy's own global generator is drawn from."""
    state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    return f"{state[1].tobytes()} {state[2:]}"


@contextmanager
def _numpy_seeded(rng: np.random.Generator) -> Iterator[None]:
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _numpy_served(rng: np.random.Generator, dtype: str | None, log: DrawLog) -> Iterator[None]:
    serving = [True]
    words = np.random.RandomState(rng._bits if isinstance(rng, EndsGenerator) else rng.bit_generator)
    coarse = None if dtype in (None, "float64") else dtype
    originals = {
        name: getattr(np.random, name)
        for name in dir(words)
        if not name.startswith("_") and name not in _STATE and callable(getattr(np.random, name, None))
    } | {name: getattr(np.random, name) for name in ("ranf", "sample")}

    def replacement(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def function(*arguments: Any, **options: Any) -> Any:
            if not serving[0]:
                return plain(*arguments, **options)
            own = getattr(words, "random_sample" if name in ("ranf", "sample") else name)
            weights = len(arguments) > 3 or options.get("p") is not None
            if name in _INTEGERS or (name == "choice" and not weights):
                return own(*arguments, **options)
            if coarse is not None:
                return _coarse(rng, name, coarse, arguments, options)
            if not isinstance(rng, EndsGenerator):
                return own(*arguments, **options)
            return rng.drawn(f"np.random.{name}", "float64", lambda: own(*arguments, **options))

        return function

    def stopping(name: str) -> Callable[..., Any]:
        plain = getattr(np.random, name)

        def function(*arguments: Any, **options: Any) -> Any:
            _miss(log, f"np.random, after np.random.{name}")
            serving[0] = False
            return plain(*arguments, **options)

        return function

    replacements = {name: replacement(name, plain) for name, plain in originals.items()}
    replacements |= {name: stopping(name) for name in ("seed", "set_state")}
    before = _numpy_state()
    try:
        with _replaced(np.random, replacements):
            yield
    finally:
        if serving[0] and _numpy_state() != before:
            _miss(log, "functions of np.random that were imported by name")


def _coarse(rng: np.random.Generator, name: str, dtype: str, arguments: tuple, options: dict) -> Any:
    """The functions that give uniforms, at a type that NumPy's global generator does not have."""
    if name == "uniform":
        low, high, size = [*arguments, *(0.0, 1.0, None)[len(arguments) :]]
        low, high, size = options.get("low", low), options.get("high", high), options.get("size", size)
        shape = np.broadcast(low, high).shape if size is None else size
        found = low + (np.asarray(high) - low) * drawn_as(rng, f"np.random.{name}", dtype, shape)
    elif name in _PLAIN_UNIFORMS:
        given = (arguments or None) if name == "rand" else (*arguments, options.get("size"))[0]
        found = drawn_as(rng, f"np.random.{name}", dtype, given).astype(np.float64)
    else:
        raise NotImplementedError(
            f"np.random.{name} cannot be served at {dtype}; leave out dtype, or draw by np.random.random"
        )
    return found if np.ndim(found) else float(found)


# random


@contextmanager
def _random_seeded(rng: np.random.Generator) -> Iterator[None]:
    before = random.getstate()
    random.seed(int(rng.integers(2**63)))
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _random_served(rng: np.random.Generator, dtype: str | None, log: DrawLog) -> Iterator[None]:
    """All functions of the module are methods of one instance, on its ``random`` and ``getrandbits``."""
    inst: Any = random._inst  # type: ignore[attr-defined]
    own_random, own_bits, own_gauss = inst.random, inst.getrandbits, inst.gauss_next
    serving = [True]

    def served_random() -> float:
        if not serving[0]:
            return own_random()
        return float(drawn_as(rng, "random.random", dtype or "float64", None))

    def served_bits(k: int) -> int:
        if not serving[0] or k <= 0:
            return own_bits(k)
        log.seeds |= k > 16
        octets = np.random.Generator.bytes(rng, -(-k // 8))
        return int.from_bytes(octets, "little") >> (-k % 8)

    def stopping(name: str) -> Callable[..., Any]:
        plain = getattr(random, name)

        def function(*arguments: Any, **options: Any) -> Any:
            _miss(log, f"random, after random.{name}")
            serving[0] = False
            return plain(*arguments, **options)

        return function

    replacements = {"random": served_random, "getrandbits": served_bits}
    stops = {name: stopping(name) for name in ("seed", "setstate")}
    inst.gauss_next = None
    before = inst.getstate()
    try:
        with _replaced(random, replacements | stops), _replaced(inst, replacements):
            yield
    finally:
        if serving[0] and inst.getstate()[1] != before[1]:
            _miss(log, "functions of random that were imported by name")
        inst.gauss_next = own_gauss
