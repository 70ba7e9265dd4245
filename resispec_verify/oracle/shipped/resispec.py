"""ResiSpec's Algorithm 1 as printed, and the combinations of its Table 2 and Appendix C."""

from __future__ import annotations

from ..engine import State, Transcription
from ..registry import transcribes
from ..steps import accept_ratio, drop_token, proxy_residual

__all__ = ["resispec", "sequoia_resispec"]


@transcribes("resispec")
@transcribes("eagle+resispec", "fixed")
def resispec(**options: str) -> Transcription:
    """ResiSpec; `options` are those of `get_proxy`.

    With EAGLE-2's candidates test and residual both take the soft q: an assumption, the paper does not say.
    """
    return Transcription(
        accept=accept_ratio, reject=lambda state, token: proxy_residual(state, token, **options)
    )


@transcribes("sequoia+resispec", "without-replacement")
def sequoia_resispec(**options: str) -> Transcription:
    """Sequoia's candidates and test with ResiSpec's residual, GetProxy(R, D, x); then D as in Sequoia."""

    def reject(state: State, token: int) -> State:
        return drop_token(proxy_residual(state, token, **options), token)

    return Transcription(accept=accept_ratio, reject=reject)
