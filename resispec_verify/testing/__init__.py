"""For the tests of other projects: is our sampler lossless?

``assert_lossless(sampler)`` draws from a sampler and fails with a readable report where its draws cannot come
from the target; see the page "Checking a sampler" of the documentation. `strategies` has pairs for
Hypothesis, and `plugin` is loaded by pytest by itself; names are imported on first use, so that it costs
nothing there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resispec_verify.testing.assertions import assert_draft_as_declared, assert_lossless

__all__ = ["assert_draft_as_declared", "assert_lossless"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.assertions"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
