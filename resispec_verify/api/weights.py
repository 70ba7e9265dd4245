"""``weights``: importance weights of logged tokens; the command ``weights`` from Python."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.api.report import Report
from resispec_verify.api.sources import KINDS, PathLike
from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.evidence.expansion import Budget
from resispec_verify.inputs import MOST_CANDIDATES, real, shown, whole
from resispec_verify.logged.weighing import Weighing, weigh
from resispec_verify.logged.weights import TRUNCATE, Weights
from resispec_verify.logged.weights_summary import summarize_weights
from resispec_verify.report.weights import print_weights
from resispec_verify.rules import PathRule, Rule
from resispec_verify.rules.given import check_counts, given_rule
from resispec_verify.rules.spec import parse_any_rule
from resispec_verify.schema import envelope

__all__ = ["WeightsReport", "weights"]


@dataclass(frozen=True, repr=False)
class WeightsReport(Report):
    """Weights of logged tokens under a rule."""

    result: dict[str, Any]
    weights: Weights

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The columns by name, one entry a token; see `logged.weights.Weights`."""
        return self.weights.arrays()

    @property
    def sequences(self) -> dict[int, tuple[float, float]]:
        """By text, counted from 0: low and high of the logarithm of the product of its weights."""
        return {text: log for text, _, log in self.weights.sequences()}

    @property
    def mean_weight(self) -> tuple[float, float]:
        """Low and high; under the rule it is 1, less what the rule never emits."""
        low, high = np.exp(np.asarray(self.weights.log_weight)).mean(axis=0).tolist()
        return low, high

    @property
    def effective_size(self) -> tuple[float, float]:
        """Bounds on ``(sum w)^2 / sum w^2`` over tokens."""
        low, high = self.result["effective_size"]
        return low, high

    @property
    def verdict(self) -> str:
        """``"rejected"`` where the weights' mean is not what it is under the rule, or ``"not-rejected"``."""
        return self.result["mean_test"]["verdict"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``weights``."""
        return envelope("weights", [self.result])

    def _print(self, console: Any) -> None:
        print_weights(self.result, console)


def weights(
    path: PathLike,
    *,
    rule: str | Rule | PathRule,
    candidates: int | None = None,
    sampling: Sampling | None = None,
    input: str | None = None,
    eos: Collection[int] = (),
    truncate: float = TRUNCATE,
    gap: float = 1e-3,
) -> WeightsReport:
    """What each logged token was drawn from under a rule, and its importance weight ``p / mu``.

    Parameters
    ----------
    path : path
        A rounds dump, or a flat one with ``next_tokens``, or with ``tokens`` of one more than its rows.
    rule : str, Rule or PathRule
        The rule that drew the tokens.
    candidates : int, optional
        Candidates a position of a flat dump. Default: 1.
    sampling : Sampling, optional
        Temperature and filters. Default: what the dump states, or else temperature 1.
    input : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows are. Default: logits, refused where they look like probabilities.
    eos : collection of int
        Tokens that end a text, beside those that a rounds dump states.
    truncate : float
        C of the truncated weights ``min(w, C)``, at least 1.
    gap : float
        Mass of a law that may stay without a place.

    Returns
    -------
    WeightsReport

    Raises
    ------
    InputError
        A log or a rule that gives no weights.
    """
    if not 1 <= real("truncate", truncate) < np.inf:
        raise InputError(f"truncate must be at least 1 and finite, got {truncate:g}")
    if not 0 <= real("gap", gap) <= 1:
        raise InputError(f"gap must be in [0, 1], got {gap:g}")
    if input not in (None, *KINDS):
        raise InputError(f"input must be one of {', '.join(KINDS)}, got {shown(input)}")
    if isinstance(eos, str) or not isinstance(eos, Collection):
        raise InputError(f"eos must be token ids such as (2,), got {shown(eos)}")
    stops = tuple(whole("eos", token) for token in eos)
    if sampling is not None and not isinstance(sampling, Sampling):
        raise InputError(f"sampling must be a Sampling, such as Sampling(0.7); got {shown(sampling)}")
    named = parse_any_rule(rule) if isinstance(rule, str) else rule
    checked = named if isinstance(named, PathRule) else given_rule(named)
    if candidates is not None:
        whole("candidates", candidates, 1, MOST_CANDIDATES)
    if isinstance(checked, Rule):
        check_counts([checked], candidates or 1, "candidates=")
    how = Weighing(
        candidates, {} if sampling is None else dict(vars(sampling)), input, stops, float(truncate),
        Budget(gap, until_decided=False),
    )  # fmt: skip
    found = weigh(path, checked, f"rule {checked.name!r}", how)
    return WeightsReport(summarize_weights(found), found)
