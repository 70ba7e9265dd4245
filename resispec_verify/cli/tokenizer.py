"""Texts of tokens from a `tokenizer.json`, read with the `tokenizers` library where it is installed."""

from collections.abc import Iterable
from pathlib import Path

from resispec_verify.errors import InputError


def token_texts(path: Path, tokens: Iterable[int]) -> dict[int, str]:
    """Each token's text in quotes, on one line; empty for tokens that the tokenizer does not have.

    Raises
    ------
    InputError
        The library is not installed, or the file is missing or not a tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"--tokenizer needs the package tokenizers: {reason}; pip install tokenizers, or leave it out"
        ) from None
    if not path.is_file():
        raise InputError(f"--tokenizer {path}: no such file; give a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
        return {token: _text(tokenizer, token) for token in tokens}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(
            f"--tokenizer {path}: not a tokenizer.json ({reason}); give the one that lies beside the model"
        ) from None


def _text(tokenizer: object, token: int) -> str:
    piece = tokenizer.id_to_token(token)  # type: ignore[attr-defined]
    if piece is None:
        return ""
    text = tokenizer.decode([token], skip_special_tokens=False)  # type: ignore[attr-defined]
    shown = text if text and "\ufffd" not in text else piece  # a byte of a longer character
    return repr(shown)
