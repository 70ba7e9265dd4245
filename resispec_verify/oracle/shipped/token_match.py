"""Token match: the target draws its own token, and a candidate is accepted when it is that token."""

from __future__ import annotations

from ..engine import Joint
from ..registry import transcribes

__all__ = ["token_match"]


@transcribes("token-match")
def token_match() -> Joint:
    """Each token of the target, at the first place where it is a candidate."""
    return lambda p, q, tokens: [
        (token, tokens.index(token) if token in tokens else None, mass) for token, mass in enumerate(p)
    ]
