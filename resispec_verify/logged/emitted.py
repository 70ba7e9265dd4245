"""What the rounds of a dump emitted, held against its output: where one was cut, and where they differ.

A round emits its accepted drafts and one more token. An engine cuts that where a text ends: at an
end-of-text token among the accepted ones, or at the most tokens it may write. Only the last round of a text
can be cut. It is the last of the dump, or the next one has another ``prompt`` or a context that is no longer
than its own, or it emitted a token that is known to end a text. Everywhere else a round that emitted less
than it says is a difference.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.dumps import Round
from resispec_verify.dumps.kinds.values import integers

__all__ = ["Emitted", "emitted", "end_of_text"]


@dataclass(frozen=True)
class Emitted:
    """Attributes
    ----------
    tokens : list of lists of int or None
        By round, what it says it emitted; None where `next_token` was not logged.
    counts : list of int
        By round, how many of them are in the output.
    ends : list of bool
        By round, whether a text may end in it.
    differs : int or None
        Index of the output from which on it is not what the rounds emitted.
    broken : list of int
        Rounds that contradict the output, as far as they can be told apart.
    """

    tokens: list[list[int | None]]
    counts: list[int]
    ends: list[bool]
    differs: int | None
    broken: list[int]

    @property
    def cut(self) -> int:
        """Rounds whose output was cut."""
        return sum(count < len(tokens) for count, tokens in zip(self.counts, self.tokens, strict=True))


def end_of_text(path: str | os.PathLike[str], meta: Any) -> set[int]:
    """The tokens of ``meta["eos_token_id"]``: one, several or none.

    Raises
    ------
    InputError
        Anything else.
    """
    value = meta.get("eos_token_id") if isinstance(meta, Mapping) else None
    if value is None:
        return set()
    listed = [value] if type(value) is int else value
    return set(integers(f"{path}: meta['eos_token_id']", listed, None, 0, 2**31 - 1).tolist())


def emitted(rounds: Sequence[Round], output: np.ndarray | None, stops: Collection[int] = ()) -> Emitted:
    """What each round emitted.

    Parameters
    ----------
    output : int array or None
        ``output_tokens``. Without it a round counts up to its first end-of-text token, or whole.
    stops : collection of int
        Tokens that end a text.
    """
    tokens = [[*one.draft_tokens[: one.accepted].tolist(), one.next_token] for one in rounds]
    ends = [_ends(rounds, tokens[i], i, stops) for i in range(len(rounds))]
    counts = [_whole(emission, stops if last else ()) for emission, last in zip(tokens, ends, strict=True)]
    if output is None:
        return Emitted(tokens, counts, ends, None, [])
    held = output[: len(output) - _padding(output)].tolist()
    found = _matched(tokens, ends, held)
    if isinstance(found, list):
        return Emitted(tokens, found, ends, None, [])
    return Emitted(tokens, counts, ends, found, _broken(tokens, held))


def _padding(output: np.ndarray) -> int:
    there = np.flatnonzero(output != -1)
    return len(output) - (int(there[-1]) + 1 if there.size else 0)


def _ends(rounds: Sequence[Round], emission: Sequence[int | None], i: int, stops: Collection[int]) -> bool:
    if i == len(rounds) - 1 or rounds[i].prompt != rounds[i + 1].prompt:
        return True
    here, after = rounds[i].context_len, rounds[i + 1].context_len
    if here is not None and after is not None:
        return after <= here
    return any(token in stops for token in emission if token is not None)


def _whole(emission: Sequence[int | None], stops: Collection[int]) -> int:
    for i, token in enumerate(emission):
        if token is not None and token in stops:
            return i + 1
    return len(emission)


def _agree(emission: Sequence[int | None], held: Sequence[int]) -> int:
    """How many tokens from the start on agree; one that was not logged agrees with any."""
    pairs = zip(emission, held, strict=False)
    return next(
        (i for i, (a, b) in enumerate(pairs) if a is not None and a != b), min(len(emission), len(held))
    )


def _matched(
    tokens: Sequence[Sequence[int | None]], ends: Sequence[bool], held: Sequence[int]
) -> list[int] | int:
    """Counts by round that make the output; or else the index of the first token that cannot be made."""
    ways: list[dict[int, int]] = [{0: 0}]  # offsets after each round, and from which offset
    furthest = 0
    for emission, last in zip(tokens, ends, strict=True):
        reached: dict[int, int] = {}
        for at in ways[-1]:
            same = _agree(emission, held[at : at + len(emission)])
            furthest = max(furthest, at + same)
            # A round without a logged next token may have emitted its accepted drafts alone.
            least = min(1, len(emission) - (emission[-1] is None))
            shortest = least if last else len(emission)
            for count in range(same, shortest - 1, -1):
                reached.setdefault(at + count, at)
        if not reached:
            return furthest
        ways.append(reached)
    if len(held) not in ways[-1]:
        return min(furthest, len(held))
    counts, at = [], len(held)
    for reached in reversed(ways[1:]):
        counts.append(at - reached[at])
        at = reached[at]
    return counts[::-1]


def _broken(tokens: Sequence[Sequence[int | None]], held: Sequence[int]) -> list[int]:
    """Rounds whose tokens are not those of the output where they should be if none was cut."""
    at, broken = 0, []
    for i, emission in enumerate(tokens):
        if _agree(emission, held[at : at + len(emission)]) < len(emission):
            broken.append(i)
        at += len(emission)
    # Else the output goes on after the last round.
    return broken or [len(tokens) - 1]
