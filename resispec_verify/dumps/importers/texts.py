"""Token ids of token texts, by a tokenizer file."""

from __future__ import annotations

import re
from pathlib import Path

from resispec_verify.dumps.opening import show
from resispec_verify.errors import InputError

__all__ = ["TokenTexts"]

_ID = re.compile(r"token_id:([0-9]{1,9})")


class TokenTexts:
    """The id of a token's text: ``token_id:N``, as vLLM has it, or what a tokenizer decodes to that text.

    Parameters
    ----------
    path : Path or None
        A ``tokenizer.json``; without it only ``token_id:N`` is known.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ids: dict[str, int | None] | None = None

    def __call__(self, text: str, where: str) -> int:
        """The id.

        Raises
        ------
        InputError
            No token, or several, has this text, or there is no tokenizer.
        """
        if found := _ID.fullmatch(text):
            return int(found[1])
        if self._path is None:
            raise InputError(
                f"{where}: lists token texts ({show(text)}), not ids; give the tokenizer.json of the model "
                "with --tokenizer"
            )
        if self._ids is None:
            self._ids = _decoded(self._path)
        if text not in self._ids:
            raise InputError(f"{where}: no token of {self._path} has the text {show(text)}; log token ids")
        token = self._ids[text]
        if token is None:
            raise InputError(
                f"{where}: several tokens of {self._path} have the text {show(text)}; log token ids"
            )
        return token


def _decoded(path: Path) -> dict[str, int | None]:
    """Every token by its text; None for a text that several have."""
    try:
        from tokenizers import Tokenizer
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"token texts need the package tokenizers: {reason}; pip install tokenizers"
        ) from None
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
        every = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
        texts = tokenizer.decode_batch([[token] for token in every], skip_special_tokens=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path}: not a tokenizer.json ({reason}); give that of the model") from None
    found: dict[str, int | None] = {}
    for token, text in zip(every, texts, strict=True):
        found[text] = None if text in found else token
    return found
