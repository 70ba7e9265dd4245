"""Evidence: a rule and a pair become a marginal with a certified gap."""

from resispec_verify.evidence.door import get_proxy, operational_marginals, path_identity, transport_limit
from resispec_verify.evidence.marginal import Marginals
from resispec_verify.evidence.path_identity import draw_candidates

__all__ = [
    "Marginals",
    "draw_candidates",
    "get_proxy",
    "operational_marginals",
    "path_identity",
    "transport_limit",
]
