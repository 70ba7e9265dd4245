"""Completions of recorded lists: does any leave the intervals?

    python experiments/topk/completions.py good-rtn4-N128-fp16.pt mid-win32-N128-fp16.pt ...

100 positions, taken in turn from the dumps, each cut to the 400 tokens that its two laws give most and
normalised (so that a completion costs a fraction of a millisecond and not a tenth of a second), lists of 100.
10,000 completions of each: random weights of several spreads filled up to the cap, tails on as few tokens as
hold them, in random, in equal and in opposite orders, and tails in proportion to the other law. Each rule's
acceptance comes from its own code, without lists: levels, the equation for rho, a sort for the limit.
ResiSpec's emitted law, which costs more, is enumerated for 20 completions a position. Writes
results/topk/completions.csv; ends with status 1 if there is a violation.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

import resispec_verify as rv
from resispec_verify import topk
from resispec_verify.dumps import open_dump
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.dumps.rows import rows_of
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.optimal.sequential import levels, overlap
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.rules import make_rule
from resispec_verify.rules.shipped.k_seq import solve_rho

LOG = Path(__file__).resolve().parent.parent / "results" / "topk" / "completions.csv"
VOCAB, K, N, POSITIONS, COMPLETIONS, BATCH, ENUMERATED = 400, 100, 3, 100, 10_000, 500, 20
ROUNDING = 1e-10  # of the answers compared with
SEED = 0


def pair_at(dump, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Target and draft over the tokens that both together give most."""
    laws = []
    for rows in (dump.target, dump.draft):
        row = np.asarray(rows_of(rows, position, position + 1), np.float64)[0]
        row = np.exp(row - row.max())
        laws.append(row / row.sum())
    kept = np.argsort(-(laws[0] + laws[1]))[:VOCAB]
    p, q = (law[kept] / law[kept].sum() for law in laws)
    return p, q


def filled(weights: np.ndarray, mass: float, most: float) -> np.ndarray:
    """``min(most, c w)`` with sum ``mass`` in every row, c by bisection; rounding is shared out."""
    low, high = np.zeros(len(weights)), np.full(len(weights), mass)
    high /= np.maximum(weights.min(axis=1), 1e-300)
    for _ in range(50):
        c = np.sqrt(np.maximum(low, high * 1e-30) * high)
        above = np.minimum(most, c[:, None] * weights).sum(axis=1) > mass
        low, high = np.where(above, low, c), np.where(above, c, high)
    found = np.minimum(most, low[:, None] * weights)
    return found + (mass - found.sum(axis=1, keepdims=True)) / found.shape[1]


def stacked(order: np.ndarray, mass: float, most: float) -> np.ndarray:
    """The tail on the first tokens of each row's order, as few as hold it."""
    found = np.zeros(order.shape)
    amounts = np.clip(mass - most * np.arange(order.shape[1]), 0.0, most)
    np.put_along_axis(found, order, np.broadcast_to(amounts, order.shape), axis=1)
    return found


