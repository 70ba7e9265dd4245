"""Are candidates drawn from the draft that is declared to the verifier? The most common fault in public
reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from resispec_verify.evidence.statistical import detectable, fit_test
from resispec_verify.rules.foreign import reason_of
from resispec_verify.sampler_check.calls import Caller, SamplerError, tokens_of
from resispec_verify.sampler_check.check import CheckResult, CheckSettings
from resispec_verify.sampler_check.outcome import ERROR, interval_of
from resispec_verify.sampler_check.probes import seed_of

__all__ = ["check_declared_draft"]

REASON = "candidates are not drawn from the draft that is declared"


def check_declared_draft(
    draw: Callable[[np.random.Generator], Any],
    *,
    draws: int = 5000,
    alpha: float = 1e-9,
    power: float = 0.99,
    seed: int = 0,
    call_seconds: float = 60.0,
) -> CheckResult:
    """Test the first candidate of each draft against the softmax of its declared logits.

    Parameters
    ----------
    draw : callable (numpy.random.Generator) -> tokens (L,), logits (L, V)
        Called with the same state each time. The law of the first candidate must be the same in all calls.

    Returns
    -------
    CheckResult
    """
    chosen = CheckSettings(alpha=alpha, power=power, draws=draws, seed=seed, call_seconds=call_seconds)
    caller, rng = Caller(draw, call_seconds), np.random.default_rng(seed_of(seed, "declared draft"))
    started = time.monotonic()
    result = CheckResult("not-rejected", [], 0, alpha, alpha, 1, power, seed)
    try:
        _, law = caller.run(lambda: _first(caller.call(rng)))
        test = fit_test(law)
        while test.draws < chosen.draws and result.verdict == "not-rejected":
            found = caller.some(lambda: _first(caller.call(rng)), max(64, test.draws // 8))
            if any(not np.allclose(other, law, rtol=1e-4, atol=1e-7) for _, other in found):
                raise SamplerError(
                    "declared another draft in another call; call it with the same state each time"
                )
            test.update(np.array([token for token, _ in found]))
            if test.log_evidence >= -np.log(alpha):
                result.verdict = result.stopped = "rejected"
    except SamplerError as error:
        result.verdict = result.stopped = "error"
        result.reasons.append(str(error))
        return result
    result.draws, result.seconds = test.draws, time.monotonic() - started
    if result.verdict == "not-rejected":
        result.detectable_tv = detectable(test, alpha, power).tv
        return result
    seen = test.counts / test.draws
    order = np.argsort(-np.abs(seen - law), kind="stable")[:8]
    never = np.flatnonzero((test.counts == 0) & (test.draws * law >= 10))[:8]
    result.reasons.append(REASON)
    result.witness = {
        "kind": "law", "input": "declared draft", "rows": None, "draws": test.draws, "seed": seed,
        "tv_seen": float(0.5 * np.abs(seen - law).sum()), **interval_of(test, ERROR), "dependence": None,
        "differences": [
            {"what": f"token {x}", "target": float(law[x]), "seen": float(seen[x])} for x in order.tolist()
        ],
        "never_emitted": [f"token {x}" for x in never.tolist()],
    }  # fmt: skip
    return result


def _first(answer: Any) -> tuple[int, np.ndarray]:
    """The first candidate, and the law it is said to come from."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise SamplerError("must return a pair: tokens (L,) and the logits (L, V) declared for them")
    tokens, logits = answer
    try:
        logits = np.asarray(logits.double() if hasattr(logits, "double") else logits, np.float64)
    except Exception as error:
        raise SamplerError(f"declared logits that are no array of numbers: {reason_of(error)}") from None
    if logits.ndim != 2 or not logits.size:
        raise SamplerError(f"declared logits of shape {logits.shape}, not (L, V)")
    if np.isnan(logits).any() or not np.isfinite(logits[0].max()):
        raise SamplerError("declared logits that are NaN, or no distribution: the largest must be finite")
    found = tokens_of(tokens, len(logits), logits.shape[1])
    weights = np.exp(logits[0] - logits[0].max())
    return int(found[0]), weights / weights.sum()
