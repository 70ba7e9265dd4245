"""Questions over files of top-k pairs, block by block on several threads; memory holds a block a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from resispec_verify.dumps import TopPairs
from resispec_verify.threads import as_finished

__all__ = ["BLOCK", "TopSource", "over_top"]

#: Positions at a time: some MB at k = 100. The same for any number of threads, so that sums are.
BLOCK = 2048
T = TypeVar("T")


class TopSource(Protocol):
    """What holds top-k pairs: an opened file, or anything else that cuts them."""

    @property
    def path(self) -> str:
        """Named in what is said of it."""
        ...

    @property
    def positions(self) -> int:
        """How many."""
        ...

    def pairs(self, start: int, stop: int) -> TopPairs:
        """Return positions ``start`` to ``stop - 1``."""
        ...


def over_top(
    source: TopSource,
    work: Callable[[str, int, TopPairs], T],
    span: tuple[int, int],
    jobs: int,
    advance: Callable[[int], object] = lambda done: None,
) -> list[T]:
    """What the work on each block of positions gave, in order.

    Parameters
    ----------
    work : callable
        Given the path, the first position and the pairs of a block, in several threads.
    span : (int, int)
        Positions that are read, the last one excluded.
    jobs : int
        Threads.

    Raises
    ------
    InputError
        As `TopPairsDump.pairs` and the work, of the first position that cannot be used.
    """
    start, stop = span

    def answer(first: int) -> T:
        return work(source.path, first, source.pairs(first, min(first + BLOCK, stop)))

    found: dict[int, T] = {}
    for first, result in as_finished(answer, range(start, stop, BLOCK), jobs):
        found[first] = result
        advance(min(BLOCK, stop - first))
    return [found[first] for first in sorted(found)]
