"""The acceptance of one drafted token as a function of p and q, and what rounding may have made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.logged.scalars.precision import FLOAT32
from resispec_verify.rules import PathRule, Rule
from resispec_verify.rules.shipped.sglang import SGLang
from resispec_verify.rules.shipped.specinfer import SpecInfer
from resispec_verify.rules.shipped.speculative import Speculative
from resispec_verify.rules.shipped.token_match import TokenMatch

__all__ = ["Acceptance", "acceptance_of"]


@dataclass(frozen=True)
class Acceptance:
    """``min(1, p / q)``, or with ``target_only`` ``min(1, p / threshold)``, and 1 from ``single`` on."""

    target_only: bool = False
    threshold: float = 1.0
    single: float = 1.0

    def interval(
        self, p: np.ndarray, q: np.ndarray, p_half: np.ndarray, q_half: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The acceptance ``(n,)`` as logged, lowest and highest.

        p and q were rounded as they were written, by half a unit each. The engine itself worked in float32 at
        best: each may be the exponential of a rounded log-probability (``|log p|`` roundoffs), the two
        exponentials, the quotient or product, and the comparison take four more.
        """
        if self.target_only:
            q, q_half = np.full_like(p, self.threshold), np.zeros_like(p)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = FLOAT32 * (4 + sum(np.where(x > 0, np.abs(np.log(x)), 0.0) for x in (p, q)))
            value = np.where(q > 0, p / q, np.where(p > 0, 1.0, 0.0))
            least = np.where(q + q_half > 0, np.maximum(p - p_half, 0.0) * (1 - moved) / (q + q_half), 0.0)
            most = np.where(q > q_half, (p + p_half) * (1 + moved) / (q - q_half), 1.0)
        value, low, high = (np.minimum(x, 1.0) for x in (value, least, most))
        if self.target_only and self.single < 1:
            value, low, high = (
                np.where(x >= self.single, 1.0, y)
                for x, y in ((p, value), (p - p_half, low), (p + p_half, high))
            )
        return value, np.minimum(low, value), np.maximum(high, value)


def acceptance_of(rule: Rule | PathRule, where: str) -> Acceptance:
    """The acceptance of a rule, where it is a function of p and q of the drafted token alone.

    Raises
    ------
    InputError
        Where it is not; ``where`` begins the message.
    """
    if type(rule) in (SpecInfer, Speculative):
        return Acceptance()
    if isinstance(rule, TokenMatch):
        return Acceptance(target_only=True)
    if isinstance(rule, SGLang):
        return Acceptance(True, max(rule.threshold_acc, 1e-9), rule.threshold_single)
    raise InputError(
        f"{where}: its acceptance is not a function of p and q of one token; of scalar logs replay knows "
        "speculative (specinfer), token-match and sglang; log whole rows for others"
    )
