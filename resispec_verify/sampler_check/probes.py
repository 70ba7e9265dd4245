"""What is asked of a sampler: streams of draws, each with its tests."""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.evidence.eprocess import FitTest, Grouping, SwapTest
from resispec_verify.evidence.statistical import swap_test
from resispec_verify.sampler_check.calls import Caller
from resispec_verify.sampler_check.frequencies import written
from resispec_verify.sampler_check.pace import LEAST, SHARE, Pace, sizes

__all__ = ["DEPENDENT", "MORE_PAIRINGS", "Finding", "Probe", "evenness", "law_reason", "seed_of"]

# Pairs of draws that the independence tests look at in one step.
_MOST_PAIRS = 1 << 14
# Orders with which the spread of counts is compared.
_SHUFFLES = 999
#: Why a sampler whose draws depend on each other is rejected; its law may be right.
DEPENDENT = (
    "draws are not independent: rows of a call, or calls that follow each other, share randomness "
    "(or rows are not alike)"
)
#: The ways in which draws are paired, with how many calls and rows lie between the two of a pair; None: half
#: the rows of the call.
PAIRINGS: tuple[tuple[str, int, int | None], ...] = (
    ("rows 1 apart in a call", 0, 1),
    ("rows half a call apart", 0, None),
    ("the same rows of neighbouring calls", 1, 0),
    ("rows, and those before them in the next call,", 1, -1),
)
_LAGS = (1, 2, 3, 4, 8, 16)
#: The ways that are tried when the reason of a rejection is asked for.
MORE_PAIRINGS: tuple[tuple[str, int, int | None], ...] = (
    *((f"rows {lag} apart in a call", 0, lag) for lag in _LAGS),
    ("rows half a call apart", 0, None),
    ("the same rows of neighbouring calls", 1, 0),
    *((f"rows, and those {lag} before them in the next call,", 1, -lag) for lag in _LAGS),
    *((f"rows, and those {lag} after them in the next call,", 1, lag) for lag in _LAGS),
)


@dataclass(frozen=True)
class Finding:
    """Why a sampler is rejected.

    Attributes
    ----------
    kind : {"support", "law", "acceptance", "independence", "boundary"}
    reason : str
        One line.
    token : int or None
        For "support" and "boundary": what was emitted.
    dependence : dict or None
        For "independence": which pairs, and how often they were what, against how often when independent.
    """

    kind: str
    reason: str
    token: int | None = None
    dependence: dict[str, Any] | None = None


def seed_of(seed: int, *what: Any) -> np.random.SeedSequence:
    """A seed that depends on what is drawn, not on what was drawn before."""
    return np.random.SeedSequence([seed, zlib.crc32(repr(what).encode())])


