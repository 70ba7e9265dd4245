"""The rules that are transcribed, by name: the files of `oracle.shipped` enter themselves here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from .engine import Joint, Transcription
from .laws import Law

__all__ = [
    "MARGINALS",
    "PATH_RULES",
    "TREE_RULES",
    "Blocks",
    "Chain",
    "Entry",
    "Path",
    "Shape",
    "Tree",
    "transcribes",
    "transcribes_paths",
    "transcribes_trees",
]

Path = tuple[int, ...]
Chain = Callable[[Path], Law]
Blocks = dict[Path, Fraction]
Shape = tuple["Shape", ...]  # one a child
Tree = tuple[tuple[int, "Tree"], ...]  # a token and what is below it, one a child
Make = TypeVar("Make", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """A rule's transcription, how its candidates are drawn, and how many it takes.

    Attributes
    ----------
    make : callable (**options) -> Transcription or joint rule
        The transcription; it is given the number of candidates first where `counted`.
    proposal : {"iid", "without-replacement", "fixed", "pairs"}
        The rule's own proposal.
    least, most : int
        Bounds on the number of candidates; `most` is None where there is none.
    counted : bool
        Whether the transcription depends on the number of candidates.
    """

    make: Callable[..., Transcription | Joint]
    proposal: str = "iid"
    least: int = 0
    most: int | None = None
    counted: bool = False

    def counts(self, up_to: int) -> range:
        """Numbers of candidates, from 1, that the rule takes."""
        return range(max(1, self.least), min(up_to, up_to if self.most is None else self.most) + 1)


#: Rules of one position.
MARGINALS: dict[str, Entry] = {}
#: Rules over paths: (target, draft, paths, **options) -> blocks, and how the paths are drawn.
PATH_RULES: dict[str, tuple[Callable[..., Blocks], Callable[..., Any]]] = {}
#: Rules over trees: (target, draft, tree, **options) -> blocks, and how siblings are drawn.
TREE_RULES: dict[str, tuple[Callable[..., Blocks], str]] = {}


def transcribes(name: str, proposal: str = "iid", **takes: Any) -> Callable[[Make], Make]:
    """Enter what is decorated as the transcription of a rule of one position; see `Entry`."""

    def enter(make: Make) -> Make:
        assert name not in MARGINALS, f"{name} is transcribed twice"
        MARGINALS[name] = Entry(make, proposal, **takes)
        return make

    return enter


def transcribes_paths(
    name: str, draw: Callable[..., Sequence[tuple[Sequence[Path], Fraction]]]
) -> Callable[[Make], Make]:
    """The same for a rule over paths, which `draw` draws: (draft, length, **options) -> (paths, chance)."""

    def enter(verify: Make) -> Make:
        assert name not in PATH_RULES, f"{name} is transcribed twice"
        PATH_RULES[name] = (verify, draw)
        return verify

    return enter


def transcribes_trees(name: str, siblings: str) -> Callable[[Make], Make]:
    """The same for a rule over trees, whose `siblings` are drawn as in `trees.drawn_trees`."""

    def enter(verify: Make) -> Make:
        assert name not in TREE_RULES, f"{name} is transcribed twice"
        TREE_RULES[name] = (verify, siblings)
        return verify

    return enter
