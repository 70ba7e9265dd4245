"""Two files of completions, without a server: is the law of the first tokens the same in both?

A file has one completion a line, in JSON: a list of token ids; or an object with ``tokens``, such a list, or
``text``, and, if wanted, ``prompt``, a number or a text that tells prompts apart, and ``seed``. ``tokens`` is
taken where there are both, and other keys are not read. Completions of a prompt are used in the order of the
file, the k-th in one file against the k-th in the other.

A text is compared by its pieces, words with the white space before them, which are of about the size of
tokens: the first characters would be little more than the first token, which is drawn without speculation.
Pieces are a function of the completion, so if the laws of completions are the same, those of pieces are.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.evidence.repeated_draws import RepeatTest
from resispec_verify.evidence.two_samples import Tokens, TwoSampleTest
from resispec_verify.inputs import real, shown, whole

__all__ = ["Stream", "audit_files", "read_stream"]

# Bytes of a line: far beyond a completion; more is another file.
LONGEST_LINE = 1 << 20
_PIECE = re.compile(r"\s*\S+|\s+$")
# Differences that are reported.
_SHOWN = 5

Prompt = int | str | None


@dataclass
class Stream:
    """The completions of one file, cut after the first tokens.

    Attributes
    ----------
    path : str
    kind : {"ids", "pieces of text"}
    completions : dict
        By prompt, in the order of the file; None is the only prompt where lines name none.
    longest : int
        Tokens of the longest completion, at most as many as were asked for.
    seeds : dict
        By prompt, the line of each seed, where lines name seeds.
    """

    path: str
    kind: str = ""
    completions: dict[Prompt, list[Tokens]] = field(default_factory=lambda: defaultdict(list))
    longest: int = 0
    seeds: dict[Prompt, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def lines(self) -> int:
        """How many completions there are."""
        return sum(len(rows) for rows in self.completions.values())


def read_stream(path: str | os.PathLike[str], first: int) -> Stream:
    """The completions of a file of JSON lines.

    Parameters
    ----------
    path : path
    first : int
        Tokens that are kept of each.

    Raises
    ------
    InputError
        The file cannot be read or is empty, or a line is not such a completion, or of another kind than the
        lines before it; names file and line.
    """
    stream = Stream(str(path))
    try:
        with Path(path).open("rb") as file:
            number = 0
            while raw := file.readline(LONGEST_LINE + 1):
                number += 1
                if raw.strip():
                    _add(stream, raw, number, first)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason}); give a file of JSON lines") from None
    if not stream.lines:
        raise InputError(f"{path}: no completions; give one a line, as a list of token ids")
    if stream.longest < first:
        raise InputError(
            f"{path}: no completion has more than {stream.longest} tokens, but the first {first} are to be "
            f"compared; draw longer ones, or compare the first {max(1, stream.longest)}"
        )
    return stream


def _add(stream: Stream, raw: bytes, number: int, first: int) -> None:
    """Read one line into the stream."""
    where = f"{stream.path}:{number}"
    if len(raw) > LONGEST_LINE:
        raise InputError(f"{where}: longer than {LONGEST_LINE} bytes; give one completion a line")
    try:
        line = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise InputError(f"{where}: not JSON; give one completion a line, as a list of token ids") from None
    if isinstance(line, list):
        line = {"tokens": line}
    if not isinstance(line, dict) or not line.keys() & {"tokens", "text"}:
        raise InputError(f'{where}: no tokens and no text; give {{"tokens": [ids]}} or {{"text": "..."}}')
    kind = "ids" if "tokens" in line else "pieces of text"
    if stream.kind and kind != stream.kind:
        raise InputError(f"{where}: {kind} after lines of {stream.kind}; give one kind in all lines")
    stream.kind = kind
    tokens = _ids(line["tokens"], where) if kind == "ids" else _pieces(line["text"], where, first)
    prompt = line.get("prompt")
    if isinstance(prompt, bool) or not isinstance(prompt, int | str | None):
        raise InputError(f"{where}: prompt is {shown(prompt)}; give a whole number or a text")
    if stream.completions and (prompt is None) != (None in stream.completions):
        raise InputError(f"{where}: some lines name a prompt and some do not; name it in all, or in none")
    _add_seed(stream, line.get("seed"), prompt, number)
    stream.completions[prompt].append(tokens[:first])
    stream.longest = max(stream.longest, min(first, len(tokens)))


def _add_seed(stream: Stream, seed: Any, prompt: Prompt, number: int) -> None:
    where, seeds = f"{stream.path}:{number}", stream.seeds[prompt]
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"{where}: seed is {shown(seed)}; give a whole number, or leave it out")
    if seed in seeds:
        raise InputError(
            f"{where}: seed {seed} was that of line {seeds[seed]}, of the same prompt; "
            "draw each completion of a prompt with a seed of its own"
        )
    seeds[seed] = number


def _ids(value: Any, where: str) -> Tokens:
    if not isinstance(value, list):
        raise InputError(f"{where}: tokens is {shown(value)}; give a list of token ids")
    for token in value:
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            raise InputError(f"{where}: token {shown(token)} is no id; give whole numbers from 0")
    return tuple(value)


def _pieces(value: Any, where: str, first: int) -> Tokens:
    if not isinstance(value, str):
        raise InputError(f"{where}: text is {shown(value)}; give a text")
    return tuple(match.group() for match, _ in zip(_PIECE.finditer(value), range(first), strict=False))


def audit_files(
    on: str | os.PathLike[str],
    off: str | os.PathLike[str],
    first: int = 4,
    alpha: float = 1e-6,
    power: float = 0.99,
) -> dict[str, Any]:
    """Compare completions with speculation, ``on``, to completions without, ``off``.

    Two tests share alpha: whether the law of the first tokens is the same, and whether completions of ``on``
    are independent of each other. First, ``off`` goes through the same: its first half against its second.

    Parameters
    ----------
    on, off : path
        Files as in this module's documentation, of the same prompts.
    first : int
        Tokens of each completion that are compared.
    alpha : float
        Probability at most of rejecting streams that are alike, and of finding ``off`` unlike itself.
    power : float
        With which ``detectable_tv`` would have been found.

    Returns
    -------
    dict
        Plain values. ``verdict`` is ``rejected``, ``not-rejected`` or, where ``off`` is unlike itself,
        ``reference-mismatch``; ``pairs``; ``found_at``, the pairs after which it was rejected, or None;
        ``detectable_tv`` and ``detectable_of``, which cells it is between; ``witness``, prefixes that
        differ most; ``repeated``, of each stream; ``control``, of ``off`` against itself; ``notes``.

    Raises
    ------
    InputError
        As `read_stream`; or the files are of different kinds or prompts, share seeds, or are too short.
    """
    first, alpha = whole("first", first, 1), _share("alpha", alpha)
    power = _share("power", power)
    streams = read_stream(on, first), read_stream(off, first)
    a, b = streams
    notes = _comparable(a, b)
    prompts = sorted(a.completions, key=str)
    each = alpha / 2
    needed = math.ceil(-math.log2(each))
    _enough(a, b, needed, alpha)
    test = _compare(a, b, prompts, first)
    control = _control(b, prompts, first)
    unlike = max(control.log_evidence, test.repeated["off"].log_evidence) >= -math.log(each)
    found, repeats = test.found_at(each), test.repeated["on"].found_at(each)
    notes += _of_little_use(a, b, test, control, needed)
    notes += _remarks(control.found_at(each), test.repeated["off"].found_at(each), repeats, b)
    verdict = "not-rejected" if found is None and repeats is None else "rejected"
    if verdict == "not-rejected" and not unlike:
        notes.append(
            "whether drafts were accepted and rejected cannot be seen in files of completions; "
            "not rejecting is no proof"
        )
    best = test.detectable(each, power)
    return {
        "verdict": "reference-mismatch" if unlike else verdict,
        "on": a.path,
        "off": b.path,
        "compared": a.kind,
        "first": first,
        "prompts": len(prompts),
        "pairs": test.pairs,
        "alpha": alpha,
        "power": power,
        "log_evidence": test.log_evidence,
        "found_at": found,
        "detectable_tv": best.tv,
        "detectable_of": {"first_tokens": best.length, "cells": best.cells},
        "witness": _differences(test, prompts, each),
        "repeated": {name: _repeats(one, each) for name, one in test.repeated.items()},
        "control": {
            "pairs": control.pairs,
            "log_evidence": control.log_evidence,
            "found_at": control.found_at(each),
        },
        "notes": notes,
    }


def _enough(a: Stream, b: Stream, needed: int, alpha: float) -> None:
    """Refuse fewer pairs than could reject."""
    pairs = sum(min(len(rows), len(b.completions[prompt])) for prompt, rows in a.completions.items())
    if pairs < needed:
        raise InputError(
            f"{a.path} and {b.path}: {pairs} pairs of completions, of which no number of differences could "
            f"reject at alpha {alpha:g}; draw at least {needed} of each, and better some hundreds"
        )


def _of_little_use(
    a: Stream, b: Stream, test: TwoSampleTest, control: TwoSampleTest, needed: int
) -> list[str]:
    """What the completions cannot tell, in sentences."""
    found = []
    if control.pairs < needed:
        found.append(f"{b.path} has too few completions of a prompt to be held against itself")
    for stream, repeated in ((a, test.repeated["on"]), (b, test.repeated["off"])):
        if repeated.equal == repeated.neighbours > 0:
            found.append(
                f"{stream.path}: all completions of a prompt are equal; unless the law has one token "
                "only, as at temperature 0, they were drawn with one seed, and say nothing about it"
            )
    return found


def _differences(test: TwoSampleTest, prompts: list[Prompt], alpha: float) -> list[dict[str, Any]]:
    """The prefixes that differ most, plain."""
    return [
        {
            "prompt": prompts[one.prompt],
            "tokens": list(one.tokens),
            "frequency_on": one.on,
            "frequency_off": one.off,
            "log_evidence": one.log_evidence,
            "beyond_noise": one.beyond_noise,
        }
        for one in test.witness(alpha, _SHOWN)
    ]


def _repeats(one: RepeatTest, alpha: float) -> dict[str, Any]:
    """Whether completions of one stream repeat each other, plain."""
    return {
        "distinct": one.distinct,
        "equal_neighbours": one.equal,
        "neighbours": one.neighbours,
        "log_evidence": one.log_evidence,
        "found_at": one.found_at(alpha),
    }


def _share(name: str, value: float) -> float:
    if not 0.0 < real(name, value) < 1.0:
        raise InputError(f"{name} must be between 0 and 1, got {value:g}")
    return float(value)


def _comparable(a: Stream, b: Stream) -> list[str]:
    """Refuse streams that are of different things; what is left out, in a sentence."""
    if a.kind != b.kind:
        raise InputError(f"{a.path} has {a.kind} but {b.path} has {b.kind}; give both files the same")
    for one, other in ((a, b), (b, a)):
        if more := [prompt for prompt in one.completions if prompt not in other.completions]:
            what = "lines without a prompt" if more[0] is None else f"prompt {shown(more[0])}"
            raise InputError(f"{one.path} has {what}, {other.path} has none; give both the same prompts")
    for prompt, seeds in a.seeds.items():
        if both := seeds.keys() & b.seeds[prompt].keys():
            seed = min(both)
            raise InputError(
                f"{a.path}:{seeds[seed]} and {b.path}:{b.seeds[prompt][seed]}: both have seed {seed}, so "
                "they may not be independent; draw one of the files with other seeds"
            )
    unused = sum(abs(len(rows) - len(b.completions[prompt])) for prompt, rows in a.completions.items())
    return [f"{unused} completions have no partner in the other file and are not used"] if unused else []


def _compare(a: Stream, b: Stream, prompts: list[Prompt], first: int) -> TwoSampleTest:
    """The test of all pairs, in the order of the first file."""
    number = {prompt: i for i, prompt in enumerate(prompts)}
    test = TwoSampleTest(first, len(prompts))
    for k, prompt in _rounds(a, b, prompts):
        test.update(number[prompt], a.completions[prompt][k], b.completions[prompt][k])
    return test


def _rounds(a: Stream, b: Stream, prompts: list[Prompt]) -> list[tuple[int, Prompt]]:
    """The k-th pair of each prompt, then the next of each."""
    counts = [min(len(a.completions[prompt]), len(b.completions[prompt])) for prompt in prompts]
    return [
        (k, prompt) for k in range(max(counts)) for prompt, n in zip(prompts, counts, strict=True) if k < n
    ]


def _control(off: Stream, prompts: list[Prompt], first: int) -> TwoSampleTest:
    """The first half of each prompt's completions against the second."""
    early, late = Stream(off.path), Stream(off.path)
    for prompt, rows in off.completions.items():
        half = len(rows) // 2
        early.completions[prompt], late.completions[prompt] = rows[:half], rows[half : 2 * half]
    return _compare(early, late, prompts, first)


def _remarks(drift: int | None, off: int | None, on: int | None, b: Stream) -> list[str]:
    found = []
    if drift is not None:
        found.append(
            f"the first half of {b.path} is unlike its second: its completions are not drawn alike, or not "
            "independently, and prove nothing about the other file"
        )
    for name, repeated in (("off", off), ("on", on)):
        if repeated is not None:
            found.append(
                f"completions of a prompt in {name} equal the one before, or those of the batch before, more "
                "often than independent ones do: it looks like repeated seeds"
            )
    return found