@dataclass
class Probe:
    """A stream of draws and its tests.

    Attributes
    ----------
    source : source of draws
    budget : int
        Draws wanted; the last call may give a few more.
    alpha : float
        Error of each test of this probe.
    rows : int or None
        Rows of a call; None: as many as are useful.
    seed : int
    pace : Pace
        What calls of the source cost; probes of one source share it.
    pairings : tuple
        The ways in which draws are paired to look for dependence.

    Attributes
    ----------
    error : str or None
        How the sampler failed here; the probe is spent then.
    tried : int
        Draws that were made to measure a call, and not tested.
    """

    source: Any
    budget: int
    alpha: float
    seed: int
    rows: int | None = None
    pace: Pace = field(default_factory=Pace)
    pairings: tuple[tuple[str, int, int | None], ...] = PAIRINGS
    error: str | None = None
    tried: int = 0
    fit: FitTest = field(init=False)
    swaps: list[SwapTest] = field(init=False)
    acceptance: FitTest | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.fit = self.source.fit()
        self.swaps = [swap_test(self.source.law) for _ in self.pairings]
        certified = getattr(self.source, "acceptance", None)
        if certified is not None and self.rows is None:
            self.acceptance = FitTest(
                certified, [Grouping.of("candidates", np.arange(len(certified)), certified)]
            )
        self.rng = np.random.default_rng(
            seed_of(self.seed, self.source.kind, self.rows, self.source.law.tobytes())
        )

    @property
    def name(self) -> str:
        """Input and rows, for people."""
        return self.source.name if self.rows is None else f"{self.source.name}, {self.rows} rows a call"

    @property
    def tests(self) -> int:
        """How many tests share the error rate."""
        return 2 + (self.acceptance is not None)

    @property
    def spent(self) -> bool:
        """Whether nothing more is to come."""
        return self.error is not None or self.fit.draws >= self.budget

    @property
    def wanted(self) -> int:
        """Draws of the next step: an eighth of what there is, up to the budget."""
        return max(1, min(max(256, self.fit.draws // 8), self.budget - self.fit.draws))

    @property
    def cost(self) -> int:
        """Of all draws up to the next step, in entries of the laws."""
        return (self.fit.draws + self.wanted) * max(64, len(self.source.law))

    def planned(self, seconds: float, longest: float) -> tuple[int, int]:
        """Rows and calls of the next step, which may take so many seconds, and a call of it ``longest``."""
        wanted = self.wanted
        rows = self.rows or max(1, min(self.source.most_rows, wanted // 4))
        fixed = self.rows is not None
        return sizes(self.pace, rows, -(-wanted // rows), fixed=fixed, seconds=seconds, longest=longest)

    def step(self, caller: Caller) -> None:
        """Draw some more, and test; at most a small share of the time that is left to the caller."""
        if not self.pace.known:
            self.measure(caller)
        seconds = self.seconds(caller)
        rows, calls = self.planned(seconds, caller.limit / 4)
        until = time.monotonic() + 2 * seconds
        drawn = caller.some(lambda: self.timed(caller, self.rng, rows), calls, until)
        index = np.stack([one.index for one in drawn])
        self.fit.update(index.ravel())
        self.look_for_dependence(index)
        if self.acceptance is not None:
            self.accepted(caller, [one.accepted for one in drawn])

    @staticmethod
    def seconds(caller: Caller) -> float:
        """What a step may take."""
        return max(LEAST, SHARE * (caller.until - time.monotonic()))

    def measure(self, caller: Caller) -> None:
        """Measure a call of one row. The first of all is made twice, as it may compile, and then with more
        rows: what a call costs and what its rows cost is alike on all inputs.

        What it draws is no part of a test.
        """
        rng = np.random.default_rng(seed_of(self.seed, "trial", self.source.name))
        first = caller.calls == 0
        self.tried += len(caller.some(lambda: self.timed(caller, rng, 1), 2 if first else 1))
        if first:
            most = 4.0 * self.seconds(caller) / self.pace.seconds(1)
            rows = max((rows for rows in (2, 4, 8) if rows <= most), default=0)
            if rows:
                caller.run(lambda: self.timed(caller, rng, rows))
                self.tried += rows

    def timed(self, caller: Caller, rng: np.random.Generator, rows: int) -> Any:
        """One call, measured."""
        started = time.monotonic()
        drawn = self.source.draw(caller, rng, rows)
        self.pace.record(rows, time.monotonic() - started)
        return drawn

    def accepted(self, caller: Caller, reported: list[np.ndarray | None]) -> None:
        """The indices of accepted candidates, where they are reported."""
        assert self.acceptance is not None
        known = [one for one in reported if one is not None]
        if len(known) < len(reported):
            caller.note("does not report which candidate it accepts: the rule's acceptance was not compared")
        if known:
            self.acceptance.update(np.concatenate(known))

    def look_for_dependence(self, index: np.ndarray) -> None:
        """Pairs of rows of a call, and of rows of neighbouring calls, all disjoint; ``index`` is (calls,
        rows).
        """
        for test, (_, calls, rows) in zip(self.swaps, self.pairings, strict=True):
            x, y = _pairs(index, calls, rows)
            test.update(x[:_MOST_PAIRS], y[:_MOST_PAIRS])

    @property
    def log_dependence(self) -> float:
        """Evidence against independence: the average over the ways of pairing."""
        wealth = [test.log_evidence for test in self.swaps]
        return float(np.logaddexp.reduce(wealth)) - math.log(len(wealth))

    @property
    def dependent(self) -> bool:
        """Whether independence is rejected, at ``alpha``."""
        return self.log_dependence >= -math.log(self.alpha)

    def independence(self, expected: float | None = None) -> Finding:
        """That draws depend on each other, with the pairs that show it best.

        Parameters
        ----------
        expected : float, optional
            How often independent draws are equal; by default from the draws of this probe.
        """
        best = int(np.argmax([test.log_evidence for test in self.swaps]))
        test, (pairing, calls, rows) = self.swaps[best], self.pairings[best]
        if calls == 0 and rows is None and self.rows is not None:
            pairing = f"{pairing} ({self.rows // 2} rows)"
        if test.by_equality:
            what, seen = "equal", test.equal / test.pairs
            due = self.equal_by_chance if expected is None else expected
        else:
            x, y, seen, due = test.most_associated()
            what = f"{self._cell(test, x)} and {self._cell(test, y)}"
        found = {
            "pairing": pairing, "calls_apart": calls, "rows_apart": rows, "pairs": test.pairs, "what": what,
            "seen": seen, "expected": due,
        }  # fmt: skip
        number = f"{pairing} are {what} in {written(seen)} of {test.pairs} pairs, {written(due)} expected"
        return Finding("independence", f"{DEPENDENT}: {number}", dependence=found)

    @property
    def equal_by_chance(self) -> float:
        """How often two independent draws are equal, without bias from the counts of all draws."""
        counts, n = self.fit.counts.astype(np.float64), self.fit.draws
        return float(np.sum(counts * (counts - 1.0)) / (n * (n - 1.0))) if n > 1 else 0.0

    def _cell(self, test: SwapTest, cell: int) -> str:
        members = np.flatnonzero(test.cell == cell)
        return self.source.describe(int(members[0])) if len(members) == 1 else "another token"

    def finding(self) -> Finding | None:
        """What the draws so far reject, if anything; each test at ``alpha``."""
        threshold = -math.log(self.alpha)
        token = self.fit.impossible
        if token is not None:
            what = self.source.describe(token)
            return Finding("support", f"{what} is emitted although its target probability is 0", token)
        if self.dependent:
            return self.independence()
        if self.fit.log_evidence >= threshold:
            return Finding("law", law_reason(self.source.kind))
        if self.acceptance is not None and self.acceptance.log_evidence >= threshold:
            return Finding("acceptance", self._acceptance_reason())
        return None

    def _acceptance_reason(self) -> str:
        assert self.acceptance is not None
        seen = self.acceptance.counts / max(1, self.acceptance.draws)
        worst = int(np.argmax(np.abs(seen - self.acceptance.law)))
        what = "no candidate" if worst == len(seen) - 1 else f"candidate {worst + 1}"
        certified = self.acceptance.law[worst]
        return f"{what} is accepted with frequency {written(seen[worst])}, the rule's is {written(certified)}"


def law_reason(kind: str, *, independent: bool = True) -> str:
    """What is said of a rejected law; less of it where the draws may depend on each other."""
    which = "law" if kind == "token" else "joint law"
    if independent:
        return f"emitted tokens do not have the target's {which}"
    return f"emitted tokens do not look like independent draws of the target's {which}"


def _pairs(index: np.ndarray, calls: int, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint pairs of draws ``(calls, rows)``, so many calls, 0 or 1, and rows apart; None: half a call.

    Two pairs whose entries are swapped are neighbours here. If rows of a call are equal, they must come from
    different calls (by columns); if calls are equal, from different rows (by rows).
    """
    n, wide = index.shape
    if calls == 0:
        lag = wide // 2 if rows is None else rows
        blocks = wide // (2 * lag) if lag else 0
        within = index[:, : 2 * lag * blocks].reshape(n, blocks, 2, lag)
        return tuple(within[:, :, i].reshape(n, blocks * lag).ravel("F") for i in (0, 1))  # type: ignore[return-value]
    assert rows is not None
    even = n // 2 * 2
    first, second = index[0:even:2], index[1:even:2]
    kept = max(0, wide - abs(rows))
    x, y = max(0, -rows), max(0, rows)
    return first[:, x : x + kept].ravel(), second[:, y : y + kept].ravel()


def evenness(index: np.ndarray, cell: np.ndarray) -> float:
    """p-value of how the counts of the cells vary from call to call, against independent rows of any law.

    Whatever the rows of a call share, and however far apart they are, it widens these counts, or narrows
    them. The sum of squared counts is compared with that of shuffled draws, which is exact: independent rows
    of any law are as likely in any order.

    Parameters
    ----------
    index : int array (calls, rows)
    cell : int array (V,)
    """
    calls, rows = index.shape
    cells, rng = int(cell.max()) + 1, np.random.default_rng(0)
    drawn, first = cell[index.ravel()], np.repeat(np.arange(calls), rows) * cells

    def spread(one: np.ndarray) -> int:
        return int(np.sum(np.bincount(first + one, minlength=calls * cells) ** 2))

    seen = spread(drawn)
    others = np.array([spread(rng.permutation(drawn)) for _ in range(_SHUFFLES)])
    least = min(np.count_nonzero(others >= seen), np.count_nonzero(others <= seen))
    return min(1.0, 2.0 * (1 + int(least)) / (1 + _SHUFFLES))
