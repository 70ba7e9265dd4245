"""What an array is, for the eye and for a type checker.

The array API has no common type yet: NumPy's, torch's and CuPy's arrays share methods and no base class.
`Array` says that one of them is meant; shapes and dtypes are in the docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

__all__ = ["Array", "ArrayLike"]

#: An array of NumPy, torch or CuPy.
Array: TypeAlias = Any

#: The same, or numbers in lists.
ArrayLike: TypeAlias = Any | Sequence[float] | Sequence[Sequence[float]]
