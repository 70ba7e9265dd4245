"""EAGLE with ResiSpec's residual: top-k siblings of one parent, tested and shaped with the soft draft.

ResiSpec, arXiv 2608.24411, Table 2 and Appendix C ("applied only to consecutive candidate siblings that
share the same parent node", updating p and q "exactly as in the ResiSpec recurrence"). Siblings are the
draft's top-k; accept with ``min(1, R/q)``; after rejecting x the residual is ``norm((R - k)_+)`` with k
from GetProxy(R, q, x).

Guarantee: the paper claims exactness; it is not exact, and not at n = 1 either: siblings that are ranked
are tested as if they had been drawn. Assumption: test and GetProxy both use the soft q, kept as it is; the
paper does not say, and with EAGLE's own D = 1 GetProxy would have the whole of the residual for a budget.
The options are ResiSpec's. No further deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

from resispec_verify.rules.proposals import Greedy
from resispec_verify.rules.shipped.resispec import ShapedRule

__all__ = ["EagleResiSpec"]


@dataclass(frozen=True)
class EagleResiSpec(ShapedRule):
    """EAGLE's candidates, ResiSpec's test and residual."""

    name = "eagle+resispec"
    source = "ResiSpec, Table 2 (arXiv 2608.24411)"
    place = 170
    proposal = Greedy()
