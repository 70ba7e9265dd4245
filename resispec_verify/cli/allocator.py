"""What the C library does with memory that was freed."""

import ctypes
import functools
import os

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
_LARGEST = 32 << 20  # bytes; the most that glibc takes for the second
_AT_TOP = 512 << 20


@functools.cache
def keep_freed_memory() -> bool:
    """Have this process keep what it frees, up to a point; whether the C library was told to.

    Positions are evaluated one batch after the other with arrays of the same sizes. By default glibc hands
    those of a large vocabulary back to the system each time, and the system fills each page with zeros anew:
    up to half of the time. Where somebody has set one of its ``MALLOC_`` variables, that stays.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(_MAP, _LARGEST)) and bool(mallopt(_TRIM, _AT_TOP))
