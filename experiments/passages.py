"""Passages to go on from, longer than a short window of tokens: as many different ones as are asked for.

`passages.json` has texts with blanks, and parts that fit into them. Passage i takes form i, in turn, and
fills every blank with a part drawn with seed ``seed + i``. All of it was written for this repository.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

FOUND = json.loads((Path(__file__).parent / "passages.json").read_text(encoding="utf-8"))


def passage(number: int, seed: int) -> str:
    """Passage `number`: its form with every blank filled."""
    chance, parts = random.Random(seed + number), FOUND["parts"]
    function, argument, returns = chance.choice(parts["function"])
    known = {"function": f"{function}({argument})", "argument": argument.split(",")[0], "returns": returns}
    known["table"] = chance.choice(parts["table"])
    known["animal"] = chance.choice(parts["animal"])
    known["name"] = chance.choice(parts["name"])

    def part(blank: re.Match[str]) -> str:
        return known.get(blank[1]) or chance.choice(parts[blank[1]])

    return re.sub(r"\{(\w+)\}", part, FOUND["forms"][number % len(FOUND["forms"])])
