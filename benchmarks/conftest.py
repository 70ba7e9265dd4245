"""Options of the benchmarks, and the two fixtures that time: ratios in turns, and points of growth curves."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump

ROUNDS = 9


class Rows(NamedTuple):
    """A dump: logits as stored and probabilities in float64, ``(N, V)``."""

    path: Path
    target_logits: np.ndarray
    draft_logits: np.ndarray
    p: np.ndarray
    q: np.ndarray


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that `run.py` passes on."""
    parser.addoption("--dump", type=Path, required=True, help="flat dump of target and draft logits")
    parser.addoption("--quick", action="store_true", help="one round and small sizes: does it run?")


@pytest.fixture(scope="session")
def quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--quick"))


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest, quick: bool) -> Rows:
    """The first 128 positions of the dump, or the first 4."""
    path = Path(str(request.config.getoption("--dump"))).resolve()
    dump = open_dump(path)
    batch = dump.batch(0, min(dump.positions, 4 if quick else 128))
    logits = batch.target, batch.draft
    return Rows(path, *logits, *(Sampling().probabilities(x, dtype=np.float64) for x in logits))


@pytest.fixture
def compare(benchmark: Any, quick: bool) -> Callable[..., Any]:
    """Time a cost, and what it is measured in, in turns: the unit in the set-up of every round."""

    def run(
        cost: str,
        subject: Callable[..., Any],
        over: str = "",
        unit: Callable[..., Any] | None = None,
        *,
        goal: float | None = None,
        inputs: Sequence[tuple[Any, ...]] = (),
        positions: int = 1,
        rounds: int = ROUNDS,
        warm: bool = True,
    ) -> Any:
        """One row of the table.

        Parameters
        ----------
        cost, over : str
            What is measured, and the unit it is measured in.
        inputs : sequence of tuples
            Arguments of both, one round each; without them there are none, and every round is the same.
        positions : int
            What the time is divided by in the last columns.
        warm : bool
            Whether to begin with a round that is not counted.

        So many parameters because they are the columns of the table and how a row is measured.
        """
        warm = warm and not quick
        turns = itertools.chain(inputs[:1] if warm else (), inputs or itertools.repeat(()))
        seconds: list[float] = []

        def before() -> tuple[tuple[Any, ...], dict[str, Any]]:
            arguments = next(turns)
            if unit is not None:
                start = time.perf_counter()
                unit(*arguments)
                seconds.append(time.perf_counter() - start)
            return arguments, {}

        rounds = len(inputs) or (1 if quick else rounds)
        found = benchmark.pedantic(subject, setup=before, rounds=rounds, warmup_rounds=int(warm))
        benchmark.extra_info.update(
            cost=cost,
            over=over,
            goal=goal,
            unit=seconds[int(warm) :],
            positions=positions,
            by_row=bool(inputs),
        )
        return found

    return run


@pytest.fixture
def point(benchmark: Any, quick: bool) -> Callable[..., None]:
    """Time one point of a growth curve."""

    def run(against: str, rule: str, size: int, subject: Callable[[], Any], rounds: int) -> None:
        cold = quick or rounds == 1
        benchmark.pedantic(subject, rounds=1 if quick else rounds, warmup_rounds=int(not cold))
        benchmark.extra_info.update(against=against, rule=rule, size=size)

    return run


@pytest.fixture(scope="session")
def synthetic_logits() -> Callable[[int, int, int], np.ndarray]:
    """Logits ``(rows, V)`` of any width: a Zipf law, disturbed by log-normal noise."""

    def make(rows: int, vocab: int, seed: int) -> np.ndarray:
        noise = np.random.default_rng(seed).standard_normal((rows, vocab))
        return -1.2 * np.log(np.arange(1, vocab + 1)) + noise

    return make


@pytest.fixture(scope="session")
def synthetic(synthetic_logits: Any) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """Target and draft ``(V,)`` of any width: the same law, disturbed twice."""

    def make(vocab: int) -> tuple[np.ndarray, np.ndarray]:
        target, draft = Sampling().probabilities(synthetic_logits(2, vocab, 0), dtype=np.float64)
        return target, draft

    return make
