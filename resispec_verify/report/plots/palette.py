"""Which colour and marker a rule has, and which line a temperature: in every picture and on every page.

Colour and marker say the rule, line and filling of the marker the temperature. Families of rules have a hue,
their members shades of it; heads of families are told apart by colour-blind readers (after Okabe and Ito),
and markers tell it again. Each colour has a contrast of 3 or more on white, its lighter one on a dark page.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

__all__ = [
    "BLUE", "GREEN", "GREY", "LIGHT_GREY", "MARKERS", "ON_DARK", "ORANGE", "PINK", "Look", "colour_of",
    "looks", "temperature_styles",
]  # fmt: skip

# Of what is no rule: the two sides of an audit, pairs of models.
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
GREY, LIGHT_GREY = "0.35", "0.75"

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">", "h", "*")

# On white, on a dark page, marker. A rule that is not here has one of `_OWN`.
_RULES = {
    "resispec": (ORANGE, "#f08a3c", "o"),
    "sequoia+resispec": ("#772e00", "#ffc9a8", "X"),
    "eagle+resispec": ("#e2484f", "#ffa5a2", "p"),
    "specinfer": (BLUE, "#4aa3df", "s"),
    "specinfer-skip-duplicates": ("#024b7c", "#3685c7", "h"),
    "speculative": ("#3e98e3", "#9fd0fe", "<"),
    "optimal-sequential": (GREEN, "#2fc49a", "^"),
    "optimal-joint": ("#045639", "#a5f0cf", "v"),
    "optimal-without-replacement": ("#6d7607", "#acb663", ">"),
    "optimal-siblings": ("#909b3b", "#d5e08a", "P"),
    "sequoia": (PINK, "#fe9cd5", "D"),
    "spechub": ("#8e2b6b", "#c669a0", "P"),
    "spechub-force": ("#650248", "#ffd0ea", "X"),
    "eagle": ("#1496ae", "#6dd1e9", "p"),
    "k-seq": ("#0c6373", "#2f93a8", "v"),
    "gls": ("#02515f", "#8fe3f0", "*"),
    "token-match": ("#966cd7", "#ccb0ff", "X"),
    "sglang": ("#673ba2", "#aa85e7", "P"),
    "llama-cpp": ("#47137c", "#8e69c8", "h"),
    "shared-noise": ("#a60724", "#f3686a", "<"),
    "medusa": ("#c52a38", "#fd8583", ">"),
    "openvino": ("#6d0315", "#d34b50", "v"),
    "relaxed": ("#ae7c02", "#ebb75a", "o"),
    "redraw": ("#8f660c", "#d8a445", "s"),
    "synthetic": ("#5e4205", "#b5841b", "D"),
    "csd": ("#b8860a", "#ffd98a", "^"),
    "easd": ("#3d2b00", "#9c7514", "v"),
    "block": ("#5b6b7a", "#a9bccd", "s"),
    "hsd": ("#34424f", "#7c8fa1", "D"),
    "traversal": ("#575e01", "#8c9542", "^"),
    "gbv": ("#373c01", "#78822c", "o"),
    "univer": ("#84909c", "#d3dce6", "X"),
}
_OWN = (
    ("#7e53bc", "#bc97fb"), ("#1f9ab2", "#78dbf3"), ("#d168a7", "#ffaddb"), ("#4f7f1f", "#a6d56f"),
    ("#a05a2c", "#e0a070"), ("#5050e0", "#a0a0ff"), ("#008080", "#50d0d0"), ("#a8322a", "#f28b82"),
)  # fmt: skip

#: What a colour becomes on a dark page.
ON_DARK = {light: dark for light, dark, *_ in (*_RULES.values(), *_OWN)}

_LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_FILLS = ("full", "none", "left", "bottom", "right", "top")


@dataclass(frozen=True)
class Look:
    """How a rule is drawn."""

    colour: str
    marker: str


def looks(entries: Iterable[tuple[str, Hashable]]) -> list[Look]:
    """A look for each entry of one picture.

    Parameters
    ----------
    entries : iterable of (str, hashable)
        A rule's name, and what else tells it apart: its options, its data. A rule with other options or data
        keeps its colour and has another marker.

    Returns
    -------
    list of Look
        In their order; the same for the same entry, and different for two, of the first 96 that are no
        shipped rules at least.
    """
    found: dict[tuple[str, Hashable], Look] = {}
    order = list(entries)
    for entry in order:
        if entry not in found:
            found[entry] = _look(entry[0], {other[0]: look.colour for other, look in found.items()}, found)
    return [found[entry] for entry in order]


def _look(name: str, colours: dict[str, str], taken: dict[Any, Look]) -> Look:
    if name in _RULES:
        colour, _, marker = _RULES[name]
    else:
        first = crc32(name.encode())
        own = [_OWN[(first + k) % len(_OWN)][0] for k in range(len(_OWN))]
        free = [colour for colour in own if colour not in colours.values()]
        colour, marker = colours.get(name, (free or own)[0]), MARKERS[first // len(_OWN) % len(MARKERS)]
    at, used = MARKERS.index(marker), set(taken.values())
    for k in range(len(MARKERS)):
        look = Look(colour, MARKERS[(at + k) % len(MARKERS)])
        if look not in used:
            return look
    return Look(colour, marker)


def colour_of(name: str) -> str:
    """The colour of a rule that is alone, or shipped."""
    return looks([(name, None)])[0].colour


def temperature_styles(temperatures: Sequence[float]) -> dict[float, dict[str, Any]]:
    """Line and filling of markers by temperature, as matplotlib takes them; T = 1 has the plain one.

    The others of a picture follow from the highest to the lowest.
    """
    others = sorted(set(temperatures) - {1.0}, reverse=True)
    order = ([1.0] if 1.0 in temperatures else []) + others
    return {
        temperature: {
            "linestyle": _LINES[k] if k < len(_LINES) else (0, (2 * k, 2, 1, 2)),
            "fillstyle": _FILLS[k % len(_FILLS)],
        }
        for k, temperature in enumerate(order)
    }
