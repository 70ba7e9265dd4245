"""`--cost FILE`: milliseconds of a pass by its number of nodes, from CSV or JSON."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.parameters import File
from resispec_verify.cli.tree.recorded import shortened
from resispec_verify.errors import InputError
from resispec_verify.tables.step_cost import StepCost, priced, two_best
from resispec_verify.tables.trees import TreeRow

_COLUMNS = ("nodes", "ms", "draft_ms")
_WANTED = "a CSV with the header nodes,ms (and draft_ms), or a JSON list of objects with these keys"
# A table of measurements; anything larger is another file.
_MOST_BYTES = 1 << 20
# From far below a clock's tick to eleven days: no sum or quotient of such numbers overflows.
_LEAST_MS, _MOST_MS = 1e-9, 1e9


@dataclass(frozen=True, kw_only=True)
class CostOption(Options):
    """What a pass costs.

    Attributes
    ----------
    cost
        Milliseconds of a pass of the target by its nodes, root included: CSV with the header nodes,ms or
        JSON. A column draft_ms adds the draft's passes, one a level. Straight lines join the sizes.
    """

    cost: File | None = None

    def read(self) -> StepCost | None:
        """The same, checked."""
        return None if self.cost is None else read_cost(self.cost)


def read_cost(path: Path) -> StepCost:
    """The table of a file.

    Raises
    ------
    InputError
        A file that cannot be read, or is no such table.
    """
    where = f"--cost {path}"
    try:
        data = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror or error}); give {_WANTED}") from None
    if data is None:
        raise InputError(f"{where}: larger than a table of milliseconds is; give {_WANTED}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{where}: is no text; give {_WANTED}") from None
    rows = _of_json(text, where) if text.lstrip()[:1] in ("[", "{") else _of_csv(text, where)
    return _checked(rows, where)


def _of_csv(text: str, where: str) -> list[dict[str, Any]]:
    try:
        # newline=None: a carriage return alone ends a line too
        lines = [
            line for line in csv.reader(io.StringIO(text, newline=None), skipinitialspace=True) if any(line)
        ]
    except csv.Error as error:
        raise InputError(f"{where}: is no CSV ({error}); give {_WANTED}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    if len(set(header)) < len(header) or not {"nodes", "ms"} <= set(header) <= set(_COLUMNS):
        raise InputError(f"{where}: its first line is {','.join(header)[:60]!r}; give {_WANTED}")
    for line in lines[1:]:
        if len(line) != len(header):
            raise InputError(
                f"{where}: the line {','.join(line)[:60]!r} has {len(line)} values, and the header "
                f"{len(header)}; give one a column"
            )
    return [dict(zip(header, line, strict=True)) for line in lines[1:]]


def _of_json(text: str, where: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, where))
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is no JSON; give {_WANTED}") from None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError(f"{where}: holds no list of objects; give {_WANTED}")
    for row in found:
        if not {"nodes", "ms"} <= set(row) <= set(_COLUMNS) or set(row) != set(found[0]):
            raise InputError(f"{where}: an object has the keys {', '.join(row)[:60]!r}; give {_WANTED}")
    return found


def _object(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    """An object of JSON; of two values of one key Python would keep the last without a word."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"{where}: an object has the key {key[:60]!r} twice; give each once")
        found[key] = value
    return found


def _checked(rows: Sequence[dict[str, Any]], where: str) -> StepCost:
    if not rows:
        raise InputError(f"{where}: has no sizes; give a line for each number of nodes that was measured")
    numbers = {name: [_number(row[name], name, where) for row in rows] for name in rows[0]}
    if any(n != int(n) or not 1 <= n <= 1 << 20 for n in numbers["nodes"]):
        raise InputError(f"{where}: nodes must be whole numbers from 1 on, the root included")
    nodes = np.asarray(numbers["nodes"], np.int64)
    order = np.argsort(nodes)
    if (np.diff(nodes[order]) == 0).any():
        raise InputError(f"{where}: a number of nodes is given twice; give its mean or its median once")
    draft = numbers.get("draft_ms")
    if draft is not None and nodes.min() > 1:
        raise InputError(
            f"{where}: the first pass of a draft is over one node, and sizes are given from {nodes.min()} "
            "on; add the size 1"
        )
    target = np.asarray(numbers["ms"])[order]
    return StepCost(nodes[order], target, None if draft is None else np.asarray(draft)[order], where)


