"""Slow, exact answers to check fast ones against.

Everything is enumerated in ``fractions.Fraction`` from the papers' own definitions; nothing is shared with
the rest of the package, so an error would have to be made twice to go unseen. `oracle.shipped` holds the
transcriptions of the rules.
"""

from .engine import Result, State, Transcription, enumerate_rule, independent, without_replacement
from .exact_programs import Uncertified
from .identity import PathIdentity, path_identity
from .laws import Law, as_law, normalise, total_variation
from .limits import (
    limit_by_prefixes,
    limit_by_subsets,
    limit_fixed,
    limit_of_tuples,
    limit_pairs,
    limit_without_replacement,
    probability_inside,
)
from .marginals import marginal
from .paths import block_law, complete, memoryless, rotating, sequence_law, stopped_law
from .programs import (
    least_distance,
    limit_by_program,
    masses_by_program,
    sequential_limit_by_program,
    sequential_optimum_by_histories,
)
from .proposals import PROPOSALS, fixed, hub_pairs, shuffled
from .proxy import Proxy, get_proxy
from .registry import MARGINALS, PATH_RULES, TREE_RULES
from .sequences import chain_law, emitted_law, reused_coins, reused_race, step_law
from .shipped.k_seq import k_seq_rho
from .shipped.optimal_joint import best_pieces
from .shipped.optimal_sequential import sequential_limit, sequential_times
from .shipped.resispec import resispec
from .shipped.spechub import spechub
from .shipped.specinfer import specinfer
from .steps import accept_ratio, positive_part_residual
from .tree_programs import (
    TreeOptimum,
    longest_by_node,
    longest_step,
    path_sets,
    sum_bound,
)
from .trees import drawn_trees, fork, node_law, tree_law

__all__ = [
    "MARGINALS",
    "PATH_RULES",
    "PROPOSALS",
    "TREE_RULES",
    "Law",
    "PathIdentity",
    "Proxy",
    "Result",
    "State",
    "Transcription",
    "TreeOptimum",
    "Uncertified",
    "accept_ratio",
    "as_law",
    "best_pieces",
    "block_law",
    "chain_law",
    "complete",
    "drawn_trees",
    "emitted_law",
    "enumerate_rule",
    "fixed",
    "fork",
    "get_proxy",
    "hub_pairs",
    "independent",
    "k_seq_rho",
    "least_distance",
    "limit_by_prefixes",
    "limit_by_program",
    "limit_by_subsets",
    "limit_fixed",
    "limit_of_tuples",
    "limit_pairs",
    "limit_without_replacement",
    "longest_by_node",
    "longest_step",
    "marginal",
    "masses_by_program",
    "memoryless",
    "node_law",
    "normalise",
    "path_identity",
    "path_sets",
    "positive_part_residual",
    "probability_inside",
    "resispec",
    "reused_coins",
    "reused_race",
    "rotating",
    "sequence_law",
    "sequential_limit",
    "sequential_limit_by_program",
    "sequential_optimum_by_histories",
    "sequential_times",
    "shuffled",
    "spechub",
    "specinfer",
    "step_law",
    "stopped_law",
    "sum_bound",
    "total_variation",
    "tree_law",
    "without_replacement",
]
