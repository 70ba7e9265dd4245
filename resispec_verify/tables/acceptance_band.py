"""What acceptance logged laws let expect: a band for its mean, and for a server's counters."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.dumps import FlatDump
from resispec_verify.evidence.mean_band import mean_band, share_band

__all__ = ["AcceptanceDemand", "expectation", "prompts_of"]


@dataclass(frozen=True)
class AcceptanceDemand:
    """What is demanded of the mean acceptance, or of what a server counted.

    Attributes
    ----------
    least : float or None
        The mean acceptance may not be surely below.
    accepted, drafted : int or None
        What was counted; without ``accepted`` a band for it is given.
    a_step : int
        Draft tokens a step, of which the acceptance is the mean share.
    alpha : float
        Of each band, with everything in it.
    """

    least: float | None
    accepted: int | None
    drafted: int | None
    a_step: int
    alpha: float


def prompts_of(dump: FlatDump) -> list[Hashable] | None:
    """Of which prompt, or text, each position is; None where the dump does not say.

    It does by ``history`` with ``prompt_len``, whose tokens name the prompt, so that it is the same in
    another dump too, or by its rows, such as ``[prompts, positions, vocab]`` (`FlatDump.prompt`).
    """
    if dump.history is not None and dump.prompt_len is not None:
        pairs = zip(dump.history, dump.prompt_len, strict=True)
        return [np.asarray(tokens[: int(length)], np.int64).tobytes() for tokens, length in pairs]
    return None if dump.prompt is None else [(dump.path, row) for row in dump.prompt.tolist()]


def expectation(
    demand: AcceptanceDemand,
    low: Sequence[float],
    high: Sequence[float],
    clusters: Sequence[Hashable],
) -> dict[str, Any]:
    """What is expected, and whether the demands are met.

    Parameters
    ----------
    low, high : sequence of float
        Bounds on the acceptance at each position.
    clusters : sequence of hashable
        Of which prompt each is; prompts are taken to be independent.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(clusters):
        groups.setdefault(key, []).append(i)
    members = list(groups.values())
    low_, high_ = np.asarray(low, np.float64), np.asarray(high, np.float64)
    lows, highs = [low_[m].mean() for m in members], [high_[m].mean() for m in members]
    sizes = [len(m) for m in members]
    band = mean_band(lows, highs, sizes, demand.alpha)
    found: dict[str, Any] = {
        "acceptance": float(low_.mean()),
        "band": list(band),
        "alpha": demand.alpha,
        "independent": len(members),
        "min_acceptance": demand.least,
        "surely_below": None if demand.least is None else band[1] < demand.least,
    }
    if demand.drafted is not None:
        found |= _counted(demand, mean_band(lows, highs, sizes, demand.alpha / 2), demand.drafted)
    return found


def _counted(demand: AcceptanceDemand, band: tuple[float, float], drafted: int) -> dict[str, Any]:
    """Half of alpha is the band's, and half that of the coins."""
    steps = drafted // demand.a_step
    low, high = share_band(*band, steps, demand.alpha / 2)
    least, most = math.ceil(low * drafted), math.floor(high * drafted)
    return {
        "drafted": drafted,
        "accepted_band": [least, most],
        "accepted": demand.accepted,
        "accepted_outside": None if demand.accepted is None else not least <= demand.accepted <= most,
    }