def completions(pairs: TopPairs, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Laws (count, V) of target and draft, a fifth of each kind."""
    sides, fifth = (pairs.target, pairs.draft), count // 5
    known = [np.zeros(VOCAB), np.zeros(VOCAB)]
    for law, rows in zip(known, sides, strict=True):
        law[rows.tokens[0]] = rows.probabilities[0]
    common = rng.random((fifth, VOCAB))
    keys = [
        [rng.random((fifth, VOCAB)) for _ in range(2)],
        [common, common],
        [common, 1.0 - common],
    ]
    return [_side(i, known, sides[i], fifth, keys, rng) for i in range(2)]


def _side(i: int, known: list[np.ndarray], rows: TopRows, fifth: int, keys: list, rng: np.random.Generator):
    free = np.setdiff1d(np.arange(VOCAB), rows.tokens[0])
    mass, most = float(rows.tail[0, 0]), float(rows.most[0])
    parts = [stacked(np.argsort(key[i][:, free], axis=1), mass, most) for key in keys]
    spread = rng.choice([0.1, 1.0, 3.0, 8.0], (fifth, 1))
    parts.append(filled(np.exp(spread * rng.standard_normal((fifth, len(free)))), mass, most))
    other = known[1 - i][free] + rng.choice([1e-9, 1e-6, 1e-4], (fifth, 1))  # water-filling to the other law
    parts.append(filled(other * np.exp(0.01 * rng.standard_normal((fifth, len(free)))), mass, most))
    found = np.tile(known[i], (5 * fifth, 1))
    found[:, free] = np.concatenate(parts)
    return found


def excess(p: np.ndarray, q: np.ndarray, s: np.ndarray) -> np.ndarray:
    """``sum (p - s q)_+`` of every row."""
    return np.clip(p - s[:, None] * q, 0.0, None).sum(axis=1)


def answers(p: np.ndarray, q: np.ndarray) -> dict[str, np.ndarray]:
    """Of every completion, without lists."""
    s = np.ones(len(p))
    found = {"tv": excess(p, q, s), "limit": transport_limit(p, q, N)}
    for _ in range(N - 1):
        s = s + excess(p, q, s)
    found["specinfer"] = 1.0 - excess(p, q, s)
    found["optimal-sequential"] = overlap(p, q, levels(p, q, N)[:, 0])
    found["optimal-joint"] = found["limit"]
    found["k-seq"] = overlap(p, q, solve_rho(p, q, N)[:, 0])
    return found


def violations(pairs: TopPairs, rng: np.random.Generator) -> dict[str, tuple[int, float]]:
    """How many completions leave each interval, and how much of it they fill."""
    bounds = {}
    for name in ("tv", "limit", "specinfer", "optimal-sequential", "optimal-joint", "k-seq"):
        rule = make_rule("specinfer" if name in ("tv", "limit") else name)
        column = name if name in ("tv", "limit") else "acceptance"
        bounds[name] = getattr(topk.bounds(pairs, rule, N), column)[0]
    out, least, greatest = dict.fromkeys(bounds, 0), dict.fromkeys(bounds, 1.0), dict.fromkeys(bounds, 0.0)
    for _ in range(COMPLETIONS // BATCH):
        p, q = completions(pairs, BATCH, rng)
        for name, values in answers(p, q).items():
            low, high = bounds[name]
            out[name] += int(np.sum((values < low - ROUNDING) | (values > high + ROUNDING)))
            least[name], greatest[name] = min(least[name], values.min()), max(greatest[name], values.max())
    rule = make_rule("resispec")
    p, q = completions(pairs, ENUMERATED, rng)
    law, known = rv.operational_marginals(rule, p, q, 1), topk.bounds(pairs, rule, 1)
    wrong = tv_interval(law, p)[1] + law.rounding + ROUNDING < known.emitted_tv[0, 0]
    out["resispec"] = int(np.sum(wrong))
    widths = {name: max(high - low, 1e-300) for name, (low, high) in bounds.items()}
    share = {name: (greatest[name] - least[name]) / widths[name] for name in bounds} | {"resispec": np.nan}
    return {name: (out[name], share[name]) for name in out}


def main() -> int:
    """Count."""
    parser = argparse.ArgumentParser(description="Completions of recorded lists.")
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--positions", type=int, default=POSITIONS)
    asked = parser.parse_args()
    rng, dumps = np.random.default_rng(SEED), [open_dump(path) for path in asked.dumps]
    total: dict[str, list[tuple[int, float]]] = {}
    for i in range(asked.positions):
        p, q = pair_at(dumps[i % len(dumps)], i // len(dumps))
        pairs = TopPairs(topk.cut(p[None], K), topk.cut(q[None], K))
        for name, found in violations(pairs, rng).items():
            total.setdefault(name, []).append(found)
    with LOG.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("quantity", "positions", "completions", "violations", "filled_mean"))
        for name, found in total.items():
            each = ENUMERATED if name == "resispec" else COMPLETIONS
            filled_mean = "" if name == "resispec" else f"{np.mean([share for _, share in found]):.3f}"
            writer.writerow((name, len(found), each * len(found), sum(bad for bad, _ in found), filled_mean))
    return 1 if any(bad for found in total.values() for bad, _ in found) else 0


if __name__ == "__main__":
    sys.exit(main())
