"""Rules that come from outside: their interface is checked before a run, and what they return during it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.errors import InputError
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.tuples import TupleRule

__all__ = ["CheckedRule", "check_interface"]

_DEPENDS_ON = ("nothing", "token")
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
    if not issubclass(kind, Rule):
        raise InputError(f"{where} is not a rule: subclass resispec_verify.Rule")
    if issubclass(kind, TupleRule):
        raise InputError(f"{where}: rules that read the whole tuple cannot be loaded from a file")
    if "reject" in getattr(kind, "__abstractmethods__", ()):
        raise InputError(f"{where}: the method reject(state, tokens) is missing")
    for name in ("name", "claims_exact", "source", "depends_on"):
        if not hasattr(rule, name):
            raise InputError(f"{where}: the attribute {name} is missing")
    for name in ("name", "source"):
        if not isinstance(getattr(rule, name), str) or not getattr(rule, name).strip():
            raise InputError(f"{where}: {name} must be a text, got {getattr(rule, name)!r}")
    if rule.depends_on not in _DEPENDS_ON:
        raise InputError(f"{where}: depends_on must be nothing or token, got {rule.depends_on!r}")
    signatures = {"next": "next(draft, drawn)", "limit": "limit(target, draft, candidates)"}
    for name, signature in signatures.items():
        if not callable(getattr(rule.proposal, name, None)):
            raise InputError(f"{where}: proposal must have a method {signature}, got {rule.proposal!r}")
    if not isinstance(getattr(rule.proposal, "name", None), str):
        raise InputError(f"{where}: proposal must have a name, got {rule.proposal!r}")
    if not isinstance(rule, type):
        return rule
    try:
        return kind()
    except (Exception, SystemExit) as error:
        raise InputError(f"{where}: {kind.__name__}() failed: {_told(error)}") from None


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True, eq=False)
class CheckedRule(Rule):
    """A rule from outside, whose results are checked as they are used.

    Everything is handed on to ``rule``. Raises `InputError` when it raises, or returns something of the wrong
    shape, an acceptance that is NaN or outside [0, 1], or a final law that is not a distribution.

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
                     "proposal", "stays_in_support"):  # fmt: skip
            object.__setattr__(self, name, getattr(self.rule, name))

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        """Checked to be a `State` of the shape of its arguments."""
        state = self._call("start", lambda: self.rule.start(target, draft, candidates))
        return self._state("start(target, draft, candidates)", state, tuple(target.shape), 0, target)

    def accept(self, state: State) -> Any:
        """Checked to be probabilities of the shape of the residual."""
        accept = self._call("accept", lambda: self.rule.accept(state))
        self._shape("accept(state)", accept, tuple(state.residual.shape), state.residual)
        xp = array_namespace(accept)
        # NaN fails both comparisons.
        if not bool(xp.all((accept >= 0.0) & (accept <= 1.0 + _SUM_TOLERANCE))):
            raise self._error(f"accept(state) must lie in [0, 1], got {self._worst(accept):.6g}")
        return accept

    def reject(self, state: State, tokens: Any) -> State:
        """Checked to be a `State` one round on, one row a rejected token."""
        after = self._call("reject", lambda: self.rule.reject(state, tokens))
        shape = tuple(state.residual.shape)
        if tokens is not None:
            shape = (*shape[:-1], tokens.shape[-1], shape[-1])
        return self._state("reject(state, tokens)", after, shape, state.round + 1, state.residual)

    def final(self, state: State) -> Any:
        """Checked to be a distribution of the shape of the residual."""
        law = self._call("final", lambda: self.rule.final(state))
        self._shape("final(state)", law, tuple(state.residual.shape), state.residual)
        xp = array_namespace(law)
        total = xp.sum(law, axis=-1)
        if not bool(xp.all(law >= 0.0)):
            raise self._error(f"final(state) must be a distribution, got an entry of {self._worst(law):.6g}")
        slack = _SUM_TOLERANCE + law.shape[-1] * float(xp.finfo(law.dtype).eps)
        if not bool(xp.all(xp.abs(total - 1.0) <= slack)):
            raise self._error(
                f"final(state) must be a distribution, but sums to {float(xp.reshape(total, (-1,))[0]):.6g}"
            )
        return law

    def proxy(self, current: Any, draft: Any, token: Any) -> Any:
        """The rule's own."""
        return self._call("proxy", lambda: self.rule.proxy(current, draft, token))

    def dry_run(self, candidates: int) -> None:
        """Go through every method on a toy pair, as the engines call them: one row, and a batch of rows."""
        p, q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.3, 0.5])
        law = self._call("proposal.next", lambda: self.proposal.next(q, ()))
        self._shape("proposal.next(draft, drawn)", law, (3,), q)
        if not (law >= 0.0).all() or float(law.sum()) > 1.0 + _SUM_TOLERANCE:
            raise self._error(f"proposal.next(draft, drawn) must hold probabilities, got {law.tolist()}")
        n = candidates if self.most_candidates is None else min(candidates, self.most_candidates)
        shapes = [(p, q), (np.stack([p, q]), np.stack([q, p]))] if self.depends_on == "nothing" else [(p, q)]
        for target, draft in shapes:
            state = self.start(target, draft, n)
            self.accept(state)
            self.final(self.reject(state, None if self.depends_on == "nothing" else np.asarray([2, 1])))

    def _call(self, name: str, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # a rule that exits would make the run look like a success
            raise self._error(f"{name} raised {_told(error)}") from None

    def _state(self, call: str, state: Any, shape: tuple[int, ...], number: int, like: Any) -> State:
        if not isinstance(state, State):
            raise self._error(f"{call} must return a State, got {type(state).__name__}")
        self._shape(f"{call}: residual", state.residual, shape, like)
        self._shape(f"{call}: draft", state.draft, shape, like)
        if state.round != number:
            raise self._error(f"{call}: round must be {number}, got {state.round}")
        for name, value in state.extra.items():
            if tuple(getattr(value, "shape", ()))[: len(shape) - 1] != shape[:-1]:
                raise self._error(f"{call}: extra[{name!r}] must be an array of shape {(*shape[:-1], '...')}")
        return state

    def _shape(self, what: str, value: Any, shape: tuple[int, ...], like: Any) -> None:
        got = getattr(value, "shape", None)
        if got is None:
            raise self._error(f"{what} must be an array of shape {shape}, got {type(value).__name__}")
        if tuple(got) != shape:
            raise self._error(f"{what} must have shape {shape}, got {tuple(got)}")
        if not isinstance(value, type(like)):
            raise self._error(
                f"{what} must be a {type(like).__name__} like its input, got {type(value).__name__}"
            )

    def _worst(self, values: Any) -> float:
        xp = array_namespace(values)
        if bool(xp.any(xp.isnan(values))):
            return float("nan")
        low, high = float(xp.min(values)), float(xp.max(values))
        return low if low < 0 else high

    def _error(self, message: str) -> InputError:
        return InputError(f"{self.where or self.rule.name}: {message}")
