"""Check other people's samplers, one or all: a row is a configuration, run in a process of its own.

    python experiments/engines/run.py                                    # every row whose engine is installed
    python experiments/engines/run.py vllm_v1:random --python vllm_v1=ENV/bin/python --seconds 300
    python experiments/engines/run.py eagle --source eagle=CLONE
    python experiments/engines/run.py --list

Engines need packages that do not go together: give each an environment of its own, with what its wrapper
names under ``needs``, and what this package needs. Results are ``experiments/results/engines/NAME-ROW.json``;
`page.py` makes the page of them. Rows run one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import survey

ROOT = Path(__file__).parents[2]
OUT = ROOT / "experiments" / "results" / "engines"
# Importing an engine, and the last call of a row, beyond the seconds of its check.
GRACE = 300.0
_END = {"lowest": "fault at 0,", "highest": "fault at the highest below 1,", "both": "fault at both ends,"}


def main() -> int:
    """Parse, run, report; 2 on bad usage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="wrapper, or wrapper:row; default all")
    parser.add_argument(
        "--source", action="append", default=[], metavar="NAME=PATH", help="a clone of its repository"
    )
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="its interpreter")
    parser.add_argument("--seconds", type=float, help="of each row, instead of its own")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    parser.add_argument("--list", action="store_true", help="only say which rows there are")
    given = parser.parse_args()
    engines = survey.wrappers()
    try:
        rows = chosen(given.names, engines)
        sources, pythons = (_by_name(words, engines) for words in (given.source, given.python))
    except ValueError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    for name, one in rows:
        if given.list:
            print(f"{name}:{one.name}  {engines[name].name}, {one.what}")
            continue
        wrapper = survey.HERE / f"{name}.py"
        found = measured(wrapper, one, engines[name], sources.get(name), pythons.get(name), given.seconds)
        print(f"{name}:{one.name}: {found.get('cannot') or summary(found)}", flush=True)
        if "cannot" not in found:
            given.out.mkdir(parents=True, exist_ok=True)
            path = given.out / f"{name}-{one.name}.json"
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def chosen(names: list[str], engines: dict[str, survey.Engine]) -> list[tuple[str, survey.Configuration]]:
    """The rows that are asked for."""
    rows = [(name, one) for name, engine in engines.items() for one in engine.configurations]
    known = {name for name, _ in rows} | {f"{name}:{one.name}" for name, one in rows}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no {unknown[0]!r}; --list says what there is")
    return [(n, one) for n, one in rows if not names or n in names or f"{n}:{one.name}" in names]


def _by_name(words: list[str], engines: dict[str, survey.Engine]) -> dict[str, Path]:
    found = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or name not in engines or not Path(path).exists():
            raise ValueError(f"{word!r} must be NAME=PATH, of a wrapper and something that is there")
        found[name] = Path(path).absolute()
    return found


def measured(
    wrapper: Path,
    one: survey.Configuration,
    engine: survey.Engine,
    source: Path | None = None,
    python: Path | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """One row, from a process of its own; or ``{"cannot": why}``."""
    environment = {**os.environ, **engine.environment}
    paths = [str(ROOT), *([str(source)] if source else [])]
    environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    if source:
        environment["RESISPEC_ENGINE_SOURCE"] = str(source)
    words = [python or sys.executable, survey.HERE / "one_row.py", wrapper, one.name, seconds or ""]
    limit = GRACE + (seconds or one.settings.get("seconds", 600.0))
    started = time.monotonic()
    try:
        ran = subprocess.run(
            [str(word) for word in words], env=environment, stdout=subprocess.PIPE, text=True, timeout=limit
        )
        answer = json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"cannot": f"did not end within {limit:g} s"}
    except (IndexError, ValueError):
        return {"cannot": f"its process ended with status {ran.returncode} and no result; it says why above"}
    if "cannot" in answer:
        return answer
    return row(wrapper.stem, one, engine, answer["result"], time.monotonic() - started, seconds)


def row(
    name: str,
    one: survey.Configuration,
    engine: survey.Engine,
    answer: dict[str, Any],
    wall: float,
    seconds: float | None,
) -> dict[str, Any]:
    """What is written: the columns of the page first, the whole report of the check at the end."""
    check = answer["check"]
    kind = (check["witness"] or {}).get("kind")
    ran = [found for found in check["inputs"] if found["rows"] is None]
    worst = max(ran, key=lambda found: found["detectable_tv"], default=None)
    if check["verdict"] != "not-rejected" or check["detectable_tv"] is None:
        worst = None
    words = ["python experiments/engines/run.py", f"{name}:{one.name}"]
    words += [f"--python {name}=PYTHON"] * bool(engine.needs) + [f"--source {name}=CLONE"] * bool(
        engine.repository
    )
    if seconds is not None:
        words.append(f"--seconds {seconds:g}")
    return {
        "wrapper": name,
        "row": one.name,
        "engine": engine.name,
        "version": answer["version"],
        "commit": answer["commit"],
        "beside": answer["beside"],
        "configuration": one.what,
        "style": one.style,
        "note": one.note,
        "needs": list(engine.needs),
        "verdict": check["verdict"],
        "reason": check["reason"],
        "law": _part(check, kind, ("law", "support")),
        "independence": _part(check, kind, ("independence",)),
        "ends": _ends(one, check),
        "detectable_tv": check["detectable_tv"],
        "detectable_on": None if worst is None else worst["input"],
        "draws": check["draws"],
        "seconds": round(check["seconds"], 1),
        "wall_seconds": round(wall, 1),
        "machine": machine(),
        "command": " ".join(words),
        "check": check,
    }


def _part(check: dict[str, Any], kind: str | None, kinds: tuple[str, ...]) -> str:
    """A run ends at its first finding, so that the other parts are open then."""
    if kind is None:
        return check["verdict"] if check["verdict"] != "error" else "not reached"
    return "rejected" if kind in kinds else "open"


def _ends(one: survey.Configuration, check: dict[str, Any]) -> str:
    """What was seen at the ends of the uniforms, and how seldom they come; it fails no row."""
    if one.style == survey.STYLE_OF_DRAFTS or not one.settings.get("boundary", True):
        return "not tested"
    ends = check["ends"]
    if ends is None or not ends["inputs"]:
        return "not reached"
    if ends["faults"]:
        return "; ".join(f"{_END[fault['end']]} {fault['often']}" for fault in ends["faults"])
    why = (ends["reason"] or "").partition("; ")[0]
    if not why and ends["not_reached"]:
        why = f"not on {', '.join(ends['not_reached'])}"
    return ends["verdict"].replace("-", " ") + (f": {why}" if why else "")


def machine() -> str:
    """CPU and cores, without the name of the host."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0].partition(":")[2].strip() if lines else cpu
    return f"{cpu}, {os.cpu_count()} cores, no GPU used"


def summary(found: dict[str, Any]) -> str:
    """One line of a row."""
    tv = found["detectable_tv"]
    more = f"TV above {tv:.3f} would have been found" if tv is not None else found["reason"]
    return f"{found['verdict']}, {found['draws']} draws in {found['seconds']} s; {more}"


if __name__ == "__main__":
    sys.exit(main())
