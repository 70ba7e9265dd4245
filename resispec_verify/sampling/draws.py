"""Temperature and filters in an engine's order: from logits to the law of one draw."""

from __future__ import annotations

from typing import Any

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import filter_logits, softmax, temper
from resispec_verify.kernels.elementwise.sampling_steps import (
    keep_joint,
    keep_top_k,
    keep_top_n_sigma,
    keep_top_p,
    keep_typical,
    without_top_choices,
)
from resispec_verify.sampling.orders import SETTING_OF, Order, order_of

__all__ = ["draw_law", "set_steps"]


def set_steps(sampling: Any) -> tuple[str, ...]:
    """Those of the order's temperature and filters that the sampling sets; always with a temperature."""
    return tuple(
        step
        for step in order_of(sampling.order).draws
        if any(getattr(sampling, name) is not None for name in SETTING_OF.get(step, (step,)))
    )


def draw_law(logits: Array, sampling: Any, *, dtype: Any) -> Array:
    """Law ``(..., V)`` of one draw from logits that have their adjustments.

    XTC tosses a coin, and the law of one draw is the mixture over it: ``xtc_probability`` times the law
    without the top choices, and the rest the law with them.
    """
    steps = set_steps(sampling)
    if steps[:1] == ("temperature",):
        return _law(temper(logits, sampling.temperature, dtype=dtype), steps[1:], sampling)
    return _law(temper(logits, 1.0, dtype=dtype), steps, sampling)


def _law(rows: Array, steps: tuple[str, ...], sampling: Any) -> Array:
    order = order_of(sampling.order)
    for i, step in enumerate(steps):
        if step == "xtc":
            struck = without_top_choices(rows, sampling.threshold_of_xtc)
            share = sampling.xtc_probability
            return share * _law(struck, steps[i + 1 :], sampling) + (1.0 - share) * _law(
                rows, steps[i + 1 :], sampling
            )
        rows = _step(rows, step, sampling, order)
    return softmax(rows)


def _step(rows: Array, step: str, sampling: Any, order: Order) -> Array:
    if step == "temperature":
        # Tempered again: what was -inf stays.
        return temper(rows, sampling.temperature, dtype=rows.dtype)
    if step == "top_k":
        return keep_top_k(rows, sampling.top_k, ties=order.ties)
    if step == "top_p":
        return keep_top_p(rows, sampling.top_p, ties=order.ties, inclusive=order.inclusive)
    if step == "top_k_top_p":
        return keep_joint(rows, sampling.top_k, sampling.top_p, ties=order.ties, inclusive=order.inclusive)
    if step == "min_p":
        return filter_logits(rows, top_k=None, top_p=None, min_p=sampling.min_p)
    if step == "typical_p":
        return keep_typical(rows, sampling.typical_p, ties=order.ties)
    return keep_top_n_sigma(rows, sampling.top_n_sigma)
