"""Medusa's typical acceptance: a drafted token passes if the target finds it plausible enough.

Cai et al., Medusa, arXiv 2401.10774 (Section 2.3.1), and its code. Token x_i of a path passes if ``p(x_i) >
min(delta, alpha exp(-H(p)))`` with H the target's entropy there; the longest prefix of passing tokens is
accepted. The code's defaults are delta = 0.09 and alpha = 0.3. The token after it is the target's argmax, by
default: in the paper the first token of the next step is greedy and accepted unconditionally, and the code
does so in its default mode (``fast``). The other choice is a draw from the target.

Guarantee: none; lossy by design, and no coin decides anything. Assumptions: one path (of several, Medusa
takes the one accepted longest). Deviations: the code adds 1e-5 inside the logarithm of the entropy; this
does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import at, one_hot
from resispec_verify.rules.path_rule import PathRule
from resispec_verify.rules.shipped.easd import entropy

__all__ = ["Medusa"]


@dataclass(frozen=True)
class Medusa(PathRule):
    """Typical acceptance of one path.

    Attributes
    ----------
    delta, alpha : float
        Hard threshold, and the factor of ``exp(-H)``.
    correction : {"greedy", "target"}
        The token after the accepted ones: the target's argmax, or a draw from the target.
    """

    delta: float = 0.09
    alpha: float = 0.3
    correction: str = "greedy"

    name = "medusa"
    claims_exact = False
    source = "Medusa, typical acceptance (Cai et al. 2024, arXiv 2401.10774)"
    place = 220

    def __post_init__(self) -> None:
        for name in ("delta", "alpha"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"medusa: {name} must be in [0, 1], got {getattr(self, name)}")
        if self.correction not in ("greedy", "target"):
            raise InputError(f"medusa: correction must be greedy or target, got {self.correction!r}")

    def outcome(self, targets: Array, drafts: Array, path: Any) -> tuple[Array, Array]:
        """See `PathRule.outcome`; the drafts are not looked at."""
        xp = array_namespace(targets, path)
        length, vocab = path.shape[-1], targets.shape[-1]
        threshold = xp.clip(self.alpha * xp.exp(-entropy(targets)), None, self.delta)[..., 0]
        reach = xp.ones(path.shape[:-1], dtype=targets.dtype, device=targets.device)
        lengths = []
        for i in range(length):
            p = at(targets[..., i, :], path[..., i : i + 1])[..., 0]
            passed = xp.where(p > threshold[..., i], reach, 0.0)
            lengths.append(reach - passed)
            reach = passed
        lengths.append(reach)
        rows = targets
        if self.correction == "greedy":
            rows = one_hot(xp.argmax(targets, axis=-1), vocab, dtype=targets.dtype)
        return xp.stack(lengths, axis=-1), rows
