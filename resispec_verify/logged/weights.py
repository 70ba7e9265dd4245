"""Importance weights of logged tokens: what each was drawn from under a rule, and ``p / mu``.

The law mu of a token is given the text before it and how far its round had come (`node_rules`). Products of
these weights reweigh a text to the target: with ``L_t = prod p(y_s) / mu_s(y_s)`` and any function f of the
text, ``E_mu[f L_T]`` is ``E_p[f]``, as long as mu is positive wherever p is. For ``E_mu[L_T f | before the
last token] = L_(T-1) sum_y p(y) f``, which is a function of the text alone again; and so on to the front.

A law that is known up to a gap gives an interval. All columns are pairs, low and high, of what is certified.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.logged.node_rules import Laws
from resispec_verify.rules import Block, Rule

__all__ = ["TRUNCATE", "Weights"]

#: Default truncation: weights above it count as it.
TRUNCATE = 2.0
_COLUMNS = (
    "text", "request", "position", "round", "depth", "token", "log_p", "log_mu", "log_weight", "truncated",
    "lost", "kept", "tv", "gap", "rounding", "impossible",
)  # fmt: skip


@dataclass
class Weights:
    """Weights by token, in the order of the log.

    Attributes
    ----------
    path, rule
        What was weighed, and under which rule.
    candidates : int
        Candidates a position.
    truncate : float
        C of the truncated weights ``min(w, C)``.
    text : list of int or None
        Which text, counted from 0; None where positions are of no known text.
    request : list of int, str or None
        The text's prompt as the dump names it; several texts may be of one.
    position : list of int
        Index in the text, from its first logged token on; in the dump where there is no text.
    round, depth : list of int or None
        Where in the rounds; depth counts from 0.
    token : list of int
    log_p : list of float
    log_mu, log_weight, truncated : list of (float, float)
        Low and high: logarithms of mu and of ``w = p / mu``, and ``min(w, C)``.
    lost : list of (float, float)
        Mass of p where mu is 0.
    kept : list of (float, float)
        ``sum min(p, C mu)``: the mean of the truncated weight.
    tv, gap, rounding : list of float
        Upper bound on the total variation of mu and p; what of mu has no place; bound on its rounding.
    impossible : list of bool
        Whether the token cannot have been drawn from mu.
    temperatures : list of float
    notes : list of str
    """

    path: str
    rule: Rule | Block
    candidates: int
    truncate: float
    text: list[int | None] = field(default_factory=list)
    request: list[Any] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    round: list[int | None] = field(default_factory=list)
    depth: list[int | None] = field(default_factory=list)
    token: list[int] = field(default_factory=list)
    log_p: list[float] = field(default_factory=list)
    log_mu: list[tuple[float, float]] = field(default_factory=list)
    log_weight: list[tuple[float, float]] = field(default_factory=list)
    truncated: list[tuple[float, float]] = field(default_factory=list)
    lost: list[tuple[float, float]] = field(default_factory=list)
    kept: list[tuple[float, float]] = field(default_factory=list)
    tv: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    rounding: list[float] = field(default_factory=list)
    impossible: list[bool] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def place(self, text: int | None, position: int, **others: Any) -> None:
        """Say where the next token is from; ``others`` are of rounds: ``request``, ``round``, ``depth``."""
        self.text.append(text)
        self.position.append(position)
        for name in ("request", "round", "depth"):
            getattr(self, name).append(others.get(name))

    def weigh(self, token: int, p: np.ndarray, laws: Laws, i: int) -> None:
        """Add one token, whose target is ``p (V,)`` and whose law is row i of ``laws``."""
        placed, gap, slack = laws.placed[i], float(laws.gap[i]), float(laws.rounding[i])
        px, mu = float(p[token]), float(placed[token])
        room = 0.0 if laws.inside and px == 0 else gap
        low, high = max(mu - slack, 0.0), min(mu + slack + room, 1.0)
        impossible = mu == 0 and room == 0
        log_p, log_mu = _log(px), (_down(_log(low)), min(0.0, _up(_log(high))))
        log_weight = (_down(log_p - log_mu[1]), _up(log_p - log_mu[0])) if px > 0 else (-np.inf, -np.inf)
        top = self.truncate
        # Lists of plain numbers: an array that grows by single entries is copied each time.
        self.token.append(token)
        self.log_p.append(log_p)
        self.log_mu.append(log_mu)
        self.log_weight.append(log_weight)
        self.truncated.append(tuple(min(_exp(v), top) for v in log_weight))  # type: ignore[arg-type]
        nowhere = float(p[placed == 0].sum()) if gap == 0 else 0.0
        self.lost.append((nowhere, float(p[placed <= slack].sum())))
        within = float(np.minimum(p, top * placed).sum())
        self.kept.append((max(0.0, within - top * slack), min(1.0, within + top * (slack + gap))))
        self.tv.append(min(1.0, 0.5 * float(np.abs(placed - p).sum() + gap) + slack))
        self.gap.append(gap)
        self.rounding.append(slack)
        self.impossible.append(impossible)

    def sort(self, order: list[int]) -> None:
        """Put the tokens into the order of these numbers, one a token."""
        ranks = np.argsort(order, kind="stable").tolist()
        for name in _COLUMNS:
            values = getattr(self, name)
            setattr(self, name, [values[i] for i in ranks])

    def sequences(self) -> list[tuple[int, int, tuple[float, float]]]:
        """Each text: its number, how many tokens, and the logarithm of the product of their weights."""
        places: dict[int, list[int]] = {}
        for i, text in enumerate(self.text):
            if text is not None:
                places.setdefault(text, []).append(i)
        ends = np.asarray(self.log_weight, np.float64).reshape(-1, 2)
        return [
            (text, len(rows), (float(ends[rows, 0].sum()), float(ends[rows, 1].sum())))
            for text, rows in places.items()
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        """Every column as an array ``(N,)``, or ``(N, 2)`` where it has a low and a high end.

        -1 stands for None.
        """
        columns = {name: [-1 if v is None else v for v in getattr(self, name)] for name in _COLUMNS}
        return {name: np.asarray(values) for name, values in columns.items()}

    def records(self) -> list[dict[str, Any]]:
        """One record a token: pairs are two columns, ``_low`` and ``_high``."""
        found = []
        for i in range(len(self.token)):
            record: dict[str, Any] = {
                name: getattr(self, name)[i] for name in _COLUMNS[: _COLUMNS.index("log_p")]
            }
            record["log_p"] = self.log_p[i]
            for name in ("log_mu", "log_weight", "truncated"):
                low, high = getattr(self, name)[i]
                record |= {f"{name}_low": low, f"{name}_high": high}
            found.append(record)
        return found


# A logarithm, of a difference or sum that was rounded, and its difference with another.
_ROUNDED = 4 * float(np.finfo(np.float64).eps)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf


def _exp(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(value))


def _down(value: float) -> float:
    """Below what rounding may have done to a logarithm or a difference of two."""
    return value - _ROUNDED * (1 + abs(value)) if np.isfinite(value) else value


def _up(value: float) -> float:
    return value + _ROUNDED * (1 + abs(value)) if np.isfinite(value) else value