def _number(value: Any, name: str, where: str) -> float:
    try:
        found = math.nan if isinstance(value, (bool, list, dict)) or value is None else float(value)
    except (ValueError, OverflowError):
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise InputError(f"{where}: {name} must be positive numbers, and one is {str(value)[:40]!r}")
    if name != "nodes" and not _LEAST_MS <= found <= _MOST_MS:
        raise InputError(
            f"{where}: {name} must be in {_LEAST_MS:g} to {_MOST_MS:g}, and one is {found:g}; give "
            "milliseconds"
        )
    return found


def assumptions(cost: StepCost) -> str:
    """What the figures rest on, in one line."""
    draft = (
        "the draft's passes are not in it"
        if cost.draft is None
        else "a draft pass a level over the nodes that have children, one after the other"
    )
    return (
        f"ms: a step is a target pass over the tree ({draft}), straight lines between the sizes of "
        f"{cost.where.removeprefix('--cost ')}, nothing else costs."
    )


def choices(
    rows: Sequence[TreeRow], results: Sequence[dict[str, Any]], cost: StepCost
) -> list[dict[str, Any]]:
    """For each rule and sampling the shape with the most tokens a millisecond, and how far it is ahead."""
    groups: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        # Shapes of a dump share its prefixes, in one order.
        prefixes = tuple(zip(row.source, row.prefix, strict=True))
        groups.setdefault((results[i]["label"], row.sampling, row.siblings, prefixes), []).append(i)
    found = []
    for members in groups.values():
        first, second, ahead, error = two_best([(rows[i].topology, rows[i].length) for i in members], cost)
        best = results[members[first]]
        found.append(
            {name: best[name] for name in ("label", "temperature", "topology", "tokens_per_ms", "speedup")}
            | {
                "next": None if second is None else results[members[second]]["topology"],
                "ahead": ahead,
                "ahead_se": error,
            }
        )
    return found


def in_words(choice: dict[str, Any]) -> str:
    """One line on the best shape of a rule."""
    text = f"{choice['label']} (T = {choice['temperature']:g}): best {shortened(choice['topology'])}"
    if choice["next"] is not None:
        error = "" if choice["ahead_se"] is None else f" +- {choice['ahead_se']:.2g}"
        text += f", ahead of {shortened(choice['next'])} by {choice['ahead']:.2g}{error} tokens/ms"
        if choice["ahead_se"] is None or choice["ahead"] < 2 * choice["ahead_se"]:
            text += ": not told apart"
    return text + slower(choice["speedup"])


def slower(speedup: float | None) -> str:
    """What has to be said where speculation does not pay."""
    return "" if speedup is None or speedup > 1 else "; no faster than one token a pass"


def shown_price(result: dict[str, Any]) -> dict[str, str]:
    """Columns of the table."""
    error, speedup = result.get("tokens_per_ms_se"), result["speedup"]
    return {
        "ms": f"{result['step_ms']:.4g}",
        "tokens/ms": f"{result['tokens_per_ms']:.4f}",
        "+- ": "unknown" if error is None else f"{error:.4f}",
        "speedup": "unknown" if speedup is None else f"{speedup:.3f}",
    }


def with_price(row: TreeRow, cost: StepCost | None) -> dict[str, Any]:
    """The result of a row, with what it costs."""
    result = row.result()
    if cost is None:
        return result
    return result | priced(result["accepted_length_mean"], result["accepted_length_se"], cost, row.topology)
