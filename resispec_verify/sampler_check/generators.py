"""A generator whose uniforms are often at an end, and which knows what was drawn from it.

What a generator gives is made of words of its bit generator. Here these come from a Mersenne twister whose
state is written so that its next words are those that are wanted: every method, `Generator.random` or an
exponential in C, then meets the ends as it would if they came by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["DIGITS", "DrawLog", "EndsGenerator", "drawn_as"]

#: Binary digits of a uniform of each type: they are multiples of ``2**-digits``, below 1.
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
# Methods of a generator that are made of uniforms, with the place of their `dtype` among the arguments.
# `choice` with probabilities calls `random`.
_METHODS: dict[str, int | None] = dict.fromkeys(
    (
        "uniform", "exponential", "gumbel", "multinomial", "binomial", "normal", "beta", "chisquare",
        "dirichlet", "f", "gamma", "geometric", "hypergeometric", "laplace", "logistic", "lognormal",
        "logseries", "negative_binomial", "noncentral_chisquare", "noncentral_f", "pareto", "poisson",
        "power", "rayleigh", "standard_cauchy", "standard_t", "triangular", "vonmises", "wald", "weibull",
        "zipf",
    )
) | {"random": 1, "standard_exponential": 1, "standard_normal": 1, "standard_gamma": 2}  # fmt: skip
_WORDS = 312  # of 64 bits, before the twister mixes its state
# A draw takes one word as a rule; how many it took is not asked.
_WORDS_A_DRAW = 4
# Integers below this are choices of a sampler; above, they are seeds.
_SEED = 1 << 16
_KEPT = 64


@dataclass
class DrawLog:
    """What was drawn from a generator and its children.

    Attributes
    ----------
    used : set of (method, dtype)
        Methods whose results are made of uniforms.
    seeds : bool
        Whether it gave what is likely a seed: an integer from a wide range, or bytes.
    not_served : list of str
        Functions that a context should have served from it and could not; see
        `resispec_verify.testing.served_from`.
    numbers : list of (method, dtype, values)
        The first results, for who wants to see the call again.
    placed : dict
        Which words were put at an end: ``(fill, word)`` to whether it is the high one, and the type. Not all
        of them need have been drawn.
    fills : int
        How often words were written.
    """

    used: set[tuple[str, str]] = field(default_factory=set)
    seeds: bool = False
    not_served: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str, list[float]]] = field(default_factory=list)
    kept: int = 0
    placed: dict[tuple[int, int], tuple[bool, str]] = field(default_factory=dict)
    fills: int = 0

    @property
    def dtypes(self) -> list[str]:
        """Types of the uniforms that were drawn, finest first."""
        return sorted({dtype for _, dtype in self.used}, key=lambda dtype: -DIGITS[dtype])

    def keep(self, method: str, dtype: str, values: Any) -> None:
        """Remember a result, if there is room."""
        if self.kept < _KEPT:
            some = np.ravel(values)[: _KEPT - self.kept].tolist()
            self.kept += max(1, len(some))
            self.numbers.append((method, dtype, some))


class EndsGenerator(np.random.Generator):
    """A generator whose uniforms are at an end now and then.

    Parameters
    ----------
    seed : SeedSequence or int
    ends : str
        "lowest": 0; "highest": the largest below 1; "both": either, by a fair coin.
    dtype : str or None
        Only uniforms of this type, a key of `DIGITS`; None: of every type.
    distance : int or None
        The last uniform below ``2**-distance``, and ``1 - 2**-distance``, instead of the ends: with all that
        are as near, a uniform is there with probability ``2**-distance``. One of `DIGITS` or more is the end.
    at : dict or None
        Just these words are at an end, of `DrawLog.placed` of a generator with the same seed; None: by coins.
        All other words are the same as there.
    share : float
        How often.
    """

    def __init__(
        self,
        seed: Any,
        ends: str,
        *,
        dtype: str | None = None,
        distance: int | None = None,
        at: dict[tuple[int, int], tuple[bool, str]] | None = None,
        share: float = 0.25,
    ) -> None:
        self._bits = np.random.MT19937(seed)
        super().__init__(self._bits)
        self.ends, self.dtype, self.distance, self.at, self.share = ends, dtype, distance, at, share
        self.log = DrawLog()
        self._words = np.random.Generator(np.random.PCG64(self._bits.seed_seq.spawn(1)[0]))  # type: ignore[union-attr]
        self._left, self._filled, self._taken = 0, "", False

    @property
    def bit_generator(self) -> Any:
        """Its words, for who draws from them; see `took_words`."""
        self._fill("float64")
        self._taken = True
        return self._bits

    @property
    def took_words(self) -> bool:
        """Whether words were drawn from `bit_generator`, past the methods."""
        return self._taken and self._bits.state["state"]["pos"] != 0

    def spawn(self, n_children: int) -> list[EndsGenerator]:
        """As `numpy.random.Generator.spawn`; children have the same ends, and one log with it."""
        seeds = self._bits.seed_seq.spawn(n_children)  # type: ignore[union-attr]
        given = {"dtype": self.dtype, "distance": self.distance, "at": self.at, "share": self.share}
        children = [EndsGenerator(seed, self.ends, **given) for seed in seeds]
        for child in children:
            child.log = self.log
        return children

    def integers(self, low: Any, high: Any = None, *arguments: Any, **options: Any) -> Any:
        """As `numpy.random.Generator.integers`; a wide range is a seed."""
        least, most = (0, low) if high is None else (low, high)
        if np.max(np.asarray(most, dtype=object) - np.asarray(least, dtype=object)) > _SEED:
            self.log.seeds = True
        return super().integers(low, high, *arguments, **options)

    def bytes(self, length: int) -> bytes:
        """As `numpy.random.Generator.bytes`: a seed."""
        self.log.seeds = True
        return super().bytes(length)

    def drawn(self, name: str, dtype: str, draw: Callable[[], Any]) -> Any:
        """What ``draw`` gives, which draws from our words, logged under a name and a type."""
        self.log.used.add((name, dtype))
        self._fill(dtype)
        result = draw()
        self._left -= _WORDS_A_DRAW * max(1, np.size(result))
        self.log.keep(name, dtype, result)
        return result

    def _fill(self, dtype: str) -> None:
        """Write the words to come."""
        which = dtype if self.dtype in (None, dtype) else "ordinary"
        if which == self._filled and self._left > _WORDS // 2:
            return
        key = self._words.integers(2**32, size=2 * _WORDS, dtype=np.uint32).reshape(_WORDS, 2)
        fill = self.log.fills
        self.log.fills += 1
        if which != "ordinary":
            for word, high in self._places(fill, dtype):
                half = word % 2
                # A float64 is made of both halves, a coarser uniform of one.
                wide = 2 if DIGITS[dtype] > 24 else 1
                key[word // 2, half : half + wide] = self._halves(dtype, high)[:wide]
                self.log.placed[fill, word] = high, dtype
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key.ravel(), "pos": 0}}
        self._left, self._filled, self._taken = _WORDS, which, False

    def _places(self, fill: int, dtype: str) -> list[tuple[int, bool]]:
        """Which words of 32 bits are put at an end, and whether at the high one."""
        coins = self._words.random(_WORDS)  # also where they do not count, so that other words stay the same
        if self.at is not None:
            return [(word, high) for (number, word), (high, _) in self.at.items() if number == fill]
        least = {"lowest": 1.0, "highest": 0.0, "both": 0.5}[self.ends] * self.share
        halves = (0,) if DIGITS[dtype] > 24 else (0, 1)
        return [
            (2 * int(i) + half, bool(coins[i] >= least))
            for i in np.flatnonzero(coins < self.share)
            for half in halves
        ]

    def _halves(self, dtype: str, high: bool) -> tuple[int, int]:
        """The state behind two words of 32 bits which make an end, or what is near it."""
        if self.distance is None or self.distance >= DIGITS[dtype]:
            word = (1 << 32) - 1 if high else 0
            return _before_tempering(word), _before_tempering(word)
        digits = max(DIGITS[dtype], 24)
        near = (1 << (digits - self.distance)) - 1
        value = (1 << digits) - 1 - near if high else near
        if digits == 24:
            return _before_tempering(value << 8), _before_tempering(value << 8)
        return _before_tempering(value >> 26 << 5), _before_tempering(value % (1 << 26) << 6)


def _logged(name: str, place: int | None) -> Callable[..., Any]:
    plain = getattr(np.random.Generator, name)

    def method(self: EndsGenerator, *arguments: Any, **options: Any) -> Any:
        given: Any = np.float64
        if place is not None:
            given = options.get("dtype", arguments[place] if len(arguments) > place else np.float64)
        return self.drawn(name, np.dtype(given).name, lambda: plain(self, *arguments, **options))

    method.__name__, method.__doc__ = name, f"As `numpy.random.Generator.{name}`, logged."
    return method


for _name, _place in _METHODS.items():
    setattr(EndsGenerator, _name, _logged(_name, _place))


def drawn_as(rng: np.random.Generator, name: str, dtype: str, size: Any) -> np.ndarray:
    """Uniforms of a type, for the function ``name`` of somebody's generator.

    Parameters
    ----------
    dtype : str
        A key of `DIGITS`. Those of 16 bits are multiples of their ``2**-digits``, as torch draws them.

    Returns
    -------
    float64 or float32 array ``size``
        Below 1.
    """
    kind = np.float64 if dtype == "float64" else np.float32

    def draw() -> Any:
        found = np.asarray(np.random.Generator.random(rng, size, dtype=kind))
        steps = kind(2.0 ** DIGITS[dtype])
        return found if DIGITS[dtype] >= 24 else np.floor(found * steps) / steps

    return rng.drawn(name, dtype, draw) if isinstance(rng, EndsGenerator) else draw()


def _before_tempering(word: int) -> int:
    """The word of the state of a Mersenne twister that comes out as ``word``."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    found = word
    for _ in range(4):
        found = word ^ (found << 7) & 0x9D2C5680
    word = found = found & 0xFFFFFFFF
    for _ in range(2):
        found = word ^ found >> 11
    return found
