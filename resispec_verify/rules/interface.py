"""What a verification rule is: frozen values, pure methods on arrays ``(..., vocab)``."""

from __future__ import annotations

import hashlib
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.rules.proposals import Iid, Proposal

if TYPE_CHECKING:  # compiled kernels, which a rule of one's own need not load
    from resispec_verify.kernels.elementwise.residuals import Proxy
    from resispec_verify.kernels.elementwise.rows import Rounds
    from resispec_verify.kernels.paths.path_sum import PathSum

__all__ = ["Described", "Rule", "State", "in_words"]

_LONGEST = 60  # of an option in a label


@dataclass(frozen=True)
class State:
    """Where a rule stands before it looks at the next candidate.

    Attributes
    ----------
    residual : array (..., V)
        The current target R, normalised; at first the target.
    draft : array (..., V)
        The draft that the next candidate is tested with.
    round : int
        How many candidates have been rejected.
    extra : mapping
        The rule's own scalars or arrays, by name.
    """

    residual: Any
    draft: Any
    round: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def after(self, residual: Array, **extra: Any) -> State:
        """The state one rejection on, of m alternatives: ``residual (..., m, V)``, the draft kept."""
        xp = array_namespace(residual)
        draft = xp.broadcast_to(self.draft[..., None, :], residual.shape)
        return State(residual, draft, self.round + 1, extra)


