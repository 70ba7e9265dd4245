"""An anytime-valid test of two streams of completions: is the joint law of their first tokens the same?

Under the null, completions of one prompt are i.i.d. from one law in both streams, ON and OFF, whatever the
law is. Two kinds of evidence, half of the weight each.

*Universal inference.* Completions are put into K cells: the K - 1 prefixes of m tokens that were most
frequent in a pilot of the same prompt, and all others. The pilot only fixes the cells; its completions are
not counted. With mixtures Q of Dirichlet laws with parameter 1/2 over laws of the cells,

    ``Q(counts of ON) Q(counts of OFF) / sup_theta L(theta; counts of both)``

is at most ``Q Q / L(theta)`` for the true common law theta, which is a martingale, so it is an e-process.
Over prompts such ratios are multiplied: theta may differ between them. With n pairs, frequencies f and g, and
``m = (f + g) / 2`` its logarithm is at least ``n KL(f || m) + n KL(g || m) - 2 regret(n, K)`` (`regret`), and
the divergences are at least ``2 TV(f, m)^2 = TV(f, g)^2 / 2`` each (Pinsker). With P prompts of n_i pairs,
``sum n_i TV_i^2 >= n TV^2`` for the mean TV over pairs (Jensen), and 1 / alpha has been reached as soon as

    ``n TV(f, g)^2 >= T = log(1 / alpha) - log(weight) + 2 sum_i regret(n_i, K_i)``.

Of the laws F and G, take the sets ``A_i = {F_i > G_i}``: the mean over pairs of ``1[x in A] - 1[y in A]`` is
at most that TV, and is the mean of 2n independent terms of range 1 / n, so that it misses its expectation,
the mean of TV(F_i, G_i), by ``sqrt(log(1 / (1 - power)) / n)`` with probability at most 1 - power
(Hoeffding). So with at least that power is found, at latest after n pairs,

    ``TV(F, G) >= sqrt(T / n) + sqrt(log(1 / (1 - power)) / n)``.

*Bets on pairs.* Given which two completions a pair has, which of them is ON's is a fair coin. With any score
r that is fixed before the pair, ``2 r(x) / (r(x) + r(y))`` has expectation 1. Here r is learned: how often
the prefix came so far in ON and in OFF, shrunk towards as often in both. This has no bound of its own, and
needs far fewer pairs (``benchmarks/two_samples.py``).

References
----------
Wasserman, Ramdas and Balakrishnan 2020, "Universal inference"; Krichevsky and Trofimov 1981; Shekhar and
Ramdas 2023, "Nonparametric two-sample testing by betting".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from resispec_verify.evidence.eprocess import regret
from resispec_verify.evidence.repeated_draws import RepeatTest

__all__ = ["Detectable", "Difference", "TwoSampleTest"]

# Pairs of the pilot, all prompts together, and the least of each prompt.
PILOT = 32
LEAST_PILOT = 4
SIZES = (2, 4, 16, 64)
# Cells below which a difference is too little to be called the law; see `TwoSampleTest.detectable`.
LEAST_CELLS = 4
# Half the pairs that a learned ratio is taken to have seen: for faults that are large, and for small ones.
SCALES = ((0.5, 2.0, 8.0), (2.0, 8.0, 32.0, 128.0, 512.0))

Tokens = tuple[Hashable, ...]


class Detectable(NamedTuple):
    """A total variation ``tv`` between ``cells`` cells of the first ``length`` tokens that is sure to show.

    The mean over prompts, weighted by their pairs. 1 where nothing is sure to be found.
    """

    tv: float
    length: int
    cells: int


class Difference(NamedTuple):
    """A prefix, its frequencies after the pilot and the evidence on it alone; see `TwoSampleTest.witness`."""

    prompt: int
    tokens: Tokens
    on: float
    off: float
    log_evidence: float
    beyond_noise: bool


class TwoSampleTest:
    """Have two streams one joint law of the first ``first`` tokens, at each of ``prompts`` prompts?

    Lengths from 2 are looked at: the first token after a prompt is drawn without a draft; it is in the joint.

    Parameters
    ----------
    first, prompts : int
        At least 1. With ``first=1`` only the first token is compared.
    pilot : int
        Pairs that fix the cells, divided among the prompts.

    Attributes
    ----------
    pairs : int
        All, those of the pilot included.
    repeated : dict of RepeatTest
        By stream, ``on`` and ``off``: are completions of one prompt independent of each other?
    """

    def __init__(self, first: int, prompts: int = 1, pilot: int = PILOT) -> None:
        self.first, self.pairs = first, 0
        self.repeated = {"on": RepeatTest(), "off": RepeatTest()}
        self.pilot = max(min(LEAST_PILOT, pilot), math.ceil(pilot / prompts))
        self.lengths = tuple(range(min(2, first), first + 1))
        self._bets = _Bets(self.lengths, prompts)
        self._prompts: dict[int, _Prompt] = {}
        self._path: list[float] = []
        self._universal = np.zeros(len(self.lengths) * len(SIZES))

    def update(self, prompt: int, on: Tokens, off: Tokens) -> None:
        """Add a completion of each stream; tokens beyond ``first`` do not count.

        Parameters
        ----------
        prompt : int
            In ``range(prompts)``.
        on, off : tuple of hashable
            One that ended earlier is shorter, and differs from all that went on.
        """
        on, off = tuple(on[: self.first]), tuple(off[: self.first])
        self.pairs += 1
        self.repeated["on"].update(prompt, on)
        self.repeated["off"].update(prompt, off)
        self._bets.update(prompt, on, off)
        if prompt not in self._prompts:
            self._prompts[prompt] = _Prompt(self.pilot, self.lengths)
        self._universal += self._prompts[prompt].update(on, off)
        universal = float(np.logaddexp.reduce(self._universal)) - math.log(len(self._universal))
        self._path.append(float(np.logaddexp(self._bets.log_evidence, universal)) - math.log(2.0))

    @property
    def trajectory(self) -> np.ndarray:
        """Logarithm of the evidence after each pair, ``(pairs,)``."""
        return np.array(self._path)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the largest evidence so far, which Ville's inequality bounds as well; at least 0."""
        return max(0.0, max(self._path, default=0.0))

    def found_at(self, alpha: float) -> int | None:
        """The number of pairs after which the evidence first reached ``1 / alpha``."""
        return next((i for i, log in enumerate(self._path, 1) if log >= -math.log(alpha)), None)

    def detectable(self, alpha: float, power: float, least: int = LEAST_CELLS) -> Detectable:
        """The smallest total variation that is sure to have been found with this power; see the module.

        Parameters
        ----------
        least : int
            Of groupings into so many cells or more, where the pilots have as many: the difference between two
            cells, the most frequent prefix and the others, is too little to be called the law.
        """
        found = [
            Detectable(min(1.0, math.sqrt(self._sure(strata, pairs, alpha, power) / pairs)), length, most)
            for strata, pairs, length, most in self._groupings(least)
        ]
        return min(found, default=Detectable(1.0, self.first, 0))

    def enough(self, alpha: float, power: float) -> int | None:
        """Pairs, by tens, of which something is sure to be found; None before the pilots are over."""
        found = []
        for strata, pairs, *_ in self._groupings(LEAST_CELLS):
            many, before = pairs, 0
            while many > before:  # learning the laws costs more, the more pairs there are, as a logarithm
                before, many = many, math.ceil(self._sure(strata, many, alpha, power))
            found.append(self.pairs - pairs + before)
        return 10 * math.ceil(min(found) / 10) if found else None

    def _groupings(self, least: int) -> Iterator[tuple[list[_Stratum], int, int, int]]:
        """Strata of each grouping, pairs after their pilots, length and cells."""
        for i, (length, cells) in enumerate((m, size) for m in self.lengths for size in SIZES):
            strata = [one.strata[i] for one in self._prompts.values() if one.strata]
            if (pairs := sum(one.pairs for one in strata)) and cells >= least:
                yield strata, pairs, length, max(len(one.on) for one in strata)

    def _sure(self, strata: list[_Stratum], pairs: int, alpha: float, power: float) -> float:
        """Pairs times the square of the total variation that is sure to be found in so many pairs."""
        share = pairs / sum(one.pairs for one in strata)
        lost = 2 * sum(regret(round(share * one.pairs), len(one.on)) for one in strata)
        threshold = -math.log(alpha) + math.log(2 * len(self._universal)) + lost
        return (math.sqrt(threshold) + math.sqrt(-math.log1p(-power))) ** 2

    def witness(self, alpha: float, most: int = 5) -> list[Difference]:
        """The prefixes on whose frequencies there is most evidence, of those that the pilots had.

        Each is tested alone, against all others, by universal inference; with N prefixes one is beyond noise
        where its evidence reaches ``N / alpha``: under the null none is ever marked, with probability at
        least ``1 - alpha``.
        """
        found = [
            (i, prefix, on, off, one.counted)
            for i, one in self._prompts.items()
            for prefix, (on, off) in one.seen.items()
            if one.counted
        ]
        threshold = math.log(max(1, len(found))) - math.log(alpha)
        logs = [_two_cells(on, off, n) for _, _, on, off, n in found]
        best = sorted(range(len(found)), key=lambda j: -logs[j])[:most]
        rows = [(*found[j], logs[j]) for j in best]
        return [
            Difference(i, prefix, on / n, off / n, log, log >= threshold)
            for i, prefix, on, off, n, log in rows
        ]


