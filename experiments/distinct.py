"""Candidates without replacement, three and more: what rules without memory of the rejected tokens lose.

Small laws: acceptance of four rules over the sequential optimum, which remembers the set of rejected
tokens (a linear program over sets), and that optimum over the limit of all exact rules. Laws are drawn in
four families: p and q from Dirichlet laws with parameter 0.3, 1 and 3, and p half a draw and half q.
Recorded laws: three candidates at every position of the example, by the rule of places of `by_places`.

    python experiments/distinct.py [--dump PATH] [--laws 12]

Rules: *sequoia*; *closed form last*: Sequoia's tests down to the last two candidates, and these by the
optimum for two; *of places*: the best test by token and place alone, one coin for the choice of the rule
included (linear program); *priority to the last*: one rule of places without a program, by `by_places`. It
aims at the masses ``min(p, O_k) - min(p, O_{k+1})``, O_k being the probability that candidate k or a later
one is looked at and is this token, which its own tests decide: a fixed point, found by iterating.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify import make_rule, open_dump, operational_marginals
from resispec_verify.kernels.optimal.candidate_limits import without_replacement_limit
from resispec_verify.kernels.optimal.two_distinct import two_distinct
from resispec_verify.oracle import limit_without_replacement
from resispec_verify.oracle.distinct import optimum_by_places, optimum_by_sets
from resispec_verify.tables.reading import Reading, pairs_of

HERE = Path(__file__).parent
FAMILIES = ("0.3", "1", "3", "near")
SIZES = ((3, 3), (3, 4), (3, 5), (3, 6), (4, 4), (4, 5), (4, 6))
RULES = ("sequoia", "closed form last", "of places", "priority to the last")
_MOST_COLUMNS = 4096  # of the program over rules of places
_HEAVY, _TERMS = 1 / 16, 16  # (1/15)**16 < 2e-19

Laws = list[np.ndarray]
#: Rejection probability by token of each test -> what each candidate is offered, with the draft in it.
Offered = Callable[[Laws], Laws]


def enumerated(q: np.ndarray, n: int) -> Offered:
    """P(candidate k is looked at and is x) by going through all sets of rejected tokens."""

    def offered(rejects: Laws) -> Laws:
        reach, found = {frozenset[int](): 1.0}, []
        for k in range(n):
            row, after = np.zeros_like(q), {}
            for rejected, mass in reach.items():
                rest = [x for x in np.flatnonzero(q) if x not in rejected]
                left = q[rest].sum()
                for x in rest:
                    row[x] += mass * q[x] / left
                    if k + 1 < n:
                        key = rejected | {x}
                        after[key] = after.get(key, 0.0) + mass * q[x] / left * rejects[k][x]
            found.append(row)
            reach = after
        return found

    return offered


def three_offered(q: np.ndarray) -> Offered:
    """The same for three candidates, O(V): ``1 / (1 - q(x) - q(y))`` is a power series in a light q(y).

    Of tokens above 1/16 there are at most 15, and they are summed directly. For drafts whose two best tokens
    do not hold all of the mass.
    """
    heavy, light = np.flatnonzero(q > _HEAVY), np.flatnonzero(q <= _HEAVY)
    gap = 1.0 - q[heavy][:, None] - q
    gap[np.arange(heavy.size), heavy] = np.inf  # no token comes twice
    pair = 1.0 / gap
    b = q[light]
    powers = b ** np.arange(_TERMS)[:, None]
    over = (1.0 - b) ** -(1.0 + np.arange(_TERMS)[:, None])
    twice = 1.0 / (1.0 - 2.0 * b)

    def others(weights: np.ndarray) -> np.ndarray:
        """``sum over y other than x of weights(y) / (1 - q(x) - q(y))``."""
        found = np.empty_like(weights)
        found[heavy] = pair @ weights
        found[light] = (powers @ weights[light]) @ over - twice * weights[light]
        found[light] += weights[heavy] @ pair[:, light]
        return found

    def offered(rejects: Laws) -> Laws:
        v, h = q * rejects[0] / (1.0 - q), q * rejects[1]
        after_v, after_h = others(v), others(h)
        both = v @ after_h - v * after_h - h * after_v  # over ordered pairs without this token
        return [q, q * (v.sum() - v), q * np.clip(both, 0.0, None)]

    return offered


def by_places(p: np.ndarray, offered: Offered, n: int, *, most_steps: int = 200) -> tuple[float, Laws]:
    """A rule of places with priority to the last, and its acceptance.

    Whatever the iteration has reached, the tests returned are those of an exact rule: of what it is really
    offered, each accepts no more than what is left of p.

    Returns
    -------
    acceptance : float
    tests : list of n arrays (V,)
        The probability of accepting each token at each place.
    """
    tests = [np.zeros_like(p) for _ in range(n)]
    best, found = -1.0, tests
    for _ in range(most_steps):
        accepted, left, exact = 0.0, p.copy(), []
        for k in range(n):
            row = offered([1.0 - test for test in (*exact, *tests[k:])])[k]
            taken = np.minimum(left, row if k == n - 1 else row * tests[k])
            exact.append(np.divide(taken, row, out=np.zeros_like(p), where=row > 0))
            left = left - taken
            accepted += float(taken.sum())
        gained = accepted - best
        if gained > 0:
            best, found = accepted, exact
        rows = offered([1.0 - test for test in tests])
        totals = [np.minimum(p, sum(rows[k:], np.zeros_like(p))) for k in range(n + 1)]
        new = [
            np.divide(a - b, row, out=np.zeros_like(p), where=row > 0)
            for a, b, row in zip(totals, totals[1:], rows, strict=False)
        ]
        moved = max(float((np.abs(a - b) * row).sum()) for a, b, row in zip(new, tests, rows, strict=True))
        tests = [np.clip(test, 0.0, 1.0) for test in new]
        if moved < 1e-10:
            break
    return best, found


def recursive(p: np.ndarray, q: np.ndarray, n: int, last: int) -> float:
    """Sequoia's acceptance, with the last two candidates by the optimum for two where ``last`` is 2."""
    if n == 0:
        return 0.0
    if n == last == 2 and (q > 0).sum() > 1:
        masses = two_distinct(p, q)
        return float((masses.first + masses.second).sum())
    taken = np.minimum(p, q)
    left = p - taken
    if left.sum() < 1e-15:
        return float(taken.sum())
    total = float(taken.sum())
    for x in np.flatnonzero(q > taken):
        rest = q * (np.arange(len(q)) != x)
        if rest.sum() > 0:
            total += (q - taken)[x] * recursive(left / left.sum(), rest / rest.sum(), n - 1, last)
    return total


