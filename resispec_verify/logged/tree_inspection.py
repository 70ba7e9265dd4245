"""What `inspect` says of rounds over trees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from resispec_verify.dumps import TreeRoundsDump, load_mapping, open_tree_rounds
from resispec_verify.dumps.checks.oddities import Oddity, RowScan
from resispec_verify.dumps.kinds.tree_rounds import TREE_ROUND_KEYS
from resispec_verify.dumps.opening import show
from resispec_verify.errors import InputError
from resispec_verify.logged.emitted import emitted, end_of_text

__all__ = ["tree_rounds"]

_USED_AS = {
    "d2t": "draft tokens", "t2d": "draft tokens", "meta": "what it states", "rounds": "rounds",
    "output_tokens": "checks of rounds",
}  # fmt: skip


def tree_rounds(path: Any, result: dict[str, Any], pad_vocab: bool, declared: int | None) -> None:
    """Add what a file of rounds over trees holds to the result of `inspect_dump`; as for chains.

    ``gamma`` is the least and the most tokens drafted in a round: all nodes but the root.

    Raises
    ------
    InputError
        As `open_tree_rounds`.
    """
    dump: TreeRoundsDump = open_tree_rounds(path, pad_vocab=pad_vocab)
    for entry in result["keys"]:
        entry["used_as"] = _USED_AS.get(entry["key"])
    entries = load_mapping(path)["rounds"]
    unknown = {key: None for entry in entries for key in entry if key not in TREE_ROUND_KEYS}
    result["ignored"] += [f"rounds.{show(key)}" for key in unknown]
    accepted = Counter(one.accepted for one in dump.rounds)
    rounds: Any = dump.rounds
    text = emitted(rounds, dump.output_tokens, end_of_text(path, dump.meta))
    drafted = [len(one.tokens) - 1 for one in dump.rounds]
    result |= {"vocab": dump.vocab, "dtype": dump.dtype}
    result["rounds"] = {
        "rounds": len(dump),
        "gamma": [min(drafted), max(drafted)],
        "accepted": {str(count): accepted[count] for count in sorted(accepted)},
        "tokens_per_round": sum(text.counts) / len(dump),
        "uniforms": all(one.u is not None for one in dump.rounds),
    }
    first = dump.rounds[0]
    scans = [RowScan("rounds.target_logits", first.target.dtype, declared, "round")]
    if first.draft is not None:
        scans.append(RowScan("rounds.draft_logits", first.draft.dtype, declared, "round"))
    for i in range(len(dump)):
        try:
            logits = dump.logits(i)
        except InputError as error:
            result["problems"].append(str(error))
            continue
        for scan, rows in zip(scans, logits, strict=False):
            if rows is not None and len(rows):
                scan.add(rows, np.full(len(rows), i))
    result["oddities"] += [oddity for scan in scans for oddity in scan.oddities()]
    if text.broken:
        count, at = len(text.broken), text.broken[0]
        line = f"{count} of {len(dump)} rounds do not agree with output_tokens, first round {at}"
        result["oddities"].append(Oddity("broken-chain", "output_tokens", count, at, line))
