"""Laws of which only the most probable tokens were logged: what holds for every completion of their tails.

The mathematics is in docs/explanation/top-k-bounds.md.
"""

from resispec_verify.topk.bounds import Bounds, bounds, least_k
from resispec_verify.topk.cutting import cut, cut_logits, shorten
from resispec_verify.topk.reduction import Reduced, reduced

__all__ = ["Bounds", "Reduced", "bounds", "cut", "cut_logits", "least_k", "reduced", "shorten"]
