"""How many drafted tokens are kept: policies that stop drafting, or cut what was drafted.

A policy says where a path of L drafted tokens ends. What it keeps is verified, or what was verified is cut to
it. It may look at the draft's laws and at the drafted tokens. Whether a verifier stays exact depends on one
thing: given the tokens before it, a kept token must still have the draft's law
(docs/explanation/draft-length.md has the
proof). So a policy may decide about token i by the tokens before it, and not by token i.

The scores are of the draft alone, and learned heads are not here: a head is a function of the text, so one
that scores place i before its token is drawn is in the place of `TopProbability`, and one that scores the
drawn token in that of `DrawnProbability`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.inputs import real, shown
from resispec_verify.rules.foreign import guarded

# What rounding may take from a sum of at most some hundred float32 probabilities.
_SUM = 1e-5

__all__ = [
    "AfterVerification",
    "CheckedPolicy",
    "DrawnProbability",
    "Entropy",
    "StopPolicy",
    "TopProbability",
]


class StopPolicy(ABC):
    """How many tokens of a drafted path are kept; frozen and pure."""

    @abstractmethod
    def kept(self, drafts: Array, path: Any) -> np.ndarray:
        """How many tokens of each path are kept.

        Parameters
        ----------
        drafts : float64 array (N, L, V)
            The laws that the path's tokens were drawn from.
        path : integer array (N, L)
            The drafted tokens.

        Returns
        -------
        float64 array (N, L + 1)
            Probability that exactly 0, ..., L tokens are kept.
        """


def _first_failure(good: np.ndarray) -> np.ndarray:
    """As many tokens as come before the first that is not good, with certainty; ``(N, L + 1)``."""
    count, length = good.shape
    kept = np.concatenate([good, np.zeros((count, 1), bool)], axis=1).argmin(axis=1)
    found = np.zeros((count, length + 1))
    found[np.arange(count), kept] = 1.0
    return found


def _one_later(good: np.ndarray) -> np.ndarray:
    """The first token is always good, and the i-th if the score of the one before it was."""
    return np.concatenate([np.ones((len(good), 1), bool), good[:, :-1]], axis=1)


@dataclass(frozen=True)
class TopProbability(StopPolicy):
    """Stop before a place where the draft's greatest probability is below the threshold.

    Attributes
    ----------
    threshold : float
        In [0, 1].
    reads : {"before", "after"}
        ``"before"``: the law that the token is about to be drawn from, which only the tokens before it
        determine. ``"after"``: the law after the drawn token, which is dropped with it; that is biased.
    """

    threshold: float
    reads: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        _check_threshold(self, 1.0)
        _check_choice(self, "reads", ("before", "after"))

    def kept(self, drafts: Array, path: Any) -> np.ndarray:
        """See `StopPolicy.kept`."""
        good = np.max(drafts, axis=-1) >= self.threshold
        return _first_failure(_read(good, self.reads))


@dataclass(frozen=True)
class Entropy(StopPolicy):
    """Stop before a place where the draft's entropy, in nats, is above the threshold.

    Attributes
    ----------
    threshold : float
        At least 0.
    reads : {"before", "after"}
        As in `TopProbability`.
    """

    threshold: float
    reads: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        _check_threshold(self, np.inf)
        _check_choice(self, "reads", ("before", "after"))

    def kept(self, drafts: Array, path: Any) -> np.ndarray:
        """See `StopPolicy.kept`."""
        entropy = -np.sum(drafts * np.log(np.where(drafts > 0, drafts, 1.0)), axis=-1)
        return _first_failure(_read(entropy <= self.threshold, self.reads))


@dataclass(frozen=True)
class DrawnProbability(StopPolicy):
    """Stop at the first drawn token whose own draft probability is below the threshold.

    Attributes
    ----------
    threshold : float
        In [0, 1].
    token : {"kept", "dropped"}
        Whether that token is the last of the path, or the first that is not in it; the latter is biased.
    """

    threshold: float
    token: Literal["kept", "dropped"] = "kept"

    def __post_init__(self) -> None:
        _check_threshold(self, 1.0)
        _check_choice(self, "token", ("kept", "dropped"))

    def kept(self, drafts: Array, path: Any) -> np.ndarray:
        """See `StopPolicy.kept`."""
        drawn = np.take_along_axis(drafts, path[..., None], axis=-1)[..., 0]
        good = drawn >= self.threshold
        return _first_failure(_one_later(good) if self.token == "kept" else good)


@dataclass(frozen=True)
class AfterVerification(StopPolicy):
    """Verify the whole path, and cut what was accepted to the length that a policy says.

    Attributes
    ----------
    policy : StopPolicy
        Any other.
    then : {"target", "correction"}
        What follows exactly that many tokens when at least that many were accepted. ``"target"``: a token of
        the target's law. ``"correction"``: where no more were accepted, the verifier's own correction, and
        only where the cut took some away a token of the target's law; that is biased.
    """

    policy: StopPolicy
    then: Literal["target", "correction"] = "target"

    def __post_init__(self) -> None:
        if not isinstance(self.policy, StopPolicy) or isinstance(self.policy, AfterVerification):
            raise InputError(
                "AfterVerification: policy must be a policy that looks at the draft, such as "
                f"TopProbability(0.5); got {shown(self.policy)}"
            )
        _check_choice(self, "then", ("target", "correction"))

    def kept(self, drafts: Array, path: Any) -> np.ndarray:
        """See `StopPolicy.kept`."""
        return self.policy.kept(drafts, path)


@dataclass(frozen=True)
class CheckedPolicy(StopPolicy):
    """A user's policy: it gets copies, and what it gives is checked at every call.

    Attributes
    ----------
    policy : StopPolicy
    where : str
        Its name, for errors.
    """

    policy: StopPolicy
    where: str

    def kept(self, drafts: Array, path: Any) -> np.ndarray:
        """See `StopPolicy.kept`.

        Raises
        ------
        InputError
            It raises, or what it gives is no law on 0, ..., L for each path.
        """
        rows, length = path.shape
        with guarded(f"{self.where}: kept"):
            given = np.asarray(self.policy.kept(drafts.copy(), path.copy()))
            # an imaginary part would only be warned of
            found = given.astype(np.float64, casting="unsafe" if given.dtype.kind != "c" else "same_kind")
        if found.shape != (rows, length + 1):
            raise InputError(
                f"{self.where}: kept gives an array of shape {found.shape}; give ({rows}, {length + 1}): a "
                f"row a path, with the probability that 0, ..., {length} tokens are kept"
            )
        if not (found >= 0).all() or not np.allclose(found.sum(axis=1), 1.0, rtol=0.0, atol=_SUM):
            raise InputError(
                f"{self.where}: kept gives rows that are no laws; each needs probabilities that sum to 1"
            )
        return found


def _read(good: np.ndarray, reads: str) -> np.ndarray:
    """Whether each token is kept, by what is read: the law before it, or the law after it."""
    if reads == "before":
        return good
    # After the last token there is no law of the draft's to read: it stands.
    return np.concatenate([good[:, 1:], np.ones((len(good), 1), bool)], axis=1)


def _check_threshold(policy: Any, most: float) -> None:
    name = type(policy).__name__
    if not 0 <= real(f"{name}: threshold", policy.threshold) <= most:
        limits = "in [0, 1]" if most == 1 else "at least 0"
        raise InputError(f"{name}: threshold must be {limits}, got {policy.threshold:g}")


def _check_choice(policy: Any, name: str, choices: tuple[str, ...]) -> None:
    given = getattr(policy, name)
    if given not in choices:
        who = type(policy).__name__
        raise InputError(f"{who}: {name} must be {' or '.join(choices)}, got {shown(given)}")
