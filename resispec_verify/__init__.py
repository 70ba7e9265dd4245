"""Is a speculative decoding sampler lossless? Certified answers from logged target and draft logits.

Names are imported on first use, so that ``import resispec_verify`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from resispec_verify import moved

__version__ = "0.2.0"

if TYPE_CHECKING:
    from resispec_verify.api import CheckReport as CheckReport
    from resispec_verify.api import LimitsReport as LimitsReport
    from resispec_verify.api import ReplayReport as ReplayReport
    from resispec_verify.api import Report as Report
    from resispec_verify.api import TopReport as TopReport
    from resispec_verify.api import VerifyReport as VerifyReport
    from resispec_verify.api import WeightsReport as WeightsReport
    from resispec_verify.api import check as check
    from resispec_verify.api import limits as limits
    from resispec_verify.api import replay as replay
    from resispec_verify.api import verify as verify
    from resispec_verify.api import verify_top as verify_top
    from resispec_verify.api import weights as weights
    from resispec_verify.arrays import Array as Array
    from resispec_verify.arrays import ArrayLike as ArrayLike
    from resispec_verify.distributions import Pair as Pair
    from resispec_verify.distributions import Sampling as Sampling
    from resispec_verify.distributions import pair_from_logits as pair_from_logits
    from resispec_verify.distributions import pair_from_probabilities as pair_from_probabilities
    from resispec_verify.dumps import TopPairs as TopPairs
    from resispec_verify.dumps import TopRows as TopRows
    from resispec_verify.dumps import open_dump as open_dump
    from resispec_verify.dumps import open_rounds as open_rounds
    from resispec_verify.dumps import open_target as open_target
    from resispec_verify.dumps import open_top_pairs as open_top_pairs
    from resispec_verify.dumps import open_tree as open_tree
    from resispec_verify.dumps.importers import import_top_pairs as import_top_pairs
    from resispec_verify.dumps.importers import save_top_pairs as save_top_pairs
    from resispec_verify.errors import InputError as InputError
    from resispec_verify.evidence import Marginals as Marginals
    from resispec_verify.evidence import get_proxy as get_proxy
    from resispec_verify.evidence import operational_marginals as operational_marginals
    from resispec_verify.evidence import path_identity as path_identity
    from resispec_verify.evidence import transport_limit as transport_limit
    from resispec_verify.evidence.expansion import Budget as Budget
    from resispec_verify.record import Recorder as Recorder
    from resispec_verify.rules import OptimalSequential as OptimalSequential
    from resispec_verify.rules import ResiSpec as ResiSpec
    from resispec_verify.rules import Rule as Rule
    from resispec_verify.rules import SpecInfer as SpecInfer
    from resispec_verify.rules import Speculative as Speculative
    from resispec_verify.rules import State as State
    from resispec_verify.rules import make_rule as make_rule
    from resispec_verify.verdict import Verdict as Verdict

# The same for the interpreter: where each name comes from.
_NAMES = {
    "api": (
        "CheckReport", "LimitsReport", "ReplayReport", "Report", "TopReport", "VerifyReport", "WeightsReport",
        "check", "limits", "replay", "verify", "verify_top", "weights",
    ),
    "arrays": ("Array", "ArrayLike"),
    "distributions": ("Pair", "Sampling", "pair_from_logits", "pair_from_probabilities"),
    "dumps": (
        "TopPairs", "TopRows", "open_dump", "open_rounds", "open_target", "open_top_pairs", "open_tree",
    ),
    "dumps.importers": ("import_top_pairs", "save_top_pairs"),
    "errors": ("InputError",),
    "evidence.expansion": ("Budget",),
    "evidence": (
        "Marginals", "get_proxy", "operational_marginals", "path_identity", "transport_limit",
    ),
    "record": ("Recorder",),
    "rules": (
        "OptimalSequential", "ResiSpec", "Rule", "SpecInfer", "Speculative", "State", "make_rule",
    ),
    "verdict": ("Verdict",),
}  # fmt: skip
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Array",
    "ArrayLike",
    "Budget",
    "CheckReport",
    "InputError",
    "LimitsReport",
    "Marginals",
    "OptimalSequential",
    "Pair",
    "Recorder",
    "ReplayReport",
    "Report",
    "ResiSpec",
    "Rule",
    "Sampling",
    "SpecInfer",
    "Speculative",
    "State",
    "TopPairs",
    "TopReport",
    "TopRows",
    "Verdict",
    "VerifyReport",
    "WeightsReport",
    "__version__",
    "check",
    "get_proxy",
    "import_top_pairs",
    "limits",
    "make_rule",
    "open_dump",
    "open_rounds",
    "open_target",
    "open_top_pairs",
    "open_tree",
    "operational_marginals",
    "pair_from_logits",
    "pair_from_probabilities",
    "path_identity",
    "replay",
    "save_top_pairs",
    "transport_limit",
    "verify",
    "verify_top",
    "weights",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


moved.install()


def __dir__() -> list[str]:
    return sorted(__all__)
