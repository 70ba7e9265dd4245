"""Logits to (target, draft) pairs: temperature, filters, and the proposal candidates are really drawn from.

The *declared* draft is what the verification rule divides by. The *proposal* is what the candidates were
sampled from. They are one distribution in a correct engine and two inputs here, equal unless said otherwise:
the most common public fault is that they differ.
"""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from resispec_verify import inputs
from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.inputs import SUM_TOLERANCE, real, whole
from resispec_verify.kernels.elementwise.probabilities import filter_logits, softmax, temper
from resispec_verify.sampling.draws import draw_law
from resispec_verify.sampling.orders import ADJUSTMENTS, DRAWS, ORDERS, SETTING_OF, order_of
from resispec_verify.sampling.settings import checked
from resispec_verify.sampling.text import adjusts

__all__ = ["Pair", "Sampling", "pair_from_logits", "pair_from_probabilities"]

_PLAIN = ("temperature", 1.0)  # an order without a temperature is one at temperature 1
_ELEMENTS = 1 << 19  # of a temporary: 4 MiB in float64


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from logits.

    Attributes
    ----------
    temperature : float
        ``>= 0``; 0 is the one-hot of the first argmax.
    top_k : int or None
        ``>= 1``; tokens tied with the k-th are kept.
    top_p, min_p : float or None
        In ``(0, 1]`` and ``[0, 1]``.
    typical_p, ..., stop_tokens
        As `resispec_verify.sampling.settings.SETTINGS` has them; None where they do nothing.
    order : str
        An engine of `resispec_verify.sampling.orders.ORDERS`, or steps with commas between them: in which
        order everything is applied. Sequences are joined.
    history : {"token", "block-start"} or None
        Whether penalties at a drafted token have seen those drafted before it; None: as the engine has it.
    draft : mapping or None
        Settings that the draft has in the place of these; kept as pairs.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    _: KW_ONLY
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_last_n: int | None = None
    logit_bias: Any = None
    bad_words: Any = None
    allowed_tokens: Any = None
    min_tokens: int | None = None
    stop_tokens: Any = None
    order: Any = "transformers"
    history: str | None = None
    draft: Any = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            if getattr(self, name) is not None or name == "temperature":
                real(name.replace("_", "-"), getattr(self, name))
        if self.top_k is not None:
            whole("top-k", self.top_k, 1)
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(f"temperature must be a finite number >= 0, got {self.temperature:g}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise InputError(f"top-p must be in (0, 1], got {self.top_p:g}")
        if self.min_p is not None and not 0.0 <= self.min_p <= 1.0:
            raise InputError(f"min-p must be in [0, 1], got {self.min_p:g}")
        for field in dataclasses.fields(self)[4:]:
            object.__setattr__(self, field.name, checked(field.name, getattr(self, field.name)))
        if self.order is None:
            object.__setattr__(self, "order", "transformers")
        self._check_steps()
        _ = self.draft_sampling

    def _check_steps(self) -> None:
        """Raise `InputError` where something is set for which the order has no step."""
        steps = order_of(self.order).steps
        known = {name for step in steps for name in SETTING_OF.get(step, (step,))}
        for name in {*ADJUSTMENTS, *DRAWS, "xtc_probability"} - {"top_k_top_p", "xtc"}:
            if name not in known and getattr(self, name) is not None and (name, self.temperature) != _PLAIN:
                raise InputError(
                    f"{name} has no step in the order {self.order} ({', '.join(steps)}); state the order of "
                    f"the engine: {', '.join(ORDERS)}, or a list of steps"
                )
        if self.min_tokens is not None and not self.stop_tokens:
            raise InputError("min_tokens bars stop_tokens, and there are none; state them")

    @property
    def draft_sampling(self) -> Sampling:
        """How the draft's logits become its law: these settings, with those of ``draft`` in their place."""
        if self.draft is None:
            return self
        given = {key: value for key, value in self.draft if value is not None}
        idle = {key: self._default(key) for key, value in self.draft if value is None}
        return dataclasses.replace(self, draft=None, **idle, **given)

    @classmethod
    def _default(cls, name: str) -> Any:
        return cls.__dataclass_fields__[name].default

    @property
    def reads_history(self) -> str:
        """What penalties in a block have seen: as stated, or else as the engine has it."""
        return self.history or order_of(self.order).history

    @property
    def threshold_of_xtc(self) -> float:
        """From which probability on XTC counts a token as a top choice."""
        return 0.1 if self.xtc_threshold is None else self.xtc_threshold

    def probabilities(self, logits: Array, *, dtype: Any) -> Array:
        """Probabilities ``(..., V)`` of logits ``(..., V)`` in the working precision ``dtype``.

        Raises
        ------
        InputError
            NaN, +inf or only -inf in a row, something that is no array of numbers, or a penalty, bias or ban:
            those depend on the text, see `adjusted`.
        """
        _refuse_adjustments(self)
        if self.draft is not None:
            raise InputError(
                "a Sampling with settings of a draft is for pairs; use its draft_sampling, or leave draft out"
            )
        rows = inputs.logits(logits=logits)["logits"]
        return self.law_of(rows, dtype=_working(rows, dtype))

    def law_of(self, logits: Array, *, dtype: Any) -> Array:
        """`probabilities` of logits that are known to be right, and have their penalties, bias and bans.

        NumPy's rows are taken a few at a time, so that their temporaries stay in the cache.
        """
        if is_numpy_array(logits) and logits.ndim == 2 and logits.size > _ELEMENTS:
            laws, step = np.empty(logits.shape, dtype), max(1, _ELEMENTS // logits.shape[1])
            for i in range(0, len(logits), step):
                laws[i : i + step] = self._law(logits[i : i + step], dtype)
            return laws
        return self._law(logits, dtype)

    def _law(self, logits: Array, dtype: Any) -> Array:
        if self.order != "transformers" or self.typical_p is not None:
            return draw_law(logits, self, dtype=dtype)
        tempered = temper(logits, self.temperature, dtype=dtype)
        return softmax(filter_logits(tempered, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p))

    def overridden(self, temperature: float | None, top_k: int | None, top_p: float | None) -> Sampling:
        """The same with the given fields replaced where they are not None."""
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return dataclasses.replace(self, **{k: v for k, v in given.items() if v is not None})

    def plain(self) -> dict[str, Any]:
        """The fields that are not as by default, as JSON can hold them."""
        fields = (
            (field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self)
        )
        return {name: value for name, value, default in fields if value != default}


@dataclass(frozen=True)
class Pair:
    """Target, declared draft and true proposal at some positions.

    Attributes
    ----------
    target, draft : array (..., V)
        Probabilities, non-negative, each row summing to 1 up to rounding.
    proposal : array (..., V) or None
        What candidates are really drawn from; None means the declared draft.
    """

    target: Any
    draft: Any
    proposal: Any = None

    @property
    def drawn_from(self) -> Array:
        """The proposal, or the draft where they are the same."""
        return self.draft if self.proposal is None else self.proposal


def pair_from_logits(
    target: Array,
    draft: Array,
    *,
    sampling: Sampling,
    dtype: Any,
    proposal: Array = None,
    proposal_sampling: Sampling | None = None,
) -> Pair:
    """Make a pair from logits ``(..., V)``; the target and the declared draft share ``sampling``.

    Parameters
    ----------
    target, draft : array (..., V)
        Any floating type; -inf where a token is impossible.
    dtype : dtype
        Working precision, float32 or float64 of the arrays' library.
    proposal : array (..., V), optional
        Logits of the true proposal where it is another model's output.
    proposal_sampling : Sampling, optional
        How candidates are really drawn, where that differs from ``sampling``.

    Raises
    ------
    InputError
        Shapes, libraries or devices that differ; NaN, +inf or only -inf in a row.
    """
    for name, value in (("sampling", sampling), ("proposal_sampling", proposal_sampling)):
        if not isinstance(value, Sampling) and (value is not None or name == "sampling"):
            raise InputError(f"{name} must be a Sampling, such as Sampling(0.7); got {inputs.shown(value)}")
        if value is not None:
            _refuse_adjustments(value)
            _refuse_adjustments(value.draft_sampling)
    rows = inputs.logits(target=target, draft=draft, proposal=proposal)
    return make_pair(
        rows["target"],
        rows["draft"],
        sampling=sampling,
        dtype=_working(rows["target"], dtype),
        proposal=rows.get("proposal"),
        proposal_sampling=proposal_sampling,
    )


def make_pair(
    target: Array,
    draft: Array,
    *,
    sampling: Sampling,
    dtype: Any,
    proposal: Array = None,
    proposal_sampling: Sampling | None = None,
) -> Pair:
    """`pair_from_logits` of logits that are known to be right: what a dump's reader has looked at."""
    drawn, declared = None, sampling.draft_sampling
    if proposal is not None or (proposal_sampling is not None and proposal_sampling != declared):
        drawn = (proposal_sampling or declared).law_of(draft if proposal is None else proposal, dtype=dtype)
    return Pair(sampling.law_of(target, dtype=dtype), declared.law_of(draft, dtype=dtype), drawn)


def _refuse_adjustments(sampling: Sampling) -> None:
    """Rows alone do not say which text they follow."""
    if adjusts(sampling):
        raise InputError(
            "penalties, logit bias and bans need the text or place of a row, which "
            "a dump has and rows alone do "
            "not; apply sampling.text.adjusted to the rows, and leave them out of the Sampling"
        )


def _working(rows: Array, dtype: Any) -> Any:
    """The working precision: a floating type of the library of the rows, or its name."""
    xp = array_namespace(rows)
    for name in ("float64", "float32"):
        if dtype == getattr(xp, name) or (isinstance(dtype, str) and dtype == name):
            return getattr(xp, name)
    raise InputError(
        f"dtype must be float64 or float32 of the library of the logits ({xp.__name__}), got "
        f"{inputs.shown(dtype)}"
    )


def pair_from_probabilities(target: Array, draft: Array, proposal: Array = None) -> Pair:
    """Make a pair from probabilities given by hand; checked, never renormalised.

    Raises
    ------
    InputError
        Lengths that differ, an empty vocabulary, a value that is negative or not finite, or a row whose sum
        is further than 1e-9 from 1.
    """
    given = inputs.arrays(target=target, draft=draft, proposal=proposal)
    rows = {name: to_numpy(row).astype(np.float64, copy=False) for name, row in given.items()}
    target, draft, proposal = rows["target"], rows["draft"], rows.get("proposal")
    for name, row in rows.items():
        if row.shape != target.shape:
            raise InputError(f"target has shape {target.shape} but {name} has {row.shape}; they must match")
        check_probabilities(row, name, SUM_TOLERANCE)
    return Pair(target, draft, proposal)


def check_probabilities(
    rows: np.ndarray, name: str, tolerance: float | np.ndarray, first_position: int | None = None
) -> None:
    """Raise `InputError` unless every row ``(..., V)`` is a distribution within ``tolerance``.

    There may be one tolerance a row. Errors name the position, counted from ``first_position`` if given.
    """

    def where(i: int) -> str:
        return name if first_position is None else f"{name}, position {first_position + i}"

    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise InputError(f"{name} has no tokens; give at least one probability")
    flat = rows.reshape(-1, rows.shape[-1])
    bad = ~(np.isfinite(flat) & (flat >= 0)).all(axis=-1)
    if bad.any():
        i = int(np.argmax(bad))
        x = int(np.argmax(~(np.isfinite(flat[i]) & (flat[i] >= 0))))
        raise InputError(
            f"{where(i)}: token {x} has probability {flat[i, x]:g}; "
            "probabilities must be finite and non-negative"
        )
    sums = flat.sum(axis=-1, dtype=np.float64)
    off = np.abs(sums - 1.0) > tolerance
    if off.any():
        i = int(np.argmax(off))
        raise InputError(
            f"{where(i)}: probabilities sum to {sums[i]:.12g}, not 1 "
            f"(tolerance {np.broadcast_to(tolerance, sums.shape)[i]:g}); give rows that do"
        )
