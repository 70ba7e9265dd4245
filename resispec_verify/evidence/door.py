"""The public functions of evidence: they check what they are handed, and call those that trust it.

Inside the package the functions behind them are called: `enumeration.operational_marginals`,
`path_identity.path_identity`, `kernels.transport.transport_limit` and `rules.resispec.get_proxy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.evidence import enumeration
from resispec_verify.evidence import path_identity as identity
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import Marginals
from resispec_verify.inputs import MOST_CANDIDATES, laws, real, shown, token_ids, whole
from resispec_verify.kernels.elementwise.residuals import Proxy
from resispec_verify.kernels.optimal import transport
from resispec_verify.rules.given import given_proposal, given_rule, is_ours
from resispec_verify.rules.interface import Rule
from resispec_verify.rules.shipped import resispec

__all__ = ["get_proxy", "operational_marginals", "path_identity", "transport_limit"]


def _as(trusting: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a public function the name and the documentation of the one behind it."""

    def decorate(checked: Callable[..., Any]) -> Callable[..., Any]:
        return functools.update_wrapper(
            checked, trusting, assigned=("__name__", "__qualname__", "__doc__"), updated=()
        )

    return decorate


@_as(enumeration.operational_marginals)
def operational_marginals(
    rule: Any,
    target: Array,
    draft: Array,
    candidates: int,
    *,
    drawn_from: Array = None,
    proposal: Array = None,
    budget: Budget | None = None,
) -> Marginals:
    """See `enumeration.operational_marginals`."""
    chosen = given_rule(rule)
    n = whole("candidates", candidates, 0, MOST_CANDIDATES)
    drawn = given_proposal(proposal)
    _check_budget(budget)
    rows = laws(dimensions=2, target=target, draft=draft, drawn_from=drawn_from)
    found = enumeration.operational_marginals(
        chosen,
        rows["target"],
        rows["draft"],
        n,
        drawn_from=rows.get("drawn_from"),
        proposal=drawn,
        budget=budget,
    )
    if not is_ours(chosen):
        _check_placed(chosen, found)
    return found


@_as(identity.path_identity)
def path_identity(
    target: Array, draft: Array, proxy: Callable[[Any, Any, Any], Any], candidates: Array, rounds: int
) -> Array:
    """See `path_identity.path_identity`."""
    rows = laws(dimensions=2, target=target, draft=draft)
    n = whole("rounds", rounds, 0, MOST_CANDIDATES)
    if not callable(proxy):
        raise InputError(
            "proxy must be a function of the current target, the draft and the tokens, such as "
            f"ResiSpec().proxy; got {shown(proxy)}"
        )
    if not callable(candidates):
        count, vocab = rows["target"].shape
        candidates = token_ids("candidates", candidates, vocab, (count, None), rows["target"])
    return identity.path_identity(rows["target"], rows["draft"], proxy, candidates, n)


@_as(transport.transport_limit)
def transport_limit(target: Array, draft: Array, candidates: int) -> Array:
    """See `transport.transport_limit`."""
    n = whole("candidates", candidates, 0, MOST_CANDIDATES)
    rows = laws(target=target, draft=draft)
    return transport.transport_limit(rows["target"], rows["draft"], n)


@_as(resispec.get_proxy)
def get_proxy(target: Array, draft: Array, rejected: int, **options: Any) -> Proxy:
    """See `resispec.get_proxy`."""
    rows = laws(dimensions=1, target=target, draft=draft)
    token = whole("rejected", rejected, 0, rows["target"].shape[0] - 1)
    return resispec.get_proxy(rows["target"], rows["draft"], token, **options)


def _check_budget(budget: Any) -> None:
    if budget is None:
        return
    if not isinstance(budget, Budget):
        raise InputError(f"budget must be a Budget, such as Budget(gap=0.0); got {shown(budget)}")
    if not 0 <= real("budget.gap", budget.gap) <= 1:
        raise InputError(f"budget.gap must be in [0, 1], got {budget.gap:g}")
    for name in ("most_paths", "most_states"):
        if not real(f"budget.{name}", getattr(budget, name)) >= 0:
            raise InputError(f"budget.{name} must be at least 0, got {getattr(budget, name):g}")


def _check_placed(rule: Rule, found: Marginals) -> None:
    """A rule from outside may return anything; a verdict on NaN would be none."""
    xp = array_namespace(found.placed)
    good = xp.all(xp.isfinite(found.placed), axis=-1)
    if not bool(xp.all(good)):
        i = int(np.argmin(to_numpy(good)))
        raise InputError(
            f"rule {rule.name!r} gave probabilities that are not finite, at row {i}; "
            "look for a division by 0 in its methods"
        )
