"""Work on many items over threads of this process: kernels, and NumPy where it matters, release its lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["as_finished", "at_most", "cores", "in_threads"]

T = TypeVar("T")
R = TypeVar("R")

# How many threads `in_threads` may use here. A thread of a pool is one of many already.
_most: ContextVar[Callable[[], int]] = ContextVar("most")


def cores() -> int:
    """How many cores this process may use: fewer than the machine has under `taskset` or in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """Let `in_threads` use so many threads inside; None: all cores."""
    before = _most.set(lambda: threads or cores())
    try:
        yield
    finally:
        _most.reset(before)


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``[work(item) for item in items]`` on all cores, or as `at_most` says.

    An interrupt does not wait for what has begun.
    """
    items = list(items)
    threads = min(_most.get(cores)(), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    pool = _pool(threads, lambda: 1)
    try:
        found = list(pool.map(work, items))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return found


def as_finished(work: Callable[[Any], R], items: Sequence[Any], threads: int) -> Iterator[tuple[Any, R]]:
    """Items and what the work on them gave, in the order in which they are finished.

    No more than ``threads`` items are worked on at a time, and not many more are taken. Once there are fewer
    left, those that are under way may use the other threads.

    Parameters
    ----------
    items : sequence
        Ascending, and different.

    Raises
    ------
    Exception
        That of the first item, in their order, whose work failed. Those before it are handed on, and of those
        after it the ones that were finished by then; no other is begun.
    """
    todo, running, given = iter(items), dict[Future[R], Any](), 0
    failed: tuple[Any, BaseException] | None = None
    pool = _pool(threads, lambda: 1 + max(threads - given, 0))
    try:
        while True:
            # One more for each thread waits, so that none waits for this thread to notice.
            while failed is None and len(running) < 2 * threads and (item := next(todo, None)) is not None:
                given += 1  # before it begins
                running[pool.submit(work, item)] = item
            if not running:
                break
            for one in sorted(wait(running, return_when=FIRST_COMPLETED).done, key=running.__getitem__):
                item, error, given = running.pop(one), one.exception(), given - 1
                if error is None and (failed is None or item < failed[0]):
                    yield item, one.result()
                elif error is not None and (failed is None or item < failed[0]):
                    failed = item, error
    except BaseException:  # an interrupt, or nobody asks for more: what has begun is not waited for
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    if failed is not None:
        raise failed[1]


def _pool(threads: int, inside: Callable[[], int]) -> ThreadPoolExecutor:
    """A pool, and how many threads `in_threads` may use in each of its own."""
    return ThreadPoolExecutor(threads, initializer=_most.set, initargs=(inside,))
