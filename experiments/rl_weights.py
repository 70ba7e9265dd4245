"""Rollouts of lossy rules: the plain mean of a reward is biased, importance weights repair it.

    python experiments/rl_weights.py [--dump PATH] [--draws 400] [--seed 0]

At every recorded position tokens are drawn by running each rule, and rewarded by two functions of the token:
numbers in [-1, 1] drawn once from the seed, and the draft's log-probability, cut at -20. Their means under
the target are sums, known without drawing. Beside them: the mean of the draws as they are; weighted with
p / mu; and with min(p / mu, C), whose bias lies between ``sum (p - C mu)_+`` times the least and the greatest
reward. Standard errors come from the
laws: where weights are large and rare, those of a sample are too small.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify import Budget, Rule, make_rule, open_dump
from resispec_verify.logged.node_rules import Laws, Typical, laws_of
from resispec_verify.tables.reading import Reading, pairs_of

HERE = Path(__file__).parent
RULES: dict[str, tuple[Rule, int]] = {
    "specinfer": (make_rule("specinfer"), 3),
    "resispec": (make_rule("resispec"), 3),
    "relaxed": (make_rule("relaxed"), 1),
    "medusa:correction=target": (Typical(correction="target"), 1),
}
LEAST_LOG = -20.0


def drawn(rng: np.random.Generator, law: np.ndarray, count: int) -> np.ndarray:
    """Tokens ``(count,)`` from masses ``(V,)``."""
    steps = np.cumsum(law)
    return np.minimum(np.searchsorted(steps, rng.random(count) * steps[-1], side="right"), len(law) - 1)


def run(rule: Rule, state: Any, q: np.ndarray, left: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """What the rule emits in ``count`` runs from one state, with ``left`` candidates to come, from q."""
    if not left:
        return drawn(rng, np.asarray(rule.final(state)).reshape(-1), count)
    tokens = drawn(rng, q, count)
    rejected = rng.random(count) >= np.asarray(rule.accept(state)).reshape(-1)[tokens]
    if rule.depends_on == "nothing":
        if rejected.any():
            tokens[rejected] = run(rule, rule.reject(state, None), q, left - 1, int(rejected.sum()), rng)
        return tokens
    found = tokens.copy()
    for token in np.unique(tokens[rejected]):
        here = np.flatnonzero(rejected & (tokens == token))
        after = rule.reject(state, np.full((*state.residual.shape[:-1], 1), token))
        found[here] = run(rule, after, q, left - 1, len(here), rng)
    return found


class Means:
    """A mean over positions of means of independent draws, with its standard error.

    The variances are those under the law, not of the draws: where weights are large and rare, most samples
    have too few of them, and a spread that is too small.
    """

    def __init__(self) -> None:
        self.means: list[float] = []
        self.variances: list[float] = []

    def add(self, values: np.ndarray, of_tokens: np.ndarray, law: np.ndarray) -> None:
        """The draws of one more position, and what every token would have given."""
        self.means.append(float(values.mean()))
        spread = float(law @ of_tokens**2) - float(law @ of_tokens) ** 2
        self.variances.append(max(spread, 0.0) / len(values))

    def result(self) -> tuple[float, float]:
        """The mean, and its standard error."""
        return float(np.mean(self.means)), float(np.sqrt(np.sum(self.variances))) / len(self.means)


def ends(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of rewards times weights that lie between ``low`` and ``high``."""
    return np.minimum(values * low, values * high), np.maximum(values * low, values * high)


class Tally:
    """One rule and one reward over all positions."""

    def __init__(self, top: float) -> None:
        self.top, self.exact, self.reachable, self.under = top, [], [], []
        self.bound: list[tuple[float, float]] = []
        names = ("plain", "weighted low", "weighted high", "truncated low", "truncated high")
        self.means = {name: Means() for name in names}

    def add(self, tokens: np.ndarray, p: np.ndarray, laws: Laws, i: int, reward: np.ndarray) -> None:
        """The draws of one position."""
        placed, room = laws.placed[i], float(laws.gap[i])
        low = p[tokens] / np.minimum(placed[tokens] + room, 1.0)
        under = placed[tokens]  # less its rounding, which is below what a sample shows
        high = np.divide(p[tokens], under, out=np.full(len(tokens), np.inf), where=under > 0)
        values, top = reward[tokens], self.top
        self.exact.append(float(p @ reward))
        self.reachable.append(float((p * (placed > 0)) @ reward))
        cut = float(np.clip(p - top * placed, 0.0, None).sum())
        self.bound.append((cut * min(float(reward.min()), 0.0), cut * max(float(reward.max()), 0.0)))
        law = placed / placed.sum()
        self.under.append(float(law @ reward))
        weight = np.divide(p, law, out=np.zeros_like(p), where=law > 0)
        self.means["plain"].add(values, reward, law)
        cuts = {"weighted": np.inf, "truncated": top}
        for name, most in cuts.items():
            pair = ends(values, np.minimum(low, most), np.minimum(high, most))
            for end, product in zip(("low", "high"), pair, strict=True):
                self.means[f"{name} {end}"].add(product, reward * np.minimum(weight, most), law)

    def result(self) -> dict[str, Any]:
        """Means, standard errors, and how many of these the estimates are away."""
        exact, reachable = float(np.mean(self.exact)), float(np.mean(self.reachable))
        found = {name: means.result() for name, means in self.means.items()}
        # What is cut off is missing: the truncated mean is exact - bias.
        least, most = exact - np.mean([b for _, b in self.bound]), exact - np.mean([a for a, _ in self.bound])
        plain, error = found["plain"]
        return {
            "exact": exact, "reachable": reachable, "under_rule": float(np.mean(self.under)),
            "plain": plain, "plain_se": error,
            "plain_z": (plain - exact) / error,
            "weighted": [found["weighted low"][0], found["weighted high"][0]],
            "weighted_se": found["weighted high"][1],
            "weighted_z": away(found, "weighted", reachable, reachable),
            "truncated": [found["truncated low"][0], found["truncated high"][0]],
            "truncated_se": found["truncated high"][1],
            "truncated_bounds": [float(least), float(most)],
            "truncated_z": away(found, "truncated", float(least), float(most)),
        }  # fmt: skip


