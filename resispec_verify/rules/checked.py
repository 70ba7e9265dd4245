"""Rules that come from outside: their interface is checked before a run, and what they return during it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.rules.foreign import guarded
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.path_rule import PathRule
from resispec_verify.rules.proposals import Greedy, Iid, Pairs, WithoutReplacement
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = ["CheckedProposal", "CheckedRule", "check_interface", "check_proposal"]

_DEPENDS_ON = ("nothing", "token")
_OUR_PROPOSALS = (Iid, WithoutReplacement, Greedy, Pairs)
# A law of V terms rounds by about V units at worst; far below what a fault loses.
_SUM_TOLERANCE = 1e-6


def check_interface(rule: Any, where: str) -> Rule:
    """The rule, checked as far as that is possible without running it.

    Parameters
    ----------
    rule : class or instance
        A subclass of `Rule`, constructed without arguments if it is a class.
    where : str
        What to call it in messages.

    Raises
    ------
    InputError
        Not a `Rule`, a missing method or attribute, an attribute of the wrong kind.
    """
    kind = rule if isinstance(rule, type) else type(rule)
    for unfit, what in ((TupleRule, "read the whole tuple"), (PathRule, "verify whole paths")):
        if issubclass(kind, unfit):
            raise InputError(f"{where}: rules that {what} cannot be loaded from a file")
    if not issubclass(kind, Rule):
        raise InputError(f"{where} is not a rule: subclass resispec_verify.Rule")
    with guarded(where):
        if "reject" in getattr(kind, "__abstractmethods__", ()):
            raise InputError("the method reject(state, tokens) is missing")
        for name in ("name", "claims_exact", "source", "depends_on"):
            if not hasattr(rule, name):
                raise InputError(f"the attribute {name} is missing")
    if isinstance(rule, type):
        with guarded(f"{where}: {kind.__name__}()"):
            rule = kind()
        if not isinstance(rule, kind):
            raise InputError(f"{where}: {kind.__name__}() must return a {kind.__name__}, got {_kind(rule)}")
    with guarded(where):
        _check_attributes(rule)
        check_proposal(rule.proposal)
    return rule


def _check_attributes(rule: Any) -> None:
    """Of the instance: its own attributes come before those of its class."""
    for name in ("name", "source"):
        value = getattr(rule, name)
        if not (isinstance(value, str) and value.strip() and value.isprintable()):
            raise InputError(f"{name} must be a text of one line, got {_shown(value)}")
    for name in ("claims_exact", "stays_in_support", "rejects_its_residual"):
        if not isinstance(getattr(rule, name), bool):
            raise InputError(f"{name} must be True or False, got {_shown(getattr(rule, name))}")
    if not (isinstance(rule.depends_on, str) and rule.depends_on in _DEPENDS_ON):
        raise InputError(f"depends_on must be nothing or token, got {_shown(rule.depends_on)}")
    least, most = rule.least_candidates, rule.most_candidates
    if type(least) is not int or least < 0:
        raise InputError(f"least_candidates must be a whole number of at least 0, got {_shown(least)}")
    if most is not None and (type(most) is not int or most < max(least, 1)):
        raise InputError(
            f"most_candidates must be None or a whole number of at least {max(least, 1)}, got {_shown(most)}"
        )


def check_proposal(proposal: Array) -> None:
    """Raise `InputError` unless a value has what a `Proposal` must have."""
    if isinstance(proposal, type):
        raise InputError(f"proposal must be a value, not a class: say {proposal.__name__}()")
    signatures = {"next": "next(draft, drawn)", "limit": "limit(target, draft, candidates)"}
    for name, signature in signatures.items():
        if not callable(getattr(proposal, name, None)):
            raise InputError(f"proposal must have a method {signature}, got {_shown(proposal)}")
    name = getattr(proposal, "name", None)
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise InputError(f"proposal must have a name, a text of one line, got {_shown(name)}")
    if not isinstance(getattr(proposal, "distinct", False), bool):
        raise InputError(f"proposal.distinct must be True or False, got {_shown(proposal.distinct)}")


def _kind(value: Any) -> str:
    return type(value).__name__


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class _Checks:
    """What may be wrong with an array, named by ``where`` and the method that returned it."""

    where: str

    def call(self, method: str, run: Callable[[], Any]) -> Any:
        with guarded(f"{self.where}: {method}"):
            return run()

    def error(self, message: str) -> InputError:
        return InputError(f"{self.where}: {message}")

    def array(self, what: str, value: Any, shape: tuple[int, ...], like: Any) -> None:
        """An array of the shape, kind and dtype of its input; another dtype voids the rounding bounds."""
        if type(value) is not type(like):
            raise self.error(
                f"{what} must be an array of shape {shape}, got {_kind(value)}; its input is a {_kind(like)}"
            )
        if tuple(value.shape) != shape:
            raise self.error(f"{what} must have shape {shape}, got {tuple(value.shape)}")
        if value.dtype != like.dtype:
            raise self.error(
                f"{what} must be {like.dtype} like its input, got {value.dtype}; convert it with "
                f"astype({str(like.dtype).rpartition('.')[2]})"
            )

    def probabilities(self, what: str, value: Any) -> Array:
        """Each in [0, 1]; what is above 1 by rounding is 1, as it is for a sampler's coin."""
        xp = array_namespace(value)
        # NaN fails both comparisons.
        if not bool(xp.all((value >= 0.0) & (value <= 1.0 + _SUM_TOLERANCE))):
            raise self.error(f"{what} must lie in [0, 1], got {_worst(value):.6g}")
        return xp.clip(value, None, 1.0)

    def law(self, what: str, value: Any, least: float) -> None:
        """Non-negative rows with a sum of at least ``least`` and at most 1."""
        xp = array_namespace(value)
        if not bool(xp.all(value >= 0.0)):
            raise self.error(f"{what}, got an entry of {_worst(value):.6g}")
        slack = _SUM_TOLERANCE + value.shape[-1] * float(xp.finfo(value.dtype).eps)
        total = xp.sum(value, axis=-1)
        good = (total >= least - slack) & (total <= 1.0 + slack)
        if not bool(xp.all(good)):
            wrong = int(xp.argmin(xp.astype(xp.reshape(good, (-1,)), xp.int32)))
            raise self.error(f"{what}, but sums to {float(xp.reshape(total, (-1,))[wrong]):.6g}")


