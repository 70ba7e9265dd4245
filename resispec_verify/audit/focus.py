"""One text to repeat: a first token that is all but certain, and a second that is open.

The first token after a prompt is not speculative. Where it is nearly always the same, many completions of
three tokens have their second token after the same text, and any difference of its law adds up there, also
one that goes another way after each text and that no average over texts shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from resispec_verify.audit.gather import Piece
from resispec_verify.audit.interface import Prompt
from resispec_verify.audit.laws import CoarseLaw

__all__ = ["focus_of"]


def focus_of(
    pieces: Sequence[Piece],
    prompts: Sequence[Prompt],
    coarse: Callable[[Sequence[Any]], list[CoarseLaw | None]],
) -> Prompt | None:
    """The prompt and the first tokens of one of the completions, as ids; None where prompts are texts.

    The text with the largest product of the probability of its most probable next token, which was drawn, and
    the entropy of the law after that.
    """
    best: tuple[float, Prompt | None] = (0.0, None)
    for piece in pieces:
        prompt, laws = prompts[piece.prompt], coarse(piece.laws or [])
        if isinstance(prompt, str):
            continue
        for i, (law, after) in enumerate(pairwise(laws)):
            if law is None or after is None or law.cell(piece.tokens[i]) != 0:
                continue
            score = float(law.law[0]) ** 2 * _entropy(after.law)
            if score > best[0]:
                best = score, (*prompt, *(int(token) for token in piece.tokens[:i]))
    return best[1]


def _entropy(law: np.ndarray) -> float:
    positive = law[law > 0]
    return -float(np.sum(positive * np.log(positive)))