def away(found: dict[str, tuple[float, float]], name: str, least: float, most: float) -> float:
    """Standard errors between the interval of an estimate and an interval that it should meet."""
    (low, error_low), (high, error_high) = found[f"{name} low"], found[f"{name} high"]
    below = (low - most) / error_low if low > most else 0.0
    return below if below > 0 else (high - least) / error_high if high < least else 0.0


def measure(dump: str, draws: int, seed: int, top: float, gap: float) -> list[dict[str, Any]]:
    """Every rule with every reward."""
    tallies = {(rule, reward): Tally(top) for rule in RULES for reward in ("random", "log q")}
    weights: dict[str, list[float]] = {rule: [] for rule in RULES}
    lost: dict[str, list[float]] = {rule: [] for rule in RULES}
    random = None
    for batch in pairs_of(open_dump(dump), Reading()):
        for i, position in enumerate(batch.positions.tolist()):
            p, q = batch.pair.target[i], batch.pair.draft[i]
            if random is None:
                random = np.random.default_rng(seed).uniform(-1, 1, len(p))
            with np.errstate(divide="ignore"):
                rewards = {"random": random, "log q": np.maximum(np.log(q), LEAST_LOG)}
            for number, (name, (rule, n)) in enumerate(RULES.items()):
                rng = np.random.default_rng([seed, position, number])
                tokens = run(rule, rule.start(p, q, n), q, n, draws, rng)
                budget = Budget(gap, until_decided=False)
                laws = laws_of(rule, p[None], q[None], n, None, budget, sampled=True)
                weights[name] += (p[tokens] / (laws.placed[0][tokens] + laws.gap[0])).tolist()
                lost[name].append(float(p[laws.placed[0] == 0].sum()))
                for reward, values in rewards.items():
                    tallies[name, reward].add(tokens, p, laws, 0, values)
    return [
        {"rule": rule, "candidates": RULES[rule][1], "reward": reward,
         "effective_size": float(np.sum(weights[rule]) ** 2 / np.sum(np.square(weights[rule]))),
         "draws": len(weights[rule]), "lost": float(np.mean(lost[rule])), **tally.result()}
        for (rule, reward), tally in tallies.items()
    ]  # fmt: skip


def table(results: list[dict[str, Any]], top: float) -> str:
    """The results as Markdown."""
    head = ("rule", "n", "reward", "under the target", "under the rule", "plain mean", "z", "weighted mean",
            "z", f"truncated at {top:g}", "must lie in", "draws", "effective", "never emitted")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in results:
        reach = r["reachable"]
        beside = "" if abs(reach - r["exact"]) < 5e-5 else f" ({reach:.4f} on what is emitted)"
        cells = (
            r["rule"], str(r["candidates"]), r["reward"], f"{r['exact']:.4f}{beside}",
            f"{r['under_rule']:.4f}", f"{r['plain']:.4f} ± {r['plain_se']:.4f}", f"{r['plain_z']:.1f}",
            f"{_ends(r['weighted'])} ± {r['weighted_se']:.4f}", f"{r['weighted_z']:.1f}",
            f"{_ends(r['truncated'])} ± {r['truncated_se']:.4f}",
            "[{:.4f}, {:.4f}]".format(*r["truncated_bounds"]),
            str(r["draws"]), f"{r['effective_size']:.0f}", f"{r['lost']:.4f}",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ends(interval: list[float]) -> str:
    low, high = (f"{end:.4f}" for end in interval)
    return low if low == high else f"{low} .. {high}"


def main() -> None:
    """Measure, and write ``results/rl_weights-NAME.json`` and ``.md``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dump", default=str(HERE.parent / "examples" / "smollm2-skip6-N8-fp16.pt"))
    parser.add_argument("--name", default="example", help="of the results")
    parser.add_argument("--draws", type=int, default=400, help="at each position")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--truncate", type=float, default=2.0)
    parser.add_argument("--gap", type=float, default=1e-5)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    results = measure(asked.dump, asked.draws, asked.seed, asked.truncate, asked.gap)
    stem = asked.out / f"rl_weights-{asked.name}"
    stem.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(table(results, asked.truncate), encoding="utf-8")
    print(table(results, asked.truncate))


if __name__ == "__main__":
    main()