def _worst(values: Array) -> float:
    xp = array_namespace(values)
    if bool(xp.any(xp.isnan(values))):
        return float("nan")
    low, high = float(xp.min(values)), float(xp.max(values))
    return low if low < 0 else high


@dataclass(frozen=True, eq=False)
class CheckedProposal:
    """A proposal from outside, whose results are checked as they are used. Equal to itself alone.

    Not an `Iid` even where it derives from it: its own `next` may be another law.
    """

    proposal: Any
    where: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.proposal.name)
        object.__setattr__(self, "distinct", getattr(self.proposal, "distinct", False))

    def limit(self, target: Array, draft: Array, candidates: int) -> Array:
        """Checked to be None, or probabilities ``(...,)``."""
        checks, what = _Checks(self.where), "proposal.limit(target, draft, candidates)"
        found = checks.call("proposal.limit", lambda: self.proposal.limit(target, draft, candidates))
        if found is None:
            return None
        checks.array(what, found, tuple(target.shape[:-1]), target)
        return checks.probabilities(what, found)

    def next(self, draft: Array, drawn: tuple[Any, ...]) -> Array:
        """Checked to be probabilities ``(..., V)`` that sum to at most 1."""
        checks, what = _Checks(self.where), "proposal.next(draft, drawn)"
        law = checks.call("proposal.next", lambda: self.proposal.next(draft, drawn))
        checks.array(what, law, tuple(draft.shape), draft)
        checks.law(f"{what} must hold probabilities that sum to at most 1", law, 0.0)
        return law


