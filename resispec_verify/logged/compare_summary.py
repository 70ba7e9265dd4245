"""Two compared dumps to the plain dictionaries that ``--json`` writes, in the spirit of llama.cpp's table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from resispec_verify.logged.compare import COLUMNS, Comparison
from resispec_verify.schema import envelope
from resispec_verify.tables.means import mean, mean_and_error

__all__ = ["KL_DIRECTION", "LEVELS", "compare_report", "comparison_records", "quantile", "spread"]

KL_DIRECTION = "KL(A || B)"
LEVELS = {"99.9": 0.999, "99": 0.99, "95": 0.95, "90": 0.9, "median": 0.5,
          "10": 0.1, "5": 0.05, "1": 0.01, "0.1": 0.001}  # fmt: skip


def quantile(ordered: Sequence[float], level: float) -> float:
    """Quantile of sorted values, linear between neighbours; where one is infinite, the nearer of the two."""
    at = level * (len(ordered) - 1)
    i = min(int(at), len(ordered) - 2) if len(ordered) > 1 else 0
    low, high = ordered[i], ordered[min(i + 1, len(ordered) - 1)]
    part = at - i
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        return high if part >= 0.5 else low
    return low + part * (high - low)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, its standard error, extremes and quantiles."""
    average, error = mean_and_error(values)
    ordered = sorted(values)
    return {
        "mean": average,
        "standard_error": error,
        "max": ordered[-1],
        **{name: quantile(ordered, level) for name, level in LEVELS.items()},
        "min": ordered[0],
    }


def _root_mean_square(values: Sequence[float]) -> dict[str, Any]:
    """The root of the mean square; its standard error is that of the mean square over ``2 rms``."""
    square, error = mean_and_error([v * v for v in values])
    rms = math.sqrt(square)
    return {"value": rms, "standard_error": error / (2 * rms) if error is not None and rms > 0 else error}


def _perplexities(nll_a: Sequence[float], nll_b: Sequence[float]) -> dict[str, Any]:
    """Perplexities of the logged tokens, and the logarithm of ``ppl_b / ppl_a``, with standard errors."""

    def perplexity(values: Sequence[float]) -> dict[str, Any]:
        average, error = mean_and_error(values)
        value = math.exp(average) if average < 700 else math.inf  # e^700 is finite
        return {"value": value, "standard_error": None if error is None else value * error}

    both = all(map(math.isfinite, (*nll_a, *nll_b)))
    ratios = [y - x for x, y in zip(nll_a, nll_b, strict=True)]
    ratio, error = mean_and_error(ratios) if both else (None, None)
    return {
        "a": perplexity(nll_a),
        "b": perplexity(nll_b),
        "ln_ratio": {"value": ratio, "standard_error": error},
    }


def _rows(c: Comparison, indices: Sequence[int]) -> list[dict[str, Any]]:
    return [{name: c.columns[name][i] for name in COLUMNS} for i in indices]


def _only_in(c: Comparison, side: int) -> dict[str, Any] | None:
    """Tokens that only one of the two has, and the mass on them; None where both have the same tokens."""
    if c.sides is None:
        return None
    masses = c.outside["ab"[side]]
    worst = max(range(len(masses)), key=masses.__getitem__)
    return {
        "tokens": len(c.sides.only[side]),
        "mass_mean": mean(masses),
        "mass_max": masses[worst],
        "position": c.columns["position"][worst],
    }


def summarize_comparison(c: Comparison, tail: int) -> dict[str, Any]:
    """The one object of ``"results"``."""
    columns = c.columns
    n = len(columns["position"])
    status = columns["status"]
    flipped = [x != y for x, y in zip(columns["top_a"], columns["top_b"], strict=True)]
    flips = [i for i in range(n) if status[i] == "flip"]
    same = 1 - sum(flipped) / n
    kl = columns["kl"]
    worst = sorted(range(n), key=lambda i: (-kl[i], -columns["tv"][i], i))
    furthest = sorted(flips, key=lambda i: (-min(columns["margin_a"][i], columns["margin_b"][i]), i))
    return {
        "positions": n,
        "temperature": c.temperature,
        "precision": c.precision,
        "max_abs_logit": c.worst_logit[0],
        "max_abs_logit_at": {"position": c.worst_logit[1], "token": c.worst_logit[2]},
        "max_abs_log_probability": max(columns["max_abs_log_probability"]),
        "logit_difference": {name: c.logit_quantile(level) for name, level in LEVELS.items()},
        "support_differs": c.support_differs,
        "only_in_a": _only_in(c, 0),
        "only_in_b": _only_in(c, 1),
        "tv_mean": mean(columns["tv"]),
        "tv_max": max(columns["tv"]),
        "kl_mean": mean(kl),
        "kl_max": max(kl),
        "kl_reverse_mean": mean(columns["kl_reverse"]),
        "kl_reverse_max": max(columns["kl_reverse"]),
        "flips": len(flips),
        "near_ties": status.count("near-tie"),
        "near_tie_flips": sum(f and s == "near-tie" for f, s in zip(flipped, status, strict=True)),
        "table": {
            "tv": spread(columns["tv"]),
            "kl": spread(kl),
            "kl_reverse": spread(columns["kl_reverse"]),
            "delta_p": spread(columns["delta_p"]),
            "delta_p_rms": _root_mean_square(columns["delta_p"]),
            "same_top": {
                "value": same,
                "standard_error": math.sqrt(same * (1 - same) / (n - 1)) if n > 1 else None,
            },
        },
        "delta_p_of": "next token" if c.next_tokens else "best token of A",
        "perplexity": _perplexities(columns["nll_a"], columns["nll_b"]) if c.next_tokens else None,
        "worst": _rows(c, worst[:tail]),
        "flip_list": _rows(c, furthest[:tail]),
    }


def compare_report(c: Comparison, tail: int) -> dict[str, Any]:
    """The whole report of ``compare``, JSON-ready."""
    facts = [
        {
            "path": d.path,
            "dtype": d.dtype,
            "positions": d.positions,
            "vocab": d.vocab,
            "step": d.step,
            "floor": d.floor,
        }
        for d in (c.a, c.b)
    ]
    results = [summarize_comparison(c, tail)]
    return envelope("compare", results, kl_direction=KL_DIRECTION, a=facts[0], b=facts[1])


def comparison_records(c: Comparison) -> Iterator[dict[str, Any]]:
    """One record a position: what ``--csv`` writes."""
    for values in zip(*(c.columns[name] for name in COLUMNS), strict=True):
        yield dict(zip(COLUMNS, values, strict=True))
