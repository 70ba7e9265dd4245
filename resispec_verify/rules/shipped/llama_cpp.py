"""llama.cpp's example ``speculative``: top-ranked candidates, tested as if they had been drawn from q.

ggml-org/llama.cpp, examples/speculative: the draft's tokens are taken in order of rank, but tested with
``min(1, p/q)``, and a rejection leaves ``norm((p - q)_+)``, as if the candidate were a draw from q. Several
siblings are tested one after the other with the residual of the one before.

Guarantee: none; the rule is speculative sampling (n = 1) or SpecInfer, and would be exact for candidates that
are drawn. With ranked ones it is not: the best token is proposed always instead of with probability q.
Assumption: ties go to the lowest index. No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resispec_verify.rules.proposals import Greedy
from resispec_verify.rules.shipped.specinfer import SpecInfer

__all__ = ["LlamaCpp"]


@dataclass(frozen=True)
class LlamaCpp(SpecInfer):
    """SpecInfer's test for candidates that were ranked, not drawn."""

    name = "llama-cpp"
    source = "llama.cpp, examples/speculative"
    place = 110
    proposal = Greedy()

    def proxy(self, current: Any, draft: Any, token: Any) -> Any:
        """None: ranked candidates have no proxy."""
        return None