def some_laws(family: str, size: int, rng: np.random.Generator) -> tuple[list[Fraction], list[Fraction]]:
    """A pair of laws in thousandths or so, every token of both positive."""
    alpha = 1.0 if family == "near" else float(family)
    p, q = (np.round(1000 * rng.dirichlet(np.full(size, alpha))).astype(int) + 1 for _ in range(2))
    p = p * q.sum() + q * p.sum() if family == "near" else p
    return tuple([Fraction(int(w), int(law.sum())) for w in law] for law in (p, q))  # type: ignore[return-value]


def measured(n: int, size: int, family: str, number: int) -> dict[str, Any]:
    """What is measured for one pair of laws, which its arguments determine."""
    rng = np.random.default_rng([n, size, FAMILIES.index(family), number])
    p, q = some_laws(family, size, rng)
    pf, qf = (np.array([float(mass) for mass in law]) for law in (p, q))
    few = 2 ** (size * (n - 1)) <= _MOST_COLUMNS
    found = {
        "limit": float(limit_without_replacement(p, q, n)),
        "optimum": optimum_by_sets(p, q, n)[0],
        "sequoia": recursive(pf, qf, n, 1),
        "closed form last": recursive(pf, qf, n, 2),
        "of places": optimum_by_places(p, q, n) if few else None,
        "priority to the last": by_places(pf, enumerated(qf, n), n)[0],
    }
    shown = {name: value if value is None else round(value, 9) for name, value in found.items()}
    return {"n": n, "V": size, "family": family, "number": number, **shown}


def small(laws: int) -> list[dict[str, Any]]:
    """One record for each pair of laws."""
    return [
        measured(n, size, family, number)
        for n, size in SIZES
        for family in FAMILIES
        for number in range(laws)
    ]


def recorded(path: Path) -> Iterator[dict[str, float]]:
    """One record for each position of a dump, at temperature 1 and with three candidates."""
    for batch in pairs_of(open_dump(path), Reading()):
        pair = batch.pair
        sequoia = operational_marginals(make_rule("sequoia"), pair.target, pair.draft, 3).acceptance.sum(
            axis=1
        )
        limits = without_replacement_limit(pair.target, pair.draft, 3)
        for p, q, low, limit in zip(pair.target, pair.draft, sequoia, limits, strict=True):
            yield {
                "sequoia": float(low),
                "priority to the last": by_places(p, three_offered(q), 3)[0],
                "limit": float(limit),
            }


def table(records: list[dict[str, Any]]) -> str:
    """Mean and worst share of the optimum, by number of candidates and tokens."""
    head = ["n", "V", "laws", *RULES, "optimum", "optimum / limit"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for n, size in SIZES:
        rows = [r for r in records if (r["n"], r["V"]) == (n, size)]
        cells = [str(n), str(size), str(len(rows))]
        for over, under in [*((rule, "optimum") for rule in RULES), ("optimum", None), ("optimum", "limit")]:
            if any(row[over] is None for row in rows):
                cells.append("")
                continue
            shares = [row[over] / (row[under] if under else 1.0) for row in rows]
            worst = f" ({min(shares):.4f})" if under else ""
            cells.append(f"{np.mean(shares):.4f}{worst}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def recorded_table(records: list[dict[str, float]]) -> str:
    """Means over positions, and the least and greatest gain."""
    names = ("sequoia", "priority to the last", "limit")
    means = [np.mean([row[name] for row in records]) for name in names]
    gains = [row["priority to the last"] / row["sequoia"] - 1 for row in records]
    head = ("positions", *names, "gain over sequoia, least to greatest")
    cells = [str(len(records)), *(f"{mean:.4f}" for mean in means), f"{min(gains):.1%} to {max(gains):.1%}"]
    rule = "|" + "---:|" * len(head)
    return "\n".join(["| " + " | ".join(head) + " |", rule, "| " + " | ".join(cells) + " |"]) + "\n"


def page(results: dict[str, Any]) -> str:
    """Both tables."""
    return f"{table(results['small'])}\n{recorded_table(results['recorded'])}"


def main() -> None:
    """Measure, write the results and the page, and print the tables."""
    parser = argparse.ArgumentParser(description="What rules without memory lose on distinct candidates.")
    parser.add_argument("--dump", type=Path, default=HERE.parent / "examples" / "smollm2-skip6-N8-fp16.pt")
    parser.add_argument("--laws", type=int, default=12, help="for each family, V and n")
    asked = parser.parse_args()
    results = {"small": small(asked.laws), "recorded": list(recorded(asked.dump))}
    (HERE / "results" / "distinct.json").write_text(json.dumps(results) + "\n", encoding="utf-8")
    (HERE / "results" / "distinct.md").write_text(page(results), encoding="utf-8")
    print(page(results))


if __name__ == "__main__":
    main()