@dataclass(frozen=True, eq=False)
class CheckedRule(Rule):
    """A rule from outside, whose results are checked as they are used.

    Everything is handed on to ``rule``; what that prints goes to standard error. Raises `InputError` when it
    raises or exits, or returns something of another kind, shape or dtype than its input, an acceptance that
    is NaN or outside [0, 1], a state that is not finite, or a final law that is not a distribution.

    Attributes
    ----------
    rule : Rule
    where : str
        What to call it in messages.
    """

    rule: Rule
    where: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "claims_exact", "source", "depends_on", "most_candidates", "least_candidates",
                     "proposal", "stays_in_support", "rejects_its_residual"):  # fmt: skip
            object.__setattr__(self, name, getattr(self.rule, name))
        if type(self.proposal) not in _OUR_PROPOSALS:
            object.__setattr__(self, "proposal", CheckedProposal(self.proposal, self._checks.where))

    @property
    def _checks(self) -> _Checks:
        return _Checks(self.where or self.rule.name)

    def options(self) -> dict[str, str]:
        """Those of the rule."""
        return self.rule.options()

    def changed_options(self) -> dict[str, str]:
        """Those of the rule."""
        return self.rule.changed_options()

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Checked to be a `State` of the shape of its arguments."""
        state = self._checks.call("start", lambda: self.rule.start(target, draft, candidates))
        return self._state("start(target, draft, candidates)", state, tuple(target.shape), 0, target)

    def accept(self, state: State) -> Array:
        """Checked to be probabilities of the shape of the residual."""
        accept = self._checks.call("accept", lambda: self.rule.accept(state))
        self._checks.array("accept(state)", accept, tuple(state.residual.shape), state.residual)
        return self._checks.probabilities("accept(state)", accept)

    def reject(self, state: State, tokens: Array) -> State:
        """Checked to be a `State` one round on, one row a rejected token."""
        after = self._checks.call("reject", lambda: self.rule.reject(state, tokens))
        shape = tuple(state.residual.shape)
        if tokens is not None:
            shape = (*shape[:-1], tokens.shape[-1], shape[-1])
        return self._state("reject(state, tokens)", after, shape, state.round + 1, state.residual)

    def final(self, state: State) -> Array:
        """Checked to be a distribution of the shape of the residual."""
        law = self._checks.call("final", lambda: self.rule.final(state))
        self._checks.array("final(state)", law, tuple(state.residual.shape), state.residual)
        self._checks.law("final(state) must be a distribution", law, 1.0)
        return law

    def proxy(self, current: Array, draft: Array, token: Array) -> Array:
        """The rule's own; checked to be finite where there is one."""
        k = self._checks.call("proxy", lambda: self.rule.proxy(current, draft, token))
        if k is not None:
            self._checks.array("proxy(current, draft, token)", k, tuple(current.shape), current)
            self._finite("proxy(current, draft, token)", k)
        return k

    def dry_run(self, candidates: int) -> None:
        """Go through every method on a toy pair, as the engines call them: one row, and a batch of rows."""
        p, q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.3, 0.5])
        rows = np.stack([p, q]), np.stack([q, p])
        n = self.verifiable(candidates)
        if isinstance(self.proposal, CheckedProposal):
            for drawn in ((), (np.asarray(2),))[: max(n, 1)]:
                self.proposal.next(q, drawn)
            self.proposal.limit(*rows, n)
        for target, draft in [(p, q), rows] if self.depends_on == "nothing" else [(p, q)]:
            state = self.start(target, draft, n)
            self.accept(state)
            self.final(self.reject(state, None if self.depends_on == "nothing" else np.asarray([2, 1])))

    def _state(self, call: str, state: Any, shape: tuple[int, ...], number: int, like: Any) -> State:
        if not isinstance(state, State):
            raise self._checks.error(f"{call} must return a State, got {_kind(state)}")
        for name in ("residual", "draft"):
            value = getattr(state, name)
            self._checks.array(f"{call}: {name}", value, shape, like)
            self._finite(f"{call}: {name}", value)
        if type(state.round) is not int or state.round != number:
            raise self._checks.error(f"{call}: round must be {number}, got {_shown(state.round)}")
        if not isinstance(state.extra, Mapping):
            raise self._checks.error(
                f"{call}: extra must be a mapping of names to arrays, got {_kind(state.extra)}"
            )
        for name, value in state.extra.items():
            if tuple(getattr(value, "shape", ()))[: len(shape) - 1] != shape[:-1]:
                raise self._checks.error(
                    f"{call}: extra[{name!r}] must be an array of shape {(*shape[:-1], '...')}"
                )
        return state

    def _finite(self, what: str, value: Any) -> None:
        xp = array_namespace(value)
        if not bool(xp.all(xp.isfinite(value))):
            raise self._checks.error(
                f"{what} must be finite, got NaN or infinity; see kernels.residuals.normalize for a division "
                "where nothing is left"
            )
