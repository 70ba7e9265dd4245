"""The text before each round of a dump, for penalties: its prompt, and what the rounds before it emitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resispec_verify.dumps import RoundsDump
from resispec_verify.errors import InputError
from resispec_verify.logged.emitted import Emitted
from resispec_verify.sampling.text import Text

__all__ = ["rows_texts", "texts_of"]


def texts_of(dump: RoundsDump, emitted: Emitted) -> list[Text]:
    """The text at the start of each round.

    Raises
    ------
    InputError
        No ``context_tokens``, or none of some prompt; a round before another without its next token; a
        ``context_len`` that is not the length of the text.
    """
    if dump.context_tokens is None:
        raise InputError(
            f"{dump.path}: penalties and min_tokens need the text, and the dump has no context_tokens; save "
            "the tokens before the first round, for several prompts a list of them"
        )
    texts: list[Text] = []
    prompts = _prompts(dump)
    output: list[int] | None = []
    for r, one in enumerate(dump.rounds):
        if r and (one.prompt != dump.rounds[r - 1].prompt or _starts_again(dump, r)):
            output = []
        if output is None:
            raise InputError(
                f"{dump.path}: round {r}: penalties need the text, and the one before "
                f"has no next_token; log it"
            )
        text = Text(prompts[r], np.asarray(output, np.int64))
        length = len(prompts[r]) + len(output)
        if one.context_len is not None and one.context_len != length:
            raise InputError(
                f"{dump.path}: round {r}: context_len is {one.context_len}, and context_tokens with what the "
                f"rounds emitted is {length}; save as context_tokens all that precedes the first round"
            )
        texts.append(text)
        said = emitted.tokens[r][: emitted.counts[r]]
        known = [token for token in said if token is not None]
        output = [*output, *known] if len(known) == len(said) else None
    return texts


def _starts_again(dump: RoundsDump, r: int) -> bool:
    here, before = dump.rounds[r].context_len, dump.rounds[r - 1].context_len
    return here is not None and before is not None and here <= before


def _prompts(dump: RoundsDump) -> list[np.ndarray]:
    """The prompt of each round."""
    contexts = dump.context_tokens
    assert contexts is not None
    names = list(dict.fromkeys(one.prompt for one in dump.rounds))
    if not isinstance(contexts, tuple):
        if len(names) > 1:
            raise InputError(
                f"{dump.path}: has {len(names)} prompts and one context_tokens; save a list, one for each"
            )
        return [contexts] * len(dump.rounds)
    numbered = all(isinstance(name, int) and 0 <= name < len(contexts) for name in names)
    if not numbered and len(names) != len(contexts):
        raise InputError(
            f"{dump.path}: has {len(names)} prompts and {len(contexts)} context_tokens; save one for each"
        )
    place = {name: name if numbered and isinstance(name, int) else i for i, name in enumerate(names)}
    return [contexts[place[one.prompt]] for one in dump.rounds]


def rows_texts(
    text: Text, tokens: np.ndarray, start: int, count: int, history: str, masks: Sequence[np.ndarray] | None
) -> list[Text]:
    """The texts of rows ``start`` to ``start + count - 1`` of a round.

    Parameters
    ----------
    tokens : int array (g,)
        Drafted; row i follows the first i of them, where the history is "token".
    masks : sequence of bool array or None
        The allowed tokens of every row of the round.
    """
    found = []
    for i in range(start, start + count):
        one = text if history == "block-start" or text.output is None else text.after(tokens[:i])
        found.append(Text(one.prompt, one.output, None if masks is None else masks[i]))
    return found
