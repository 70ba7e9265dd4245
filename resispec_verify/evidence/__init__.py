"""Evidence: a rule and a pair become a marginal with a certified gap."""

from resispec_verify.evidence.enumeration import operational_marginals
from resispec_verify.evidence.marginal import Marginals
from resispec_verify.evidence.path_identity import draw_candidates, path_identity

__all__ = ["Marginals", "draw_candidates", "operational_marginals", "path_identity"]
