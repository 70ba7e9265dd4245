"""Reported log-probabilities of rounds, held against the rows of the round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.kernels.elementwise.residuals import standard_residual
from resispec_verify.logged.reported import RIGHT, Reported
from resispec_verify.logged.round_rows import UNIT, RoundRows
from resispec_verify.logged.rounds_input import half_ulp

__all__ = ["add_round"]

_PLAIN = Sampling()


def add_round(found: Reported, r: int, entry: Mapping[str, Any], rows: RoundRows, stored: RoundRows) -> None:
    """Add the emitted tokens of round r; ``rows`` are all of the round, and ``stored`` the same without the
    penalties, bias and bans of the sampling, which the raw target does not have.

    A log-probability moves by no more than ``h_y + log E[e^h]``, h how far each logit may be off over the
    temperature; on top come the roundoffs of a float32 log-softmax and of storing what was reported. Which
    tokens a filter keeps is not varied.
    """
    accepted, tokens = entry["accepted"], entry["draft_tokens"].tolist()
    emitted = tokens[:accepted] + ([] if entry["next_token"] is None else [entry["next_token"]])
    values_said = entry["reported"][: len(emitted)]
    tempered = Sampling(rows.sampling.temperature)
    plain = _PLAIN.law_of(stored.target, dtype=np.float64)
    laws = dict(zip(RIGHT, (plain, tempered.law_of(rows.target, dtype=np.float64), rows.p), strict=True))
    for i, (y, reported) in enumerate(zip(emitted, values_said.astype(np.float64).tolist(), strict=True)):
        kind = "accepted" if i < accepted else "ordinary" if not tokens else (
            "corrected" if accepted < len(tokens) else "bonus")  # fmt: skip
        half = float(half_ulp(np.asarray(reported), values_said.dtype))
        here = {
            name: (law[i], stored.target_slack[i], 1.0) if name == RIGHT[0]
            else (law[i], rows.target_slack[i], rows.sampling.temperature)
            for name, law in laws.items()
        }  # fmt: skip
        for name, at in (("before", i - 1), ("after", i + 1)):
            there = 0 <= at < len(plain)
            for what, law, of, t in (
                ("raw ", plain, stored, 1.0), ("", rows.p, rows, rows.sampling.temperature)
            ):  # fmt: skip
                if there:
                    here[f"the target's {what}row {name}"] = (law[at], of.target_slack[at], t)
        if i < len(rows.q):
            t = rows.sampling.temperature
            here["the draft"] = (rows.q[i], rows.draft_slack[i], t)
            if kind == "corrected":
                slack = rows.target_slack[i] + rows.draft_slack[i]
                here["the residual"] = (standard_residual(rows.p[i], rows.q[i]), slack, t)
        values = {name: _value(law, slack, t, y, half) for name, (law, slack, t) in here.items()}
        found.add(kind, np.asarray([r]), np.asarray([reported]), values)


def _value(
    law: np.ndarray, slack: np.ndarray, temperature: float, y: int, half: float
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probability of y, and how far rounding may have moved it or the reported one; ``(1,)`` each."""
    with np.errstate(divide="ignore"):
        value = float(np.log(law[y]))
    if not np.isfinite(value):
        return np.asarray([value]), np.zeros(1)
    moved = half + UNIT * (np.log2(len(law)) + 10 + 4 * abs(value))
    if temperature > 0:
        h = np.minimum(slack / temperature, 300.0)
        moved += float(h[y] + np.log((law * np.exp(h)).sum()))
    return np.asarray([value]), np.asarray([moved])
