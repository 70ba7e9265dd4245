"""Options of where target and draft come from."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from resispec_verify.cli.options.group import Options, numbers_in, refuse_by_hand
from resispec_verify.cli.parameters import Files, Flag, Text
from resispec_verify.distributions import Pair, pair_from_probabilities
from resispec_verify.dumps import READERS
from resispec_verify.dumps.formats.foreign import ARRAYS, pair_of_files
from resispec_verify.errors import InputError
from resispec_verify.rules.registry import SHIPPED

_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?")
_Dumps = TypeVar("_Dumps", bound="DumpOptions")


def check_words(paths: Sequence[Path]) -> None:
    """Refuse, in one line, words that are no dumps: two files of one array each, and values of an option.

    An option takes one value each time it is given, so that a second one stands where files do.
    """
    for path in paths:
        if path.exists():
            continue
        word = str(path)
        if word.partition(":")[0] in {rule.name for rule in SHIPPED}:
            option = f"is the name of a rule: repeat the option, as in --rule resispec --rule {word}"
            raise InputError(f"{word}: no such file, and {option}")
        if _NUMBER.fullmatch(word):
            raise InputError(
                f"{word}: no such file; if it is a further value of an option, repeat the option, as in "
                f"--temperature 1 --temperature {word}"
            )
    two = len(paths) == 2 and all(path.is_file() for path in paths)
    if two and (line := pair_of_files(*paths)) is not None:
        raise InputError(line)


def _refuse_files(**given: str | None) -> None:
    """Refuse files in the place of laws by hand, and say how files are given."""
    files = {name: Path(text) for name, text in given.items() if text and _names_file(text)}
    if not files:
        return
    line = pair_of_files(*files.values()) if len(files) == 2 else None
    how = "give a dump of both as FILE, without --target and --draft" if line is None else line
    (name, path), *_ = files.items()
    raise InputError(f"--{name} {path}: is a file, and --{name} takes numbers such as 0.3,0.4,0.3; {how}")


def _names_file(text: str) -> bool:
    path = Path(text)
    return path.suffix.lower() in {*READERS, *ARRAYS} or (len(text) < 256 and path.is_file())


@dataclass(frozen=True, kw_only=True)
class DumpOptions(Options):
    """Where logits come from."""

    logits: Files | None = None
    """The same as FILE: dumps of target and draft logits."""

    def joined(self: _Dumps, files: Iterable[Path]) -> _Dumps:
        """The same with the dumps that were named without ``--logits``; both at once are refused."""
        named = [*files]
        check_words(named)
        if named and self.logits:
            raise InputError(
                f"{named[0]} is given as FILE and {self.logits[0]} by --logits; give all dumps as FILE, "
                "without the option"
            )
        return replace(self, logits=named or self.logits)

    @property
    def paths(self) -> list[Path]:
        """All dumps."""
        return self.logits or []


@dataclass(frozen=True, kw_only=True)
class HandOptions(Options):
    """Laws given by hand."""

    target: Text | None = None
    """Target probabilities by hand, "0.3,0.4,0.3", instead of a dump."""
    draft: Text | None = None
    """Draft probabilities by hand."""

    @property
    def by_hand(self) -> bool:
        """Whether any was given."""
        return self.target is not None or self.draft is not None

    def pair(self) -> Pair:
        """The pair, both ``(V,)``."""
        _refuse_files(target=self.target, draft=self.draft)
        if self.target is None or self.draft is None:
            missing = "draft" if self.target else "target"
            raise InputError(f"--{missing} is missing: give both --target and --draft")
        wanted = "numbers such as 0.3,0.4,0.3"
        target = numbers_in(self.target, "--target", wanted)
        return pair_from_probabilities(target, numbers_in(self.draft, "--draft", wanted))


@dataclass(frozen=True, kw_only=True)
class PadOption(Options):
    """Vocabularies that differ."""

    pad_vocab: Flag = False
    """Pad the narrower of two vocabularies with probability 0."""


@dataclass(frozen=True, kw_only=True)
class ShardsOption(Options):
    """Files of a folder."""

    shards: Literal["vocab", "positions"] | None = None
    """What the files of a folder are parts of, where they do not say it."""


@dataclass(frozen=True, kw_only=True)
class OpeningOptions(ShardsOption, PadOption):
    """How dumps are opened."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions(OpeningOptions, HandOptions, DumpOptions):
    """Dumps, or laws by hand."""

    def check(self, purpose: str, *only_of_dumps: Options, **options: object) -> None:
        """Refuse both, and neither, with nothing to ``purpose``; by hand, options that are of dumps only."""
        if not self.by_hand and not self.logits:
            raise InputError(f"nothing to {purpose}: give FILE..., or --target and --draft")
        if self.by_hand and self.logits is not None:
            raise InputError("give either FILE... or --target and --draft, not both")
        if self.by_hand:
            opening = {"pad_vocab": self.pad_vocab, "shards": self.shards}
            refuse_by_hand(*only_of_dumps, **opening, **options)