class _Stratum:
    """Universal inference in the cells of one prompt.

    Attributes
    ----------
    on, off : list of int (K,)
        Counts of the cells.
    pairs : int
    """

    def __init__(self, cells: int) -> None:
        self.on, self.off, self.pairs = [0] * cells, [0] * cells, 0

    def update(self, x: int, y: int) -> float:
        """What a pair of cells adds to the log evidence."""
        n, half = self.pairs, 0.5 * len(self.on)
        gain = math.log((self.on[x] + 0.5) * (self.off[y] + 0.5)) - 2 * math.log(n + half)
        gain += _xlogx(2 * n + 2) - _xlogx(2 * n)
        for cell, counts in ((x, self.on), (y, self.off)):
            both = self.on[cell] + self.off[cell]
            gain -= _xlogx(both + 1) - _xlogx(both)
            counts[cell] += 1
        self.pairs += 1
        return gain


class _Prompt:
    """The pilot of one prompt, then its strata, by length and size.

    Attributes
    ----------
    strata : list of _Stratum
        Empty during the pilot.
    seen : dict
        Counts of ON and OFF after the pilot, of the prefixes that it had.
    counted : int
        Pairs after the pilot.
    """

    def __init__(self, pilot: int, lengths: tuple[int, ...]) -> None:
        self.strata: list[_Stratum] = []
        self.seen: dict[Tokens, list[int]] = {}
        self.counted = 0
        self._left, self._lengths = pilot, lengths
        self._pilot = [Counter() for _ in lengths]
        self._rank: list[dict[Tokens, int]] = []

    def update(self, on: Tokens, off: Tokens) -> np.ndarray | float:
        """What a pair adds to the log evidence of each length and size; 0 during the pilot."""
        if self._left:
            for m, count in zip(self._lengths, self._pilot, strict=True):
                count.update((on[:m], off[:m]))
            self._left -= 1
            if not self._left:
                self._fix()
            return 0.0
        self.counted += 1
        gains = []
        strata = iter(self.strata)
        for m, rank in zip(self._lengths, self._rank, strict=True):
            x, y = rank.get(on[:m], SIZES[-1]), rank.get(off[:m], SIZES[-1])
            for _ in SIZES:
                one = next(strata)
                last = len(one.on) - 1
                gains.append(one.update(min(x, last), min(y, last)))
        for side, tokens in enumerate((on, off)):
            for prefix in {tokens[:m] for m in self._lengths}:
                if prefix in self.seen:
                    self.seen[prefix][side] += 1
        return np.array(gains)

    def _fix(self) -> None:
        for count in self._pilot:
            # Ties in order of appearance, which the pilot fixes too.
            top = [prefix for prefix, _ in count.most_common(SIZES[-1] - 1)]
            self._rank.append({prefix: i for i, prefix in enumerate(top)})
            self.strata += [_Stratum(min(size, len(top) + 1)) for size in SIZES]
            self.seen |= {prefix: [0, 0] for prefix in top}


