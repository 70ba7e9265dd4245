"""Option types: whole numbers stay whole, and a negative number is a value to refuse, not an option."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from resispec_verify.errors import InputError
from resispec_verify.topology import TREE_FORMS


def _whole(kind: type, tokens: Any) -> int:
    (token,) = tokens
    try:
        return int(token.value)
    except ValueError:
        raise InputError(f"{token.keyword} must be a whole number, got {token.value!r}") from None


def _wholes(kind: type, tokens: Any) -> list[int]:
    return [_whole(int, [token]) for token in tokens]


def _number(token: Any) -> float:
    try:
        return float(token.value)
    except ValueError:
        raise InputError(f"{token.keyword} must be a number, got {token.value!r}") from None


def _real(kind: type, tokens: Any) -> float:
    (token,) = tokens
    return _number(token)


def _reals(kind: type, tokens: Any) -> list[float]:
    return [_number(token) for token in tokens]


def _texts(kind: type, tokens: Any) -> list[str]:
    return [token.value for token in tokens]


Count = Annotated[int, Parameter(converter=_whole, allow_leading_hyphen=True, n_tokens=1)]
Counts = Annotated[
    list[int], Parameter(converter=_wholes, allow_leading_hyphen=True, negative=(), n_tokens=1)
]
Number = Annotated[float, Parameter(converter=_real, allow_leading_hyphen=True, n_tokens=1)]
Numbers = Annotated[
    list[float], Parameter(converter=_reals, allow_leading_hyphen=True, negative=(), n_tokens=1)
]
Text = Annotated[str, Parameter(allow_leading_hyphen=True)]
Texts = Annotated[list[str], Parameter(converter=_texts, allow_leading_hyphen=True, negative=(), n_tokens=1)]
Names = Annotated[list[str], Parameter(negative=())]
File = Annotated[Path, Parameter(allow_leading_hyphen=True)]
Files = Annotated[list[Path], Parameter(consume_multiple=True, negative=())]
DumpFile = Annotated[Path, Parameter(name="FILE", help="One dump or more, which --logits names as well.")]
Trees = Annotated[Texts, Parameter(help=f"A tree: {TREE_FORMS}. Repeat for several.")]
PartTrees = Annotated[
    Texts,
    Parameter(
        help=f"A part of the recorded tree: {TREE_FORMS}. Repeat for several. Default: the recorded tree."
    ),
]
Flag = Annotated[bool, Parameter(negative=())]
