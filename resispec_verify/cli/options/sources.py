"""Options of where target and draft come from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from resispec_verify.cli.options.group import Options, numbers_in, refuse_by_hand
from resispec_verify.cli.parameters import Files, Flag, Text
from resispec_verify.distributions import Pair, pair_from_probabilities
from resispec_verify.errors import InputError

_Dumps = TypeVar("_Dumps", bound="DumpOptions")


@dataclass(frozen=True, kw_only=True)
class DumpOptions(Options):
    """Where logits come from."""

    logits: Files | None = None
    """The same as FILE: dumps of target and draft logits."""

    def joined(self: _Dumps, files: Iterable[Path]) -> _Dumps:
        """The same with the dumps that were named without ``--logits``; both at once are refused."""
        named = [*files]
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
