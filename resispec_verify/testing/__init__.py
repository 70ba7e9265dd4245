"""For the tests of other projects: is our sampler lossless?

``assert_lossless(sampler)`` draws from a sampler and fails with a readable report where its draws cannot come
from the target; see the page "Check a sampler" of the documentation. ``served_from(rng)`` lets a sampler
that draws from torch, NumPy's global generator or ``random`` draw from the one it is given. `strategies` has
pairs for Hypothesis, and `plugin` is loaded by pytest by itself; names are imported on first use, so that it
costs nothing there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resispec_verify.testing.assertions import assert_draft_as_declared, assert_lossless
    from resispec_verify.testing.uniforms import served_from

__all__ = ["assert_draft_as_declared", "assert_lossless", "served_from"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "uniforms" if name == "served_from" else "assertions"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