def in_words(value: Any) -> str:
    """A value of an option as it is written: exact, and no longer than that takes."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(in_words, value))
    if isinstance(value, (set, frozenset)):
        return " ".join(f"{x}:{y}" for x, y in sorted(value))
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int)):
        short = f"{float(value):g}"
        return short if float(short) == value else repr(float(value))
    return str(value)


def _sayable(value: Any) -> bool:
    if isinstance(value, (tuple, list, frozenset, set)):
        return all(map(_sayable, value))
    return isinstance(value, (str, numbers.Real))


def in_label(value: Any) -> str:
    """The same, where that is short; else its length and a digest, which tells it from others."""
    text = in_words(value)
    if len(text) <= _LONGEST:
        return text
    return f"{len(value)} entries sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Described(ABC):
    """What is said of a rule of either kind."""

    #: The name users type.
    name: ClassVar[str]
    #: What its authors claim. What is so is the verdict's business.
    claims_exact: ClassVar[bool]
    #: Paper and equation, one line.
    source: ClassVar[str]
    #: Where it stands in lists of the shipped rules, ascending.
    place: ClassVar[int] = 1000
    #: Parameters that its source gives no value for: it cannot be made from its name alone.
    open_parameters: ClassVar[tuple[str, ...]] = ()
    #: Parameters that its exactness is measured with, where they are open.
    measured_with: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    #: Parameters that make a rule inexact which is exact with others, and when it is exact.
    inexact_with: ClassVar[Mapping[str, Any] | None] = None
    exact_if: ClassVar[str | None] = None
    #: Why `oracle` has no transcription of it, if it has none.
    untranscribed: ClassVar[str | None] = None

    def options(self) -> dict[str, str]:
        """Options that tell two values of the rule apart, by name, exactly; for labels and reports.

        Those of a dataclass are its fields; what a text cannot say, a function or an array, is left out.
        """
        known = fields(self) if is_dataclass(self) else ()
        values = {field.name: getattr(self, field.name) for field in known}
        return {name: in_label(value) for name, value in values.items() if _sayable(value)}

    def changed_options(self) -> dict[str, str]:
        """Those of the options that are not the default."""
        options = self.options()
        try:
            defaults = type(self)().options() if options else {}
        except (InputError, TypeError):  # parameters without defaults: all of them tell
            defaults = {}
        return {key: value for key, value in options.items() if value != defaults.get(key)}

    def required(self) -> tuple[Any, ...]:
        """The values of its `open_parameters`.

        Raises
        ------
        InputError
            Some are None; names all of them.
        """
        missing = [name for name in self.open_parameters if getattr(self, name) is None]
        if missing:
            raise InputError(
                f"rule {self.name!r} needs {', '.join(missing)}: its source gives no value and none is "
                f"invented; construct {type(self).__name__}({', '.join(f'{name}=...' for name in missing)})"
            )
        return tuple(getattr(self, name) for name in self.open_parameters)


class Rule(Described):
    """A rule that verifies the candidates of one position, one after the other.

    A rule never samples, prints or mutates, and does not know what it is used for.
    """

    #: What the state after a rejection depends on; `TupleRule` for rules that read the whole tuple at once.
    depends_on: ClassVar[Literal["nothing", "token", "tuple"]]
    #: The fewest candidates it is defined for.
    least_candidates: ClassVar[int] = 0
    #: The most candidates it can verify at one position; None for any number.
    most_candidates: ClassVar[int | None] = None
    #: How its candidates are drawn.
    proposal: ClassVar[Proposal] = Iid()
    #: Whether everything it can emit after a rejection lies in the target's support.
    stays_in_support: ClassVar[bool] = True
    #: Whether a candidate drawn as its test expects is rejected as often as the residual has mass, so that
    #: dividing by that mass magnifies nothing. Not so of a test that looks at something else.
    rejects_its_residual: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        """What computes the whole is of the class that defines it: a subclass may do something else."""
        super().__init_subclass__(**options)
        for name in ("sum_paths", "sum_paths_on_device", "sum_rounds", "sum_identity"):
            if name not in vars(cls):
                setattr(cls, name, getattr(Rule, name))

    def verifiable(self, candidates: int) -> int:
        """How many of so many candidates it can verify."""
        return candidates if self.most_candidates is None else min(candidates, self.most_candidates)

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """State before the first of ``candidates`` candidates, for rows ``(..., V)``."""
        return State(target, draft)

    def accept(self, state: State) -> Array:
        """Acceptance probability of every token at this round, ``(..., V)``."""
        from resispec_verify.kernels.elementwise.residuals import accept_ratio

        return accept_ratio(state.residual, state.draft)

    @abstractmethod
    def reject(self, state: State, tokens: Array) -> State:
        """State after rejecting ``tokens``.

        Parameters
        ----------
        tokens : integer array (..., m) or None
            Many alternatives at once: the new state's arrays are ``(..., m, V)``. None where the rule
            depends on nothing: the arrays stay ``(..., V)``.
        """

    def final(self, state: State) -> Array:
        """The law drawn from when every candidate was rejected, ``(..., V)``."""
        return state.residual

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """How much the step from ``before`` to ``after`` magnifies relative errors of the residual.

        Where a rule divides by a mass that can be small, its reciprocal: the engines put it into the bound
        on rounding, times the probability that the step is taken. ``fair`` says that candidates are drawn
        from the draft that they are tested with, so that no token comes more often than its test expects.
        Returns ``(..., m, 1)`` where tokens are, else ``(..., 1)``, or the number 1.0 (the default).
        """
        return 1.0

    def accept_condition(self, state: State) -> Array:
        """The same for the tests of `accept`; asked for only where draws are not fair."""
        return 1.0

    def final_condition(self, state: State) -> Array:
        """The same for `final`: ``(..., 1)``, or the number 1.0 (the default)."""
        return 1.0

    def last_round(self, state: State) -> tuple[Array, Array] | None:
        """Mass emitted by rejecting the last candidate, summed over rejected tokens, in closed form.

        Returns the mass ``(..., V)`` and, for the bound on rounding, the sum ``(...,)`` of the rejections'
        probabilities times what divisions magnify their rounding by; or None where the rule has no closed
        form (the default). Candidates are i.i.d. from ``state.draft``.
        """
        return None

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """The whole marginal of one position ``(V,)``, where a rule knows something faster.

        Candidates are drawn from ``draft`` by the rule's own `proposal`; the engine asks only then. None (the
        default) where the rule does not know.
        """
        return None

    def sum_paths_on_device(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """The same for float64 rows ``(B, V)`` where they live, not on a CPU; ``most_paths`` is for each.

        None (the default) where the rule can only be summed on the CPU.
        """
        return None

    def sum_rounds(self, target: Array, draft: Array, candidates: int, drawn_from: Array) -> Rounds | None:
        """All rounds of rows ``(B, V)``, where a rule that depends on nothing knows something faster.

        The arrays are the engine's own and must not be written to; ``drawn_from`` is None where candidates
        are drawn from the draft. A division by ``Rounds.left`` is all that may magnify rounding. None (the
        default) where the rule does not know.
        """
        return None

    def sum_identity(
        self, target: Array, draft: Array, rounds: int, tokens: Array, uniforms: Array
    ) -> Array | None:
        """The path identity of its proxy for rows ``(B, V)``, where a rule knows something faster.

        One of ``tokens`` and ``uniforms``, ``(B, >= rounds)``, is None: the rejected candidates, or what they
        are drawn with (`evidence.path_identity.draw_candidates`). The arrays must not be written to. None
        (the default) where the rule does not know.
        """
        return None

    def proxy(self, current: Array, draft: Array, token: Array) -> Array:
        """The proxy ``k`` of the paper's Appendix B after rejecting ``token (...,)``; ``(..., V)``.

        None (the default) where the rule is not of that form.
        """
        return None

    def proxy_parts(self, current: Array, draft: Array, token: Array) -> Proxy | None:
        """The same with what it was made of, where the proxy has a budget; None (the default) elsewhere."""
        return None

    def budget_holds(self) -> bool | None:
        """Whether `proxy_parts` never cuts its budget and ``k`` sums to 1; None where there is no budget."""
        return None
