"""The table of live audits in docs/reference/engines.md, from what `resispec-verify audit --json` wrote.

    python experiments/engines/live/page.py --keep llamacpp-plain RESULT.json
    python experiments/engines/live/page.py [--check]

``--keep`` keeps of a result what the table shows, under experiments/results/engines/live, without addresses
and paths of the machine. The table is the part between two marks; ``--check`` changes nothing and exits with
1 where it is not current.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "engines.md"
OUT = ROOT / "experiments" / "results" / "engines" / "live"
BEGIN = "<!-- live audits: begin, written by experiments/engines/live/page.py -->"
END = "<!-- live audits: end -->"
COLUMNS = (
    "engine", "configuration", "verdict", "tokens", "a shift above this would have been found",
    "drafts accepted of verified", "control tokens", "band", "it looks", "seconds", "command",
)  # fmt: skip
KEPT = (
    "verdict", "mode", "tokens", "requests", "found_after", "detectable_tv", "drafts", "control", "band",
    "looks_like", "cuts", "prefixes_off", "sampling", "alpha", "power", "seed", "stopped", "seconds",
)  # fmt: skip
SERVERS = "llamacpp_servers.py --draft-tokens 2 --verification {} -- resispec-verify audit --url {{on}} "
SERVERS += "--reference-url {{off}} --tokens 10400 --seconds 2400"
FUNCTIONS = "resispec-verify audit {0}_engine.py:{1} --reference {0}_engine.py:{2} "
FUNCTIONS += "--law {0}_engine.py:laws --encode {0}_engine.py:encode"


class Row(NamedTuple):
    """An audit: the name of its result, what was run, and how."""

    name: str
    engine: str
    configuration: str
    command: str


LLAMACPP = "llama.cpp b11549 (xllamacpp 2026.10.11549)"
OPENVINO = "OpenVINO GenAI 2026.4.1"
TRANSFORMERS = "transformers 5.24.0"
ROWS = (
    Row("llamacpp-plain", LLAMACPP, "draft model, its best tokens, by match", SERVERS.format("plain")),
    Row(
        "llamacpp-probabilistic", LLAMACPP, "draft model, drawn, by rejection sampling",
        SERVERS.format("probabilistic"),
    ),
    Row(
        "llamacpp-synthetic", LLAMACPP, "synthetic rates, for benchmarks: lossy on purpose",
        SERVERS.format("synthetic"),
    ),
    Row(
        "openvino-draft", OPENVINO, "draft model, continuous batching",
        FUNCTIONS.format("openvino", "generate_many", "plain_many") + " --concurrency 8",
    ),
    Row(
        "openvino-lookup", OPENVINO, "prompt lookup, continuous batching",
        FUNCTIONS.format("openvino", "prompt_lookup_many", "plain_many")
        + " --concurrency 16 --tokens 4000 --seconds 900",
    ),
    Row(
        "transformers-assistant", TRANSFORMERS, "assistant model",
        FUNCTIONS.format("transformers", "generate", "plain") + " --tokens 1000 --seconds 420",
    ),
)  # fmt: skip


def keep(name: str, result: Path) -> None:
    """Keep what the table shows of a result of ``audit --json``."""
    if name not in {row.name for row in ROWS}:
        sys.exit(f"{name}: no row of that name; there are {', '.join(row.name for row in ROWS)}")
    found = json.loads(result.read_text(encoding="utf-8"))["results"][0]
    kept = {key: found[key] for key in KEPT}
    kept["machine"] = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def table() -> str:
    """The marked part, with its marks; rows without a result are left out and named below."""
    lines = [BEGIN, "", _line(COLUMNS), "|---" * len(COLUMNS) + "|"]
    missing, machines = [], set()
    for row in ROWS:
        path = OUT / f"{row.name}.json"
        if not path.exists():
            missing.append(f"{row.engine}, {row.configuration}")
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        machines.add(found["machine"])
        lines.append(_line(_cells(row, found)))
    lines += ["", f"Machine: {'; '.join(sorted(machines))}, shared with other work."]
    lines += [f"Not run: {'; '.join(missing)}."] if missing else []
    return "\n".join([*lines, "", END])


def _cells(row: Row, found: dict[str, Any]) -> list[str]:
    tv, drafts, control = found["detectable_tv"], found["drafts"], found["control"]
    tokens = f"{found['tokens']:,}"
    if found["found_after"] is not None:
        tokens = f"{found['found_after']:,} to decide"
    return [
        row.engine,
        row.configuration,
        f"**{found['verdict'].replace('-', ' ')}**",
        tokens,
        "-" if tv is None else f"{tv:.3f}",
        "not reported" if drafts["drafted"] is None
        else f"{drafts['accepted']:,} of {drafts['drafted']:,}",
        f"{control['tokens']:,}" if "tokens" in control else f"{control['pairs']:,} pairs",
        f"{found['band']['tv']:.1g}" if found["band"] else "-",
        found["looks_like"] or "-",
        f"{found['seconds']:.0f}",
        f"`{row.command}`",
    ]  # fmt: skip


def _line(cells: Any) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells) + " |"


def main() -> int:
    """Keep a result, or write or check the table."""
    words = sys.argv[1:]
    if words[:1] == ["--keep"]:
        keep(words[1], Path(words[2]))
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"{PAGE.name} lacks the marks {BEGIN} and {END}")
    new = before + table() + after
    if words == ["--check"]:
        return int(new != text)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
