"""Verification rules, one a file of `rules.shipped`.

The interface costs nothing to import. The shipped rules, by class name, and the tables of them need compiled
kernels, and are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from resispec_verify.rules.interface import Rule as Rule
from resispec_verify.rules.interface import State as State
from resispec_verify.rules.path_rule import PathRule as PathRule
from resispec_verify.rules.proposals import Greedy as Greedy
from resispec_verify.rules.proposals import Iid as Iid
from resispec_verify.rules.proposals import Pairs as Pairs
from resispec_verify.rules.proposals import Proposal as Proposal
from resispec_verify.rules.proposals import WithoutReplacement as WithoutReplacement
from resispec_verify.rules.tree_rule import TreeRule as TreeRule
from resispec_verify.rules.tuple_rule import TupleRule as TupleRule

if TYPE_CHECKING:
    # For type checkers alone, and asked of no new rule: its class is found by its name all the same, and type
    # checkers see it in its own file.
    from resispec_verify.rules.registry import NEED_PARAMETERS as NEED_PARAMETERS
    from resispec_verify.rules.registry import PATH_RULES as PATH_RULES
    from resispec_verify.rules.registry import RULES as RULES
    from resispec_verify.rules.registry import SHIPPED as SHIPPED
    from resispec_verify.rules.registry import TREE_RULES as TREE_RULES
    from resispec_verify.rules.registry import make_path_rule as make_path_rule
    from resispec_verify.rules.registry import make_rule as make_rule
    from resispec_verify.rules.registry import make_tree_rule as make_tree_rule
    from resispec_verify.rules.shipped.block import Block as Block
    from resispec_verify.rules.shipped.csd import CSD as CSD
    from resispec_verify.rules.shipped.eagle import Eagle as Eagle
    from resispec_verify.rules.shipped.eagle_resispec import EagleResiSpec as EagleResiSpec
    from resispec_verify.rules.shipped.easd import EASD as EASD
    from resispec_verify.rules.shipped.gbv import GBV as GBV
    from resispec_verify.rules.shipped.gls import GLS as GLS
    from resispec_verify.rules.shipped.hsd import HSD as HSD
    from resispec_verify.rules.shipped.k_seq import KSeq as KSeq
    from resispec_verify.rules.shipped.llama_cpp import LlamaCpp as LlamaCpp
    from resispec_verify.rules.shipped.medusa import Medusa as Medusa
    from resispec_verify.rules.shipped.openvino import OpenVINO as OpenVINO
    from resispec_verify.rules.shipped.optimal_joint import OptimalJoint as OptimalJoint
    from resispec_verify.rules.shipped.optimal_sequential import OptimalSequential as OptimalSequential
    from resispec_verify.rules.shipped.optimal_siblings import OptimalSiblings as OptimalSiblings
    from resispec_verify.rules.shipped.optimal_without_replacement import (
        OptimalWithoutReplacement as OptimalWithoutReplacement,
    )
    from resispec_verify.rules.shipped.redraw import Redraw as Redraw
    from resispec_verify.rules.shipped.relaxed import Relaxed as Relaxed
    from resispec_verify.rules.shipped.resispec import ResiSpec as ResiSpec
    from resispec_verify.rules.shipped.resispec import get_proxy as get_proxy
    from resispec_verify.rules.shipped.sequoia import Sequoia as Sequoia
    from resispec_verify.rules.shipped.sequoia_resispec import SequoiaResiSpec as SequoiaResiSpec
    from resispec_verify.rules.shipped.sglang import SGLang as SGLang
    from resispec_verify.rules.shipped.shared_noise import SharedNoise as SharedNoise
    from resispec_verify.rules.shipped.spechub import SpecHub as SpecHub
    from resispec_verify.rules.shipped.spechub import SpecHubForce as SpecHubForce
    from resispec_verify.rules.shipped.specinfer import SpecInfer as SpecInfer
    from resispec_verify.rules.shipped.specinfer_skip_duplicates import (
        SpecInferSkipDuplicates as SpecInferSkipDuplicates,
    )
    from resispec_verify.rules.shipped.speculative import Speculative as Speculative
    from resispec_verify.rules.shipped.synthetic import Synthetic as Synthetic
    from resispec_verify.rules.shipped.token_match import TokenMatch as TokenMatch
    from resispec_verify.rules.shipped.traversal import Traversal as Traversal
    from resispec_verify.rules.shipped.univer import UniVer as UniVer
else:

    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            registry = importlib.import_module(f"{__name__}.registry")
            if name in registry.__all__:
                return getattr(registry, name)
            if name == "get_proxy":
                return importlib.import_module(f"{__name__}.shipped.resispec").get_proxy
            for rule in registry.SHIPPED:
                if rule.__name__ == name:
                    return rule
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
