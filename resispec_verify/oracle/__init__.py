"""Slow, exact answers to check fast ones against.

Everything is enumerated in ``fractions.Fraction`` from the papers' own definitions; nothing is shared with
the rest of the package, so an error would have to be made twice to go unseen.
"""

from .engine import Result, State, Transcription, enumerate_rule, independent, without_replacement
from .identity import PathIdentity, path_identity
from .laws import Law, as_law, normalise, total_variation
from .limits import limit_by_prefixes, limit_by_program, limit_by_subsets
from .marginals import accept_ratio, marginal, positive_part_residual, resispec, specinfer
from .proxy import Proxy, get_proxy

__all__ = [
    "Law",
    "PathIdentity",
    "Proxy",
    "Result",
    "State",
    "Transcription",
    "accept_ratio",
    "as_law",
    "enumerate_rule",
    "get_proxy",
    "independent",
    "limit_by_prefixes",
    "limit_by_program",
    "limit_by_subsets",
    "marginal",
    "normalise",
    "path_identity",
    "positive_part_residual",
    "resispec",
    "specinfer",
    "total_variation",
    "without_replacement",
]
