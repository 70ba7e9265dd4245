"""Prompts from a file: one a line, or JSON lines with a text or token ids."""

from __future__ import annotations

import json
from pathlib import Path

from resispec_verify.errors import InputError

__all__ = ["read_prompts"]


def read_prompts(path: Path) -> list[str | list[int]]:
    """Read prompts; empty lines are passed over.

    Parameters
    ----------
    path : Path
        A `.jsonl` file holds one object a line, with ``prompt`` (a text) or ``tokens`` (a list of token ids);
        of any other file each line is a prompt.

    Raises
    ------
    InputError
        A file that cannot be read or has no prompts, or a line that is neither (its number is named).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot be read ({reason}); give a text file of prompts") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: has no prompts; write one a line")
    if path.suffix.lower() != ".jsonl":
        return [line.rstrip("\r") for _, line in lines]
    return [_parsed(f"{path}: line {number}", line) for number, line in lines]


def _parsed(where: str, line: str) -> str | list[int]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f'{where}: is not JSON; write objects such as {{"prompt": "..."}}') from None
    if isinstance(entry, dict):
        prompt, tokens = entry.get("prompt"), entry.get("tokens")
        if isinstance(prompt, str) and tokens is None:
            return prompt
        if prompt is None and isinstance(tokens, list) and all(type(token) is int for token in tokens):
            return tokens
    raise InputError(f'{where}: needs "prompt" (a text) or "tokens" (a list of token ids), and not both')