class _Bets:
    """Bets on which completion of a pair is ON's, with learned ratios.

    Ratios are learned for each prompt and, where there are several, for all together: a fault that is in the
    same tokens after every prompt shows earlier there.
    """

    def __init__(self, lengths: tuple[int, ...], prompts: int) -> None:
        self._lengths, self._alone = lengths, prompts == 1
        self._counts: dict[Hashable, list[int]] = {}
        self._wealth = np.zeros((1 if self._alone else 2, len(lengths), len(SCALES)))

    def update(self, prompt: int, on: Tokens, off: Tokens) -> None:
        """Bet on a pair, then learn from it."""
        for i, scope in enumerate((prompt,) if self._alone else (prompt, None)):
            for j, m in enumerate(self._lengths):
                x, y = (self._counts.setdefault((scope, m, side[:m]), [0, 0]) for side in (on, off))
                if x is not y:
                    for k, scales in enumerate(SCALES):
                        odds = _log_ratio(*y, scales) - _log_ratio(*x, scales)
                        self._wealth[i, j, k] += math.log(2.0) - np.logaddexp(0.0, odds)
                x[0] += 1
                y[1] += 1

    @property
    def log_evidence(self) -> float:
        """Logarithm of the average wealth."""
        return float(np.logaddexp.reduce(self._wealth.ravel())) - math.log(self._wealth.size)


@lru_cache(maxsize=1 << 14)
def _log_ratio(on: int, off: int, scales: tuple[float, ...]) -> float:
    """Log odds that the next draw of a prefix is ON's, after so many in ON and OFF.

    The share of ON has a prior, the average of the Beta laws with both parameters s: a large s believes in
    small differences only, and how often the prefix came decides between them.
    """
    logs, shares = [], []
    for s in scales:
        a, b = on + s, off + s
        logs.append(math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))
        logs[-1] -= 2 * math.lgamma(s) - math.lgamma(2 * s)
        shares.append(a / (a + b))
    weights = [math.exp(log - max(logs)) for log in logs]
    share = sum(w * p for w, p in zip(weights, shares, strict=True)) / sum(weights)
    return math.log(share) - math.log1p(-share)


def _two_cells(on: int, off: int, pairs: int) -> float:
    """Log evidence of universal inference on one prefix against all others, of its counts."""
    both = on + off
    best = _xlogx(both) + _xlogx(2 * pairs - both) - _xlogx(2 * pairs)
    return sum(
        math.lgamma(k + 0.5) + math.lgamma(pairs - k + 0.5) - math.log(math.pi) - math.lgamma(pairs + 1)
        for k in (on, off)
    ) - best  # fmt: skip


def _xlogx(n: int) -> float:
    return n * math.log(n) if n else 0.0
