"""Is a speculative decoding sampler lossless? Certified answers from logged target and draft logits.

Names are imported on first use, so that ``import resispec_verify`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Report": "api",
    "check": "api",
    "limits": "api",
    "replay": "api",
    "verify": "api",
    "Budget": "evidence.enumeration",
    "InputError": "errors",
    "Marginals": "evidence.marginal",
    "OptimalSequential": "rules",
    "Pair": "distributions",
    "Recorder": "record",
    "ResiSpec": "rules",
    "Rule": "rules",
    "Sampling": "distributions",
    "SpecInfer": "rules",
    "Speculative": "rules",
    "State": "rules",
    "Verdict": "verdict",
    "get_proxy": "evidence",
    "make_rule": "rules",
    "open_dump": "dumps",
    "open_rounds": "dumps",
    "open_target": "dumps",
    "open_tree": "dumps",
    "operational_marginals": "evidence",
    "pair_from_logits": "distributions",
    "pair_from_probabilities": "distributions",
    "path_identity": "evidence",
    "transport_limit": "evidence",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
