"""Prompts of an audit: some of its own, and those of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from resispec_verify.audit.interface import Prompt
from resispec_verify.errors import InputError

__all__ = ["PROMPTS", "read_prompts"]

#: Ways in which text is more and less certain: a draft is accepted and rejected on all of them.
PROMPTS: tuple[str, ...] = (
    "The old lighthouse keeper opened the door and",
    "Here is a list of things to remember when you travel:\n1.",
    'def mean(values):\n    """Arithmetic mean of a list of numbers."""\n',
    "Question: Why is the sky blue?\nAnswer:",
    "In the beginning of the nineteenth century, most people in Europe",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three most important facts about water are",
    "Once upon a time there was a small robot who",
)
MOST_BYTES = 1 << 24
MOST_PROMPT = 1 << 20


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Prompts of a file of JSON lines: a text, a list of token ids, or an object with either as ``prompt``.

    Raises
    ------
    InputError
        Names the line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; give fewer prompts")
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text in UTF-8; give a file of JSON lines") from None
    found = [_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError(f"{path}: holds no prompts; give a text or a list of token ids on each line")
    return tuple(found)


def _prompt(line: str, where: str) -> Prompt:
    wanted = 'a JSON text, a list of token ids, or {"prompt": either}'
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is not JSON; wanted {wanted}") from None
    if isinstance(value, dict):
        if "prompt" not in value:
            raise InputError(f'{where}: has no "prompt"; wanted {wanted}')
        value = value["prompt"]
    if isinstance(value, str) and 0 < len(value) <= MOST_PROMPT:
        return value
    if (
        isinstance(value, list)
        and 0 < len(value) <= MOST_PROMPT
        and all(type(token) is int and 0 <= token < 1 << 31 for token in value)
    ):
        return tuple(value)
    raise InputError(f"{where}: is no prompt; wanted {wanted}, not empty")
