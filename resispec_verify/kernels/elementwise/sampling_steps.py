"""Single steps from logits to the law that an engine samples, on rows ``(..., V)``, in no fixed order.

Penalties, bias and bans change logits as a model gives them. Filters take rows whose maximum is 0, as
`temper` leaves them, and set to -inf what they remove. Where engines differ in one step, an argument says so:
``ties`` ("kept": a token tied with the last one that stays, stays; "cut": the lower index first) and
``inclusive`` (whether a token with exactly the share of mass above it stays).
"""

from __future__ import annotations

from typing import Any, Literal

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import filter_logits, softmax

__all__ = [
    "ban",
    "keep_joint",
    "keep_top_k",
    "keep_top_n_sigma",
    "keep_top_p",
    "keep_typical",
    "penalise_counts",
    "penalise_repetition",
    "without_top_choices",
]

Ties = Literal["kept", "cut"]


def penalise_repetition(logits: Array, seen: Array, penalty: float) -> Array:
    """Divide positive and multiply other logits of the ``seen`` (bool) tokens by the penalty (CTRL, 2019)."""
    xp = array_namespace(logits)
    scaled = xp.where(logits > 0, logits / penalty, logits * penalty)
    return xp.where(seen, scaled, logits)


def penalise_counts(logits: Array, counts: Array, *, frequency: float, presence: float) -> Array:
    """Subtract ``frequency`` for each occurrence and ``presence`` for any; ``counts``: floats."""
    xp = array_namespace(logits)
    return logits - (counts * frequency + xp.astype(counts > 0, logits.dtype) * presence)


def ban(logits: Array, banned: Array) -> Array:
    """-inf where ``banned`` (bool)."""
    xp = array_namespace(logits)
    return xp.where(banned, -xp.inf, logits)


def keep_top_k(tempered: Array, k: int, *, ties: Ties) -> Array:
    """Keep the k largest."""
    if ties == "kept" or k >= tempered.shape[-1]:
        return filter_logits(tempered, top_k=k, top_p=None, min_p=None)
    return ban(tempered, _rank(tempered) >= k)


def keep_top_p(tempered: Array, share: float, *, ties: Ties, inclusive: bool = False) -> Array:
    """Keep the tokens that have less than ``share`` of the mass above them; of tied ones see the module.

    With ``ties`` "kept", which is how transformers and vLLM sort (ascending), the lower of tied indices goes
    first; else the higher.
    """
    if share >= 1.0:
        return tempered
    if ties == "kept" and not inclusive:
        return filter_logits(tempered, top_k=None, top_p=share, min_p=None)
    xp = array_namespace(tempered)
    order = _descending(tempered)
    masses = xp.astype(xp.take_along_axis(softmax(tempered), order, axis=-1), xp.float64)
    above = xp.cumulative_sum(masses, axis=-1) - masses
    slack = _slack(tempered)
    dropped = above > share + slack if inclusive else above >= share - slack
    first = xp.arange(tempered.shape[-1], device=tempered.device) == 0
    back = xp.argsort(order, axis=-1)
    return ban(tempered, xp.take_along_axis(dropped & ~first, back, axis=-1))


def keep_joint(tempered: Array, k: int | None, share: float | None, *, ties: Ties, inclusive: bool) -> Array:
    """Top-k and top-p, both of the law as it came: the mass of top-p is not renormalised after top-k."""
    xp = array_namespace(tempered)
    by_rank = tempered if k is None else keep_top_k(tempered, k, ties=ties)
    if share is None:
        return by_rank
    return xp.where(xp.isinf(by_rank), by_rank, keep_top_p(tempered, share, ties=ties, inclusive=inclusive))


def keep_typical(tempered: Array, mass: float, *, ties: Ties) -> Array:
    """Locally typical sampling (Meister et al. 2022): tokens whose surprise is nearest to the entropy.

    "kept", as transformers: until at least ``mass`` is reached, ties with the last kept. "cut", as
    llama.cpp: until more than ``mass`` is.
    """
    if mass >= 1.0:
        return tempered
    xp = array_namespace(tempered)
    law = softmax(tempered)
    possible = law > 0
    surprise = -xp.log(xp.where(possible, law, 1.0))
    entropy = xp.sum(law * surprise, axis=-1, keepdims=True)
    far = xp.where(possible, xp.abs(surprise - entropy), xp.inf)
    # Of tokens of one probability the computed distances are equal, so ties are ties.
    order = xp.argsort(far, axis=-1, stable=True)
    reached = xp.cumulative_sum(xp.astype(xp.take_along_axis(law, order, axis=-1), xp.float64), axis=-1)
    slack = _slack(tempered)
    short = reached < mass - slack if ties == "kept" else reached <= mass + slack
    last = xp.minimum(
        xp.sum(xp.astype(short, xp.int64), axis=-1, keepdims=True),
        xp.sum(xp.astype(possible, xp.int64), axis=-1, keepdims=True) - 1,
    )
    if ties == "cut":
        return ban(tempered, xp.astype(xp.argsort(order, axis=-1), xp.int64) > last)
    return ban(tempered, far > xp.take_along_axis(xp.take_along_axis(far, order, axis=-1), last, axis=-1))


def keep_top_n_sigma(tempered: Array, n: float) -> Array:
    """Keep logits within ``n`` standard deviations (of the finite ones) of the largest (Tang et al. 2024)."""
    xp = array_namespace(tempered)
    deviation = sigma(tempered)
    return ban(tempered, tempered < xp.max(tempered, axis=-1, keepdims=True) - n * deviation)


def sigma(logits: Array) -> Array:
    """Standard deviation ``(..., 1)`` of the finite logits of each row, over their number."""
    xp = array_namespace(logits)
    finite = ~xp.isinf(logits)
    count = xp.sum(xp.astype(finite, logits.dtype), axis=-1, keepdims=True)
    values = xp.where(finite, logits, 0.0)
    mean = xp.sum(values, axis=-1, keepdims=True) / count
    squares = xp.where(finite, (values - mean) ** 2, 0.0)
    return xp.sqrt(xp.sum(squares, axis=-1, keepdims=True) / count)


def without_top_choices(tempered: Array, threshold: float) -> Array:
    """XTC where it strikes: of the tokens of at least ``threshold`` only the least probable stays.

    The maximum is shifted to 0 again. Nothing changes where fewer than two reach the threshold.
    """
    xp = array_namespace(tempered)
    reach = softmax(tempered) >= threshold
    count = xp.sum(xp.astype(reach, xp.int64), axis=-1, keepdims=True)
    left = ban(tempered, _rank(tempered) < count - 1)
    return left - xp.max(left, axis=-1, keepdims=True)


def _descending(rows: Array) -> Array:
    """Indices from the largest down; of tied ones the lower index first."""
    xp = array_namespace(rows)
    return xp.argsort(-rows, axis=-1, stable=True)


def _rank(rows: Array) -> Array:
    """Place of each token in `_descending`."""
    xp = array_namespace(rows)
    return xp.astype(xp.argsort(_descending(rows), axis=-1), xp.int64)


def _slack(rows: Array) -> Any:
    """Rounding of probabilities, and of their sum in float64; as in `filter_logits`."""
    xp = array_namespace(rows)
    return 8 * xp.finfo(rows.dtype).eps + rows.shape[-1] * xp.finfo(xp.float64).eps
