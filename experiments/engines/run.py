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
from typing import Any, NamedTuple

import survey

ROOT = Path(__file__).parents[2]
OUT = ROOT / "experiments" / "results" / "engines"
# Importing an engine, and the last call of a row, beyond the seconds of its check.
GRACE = 300.0


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
    parser.add_argument(
        "--ends", action="store_true", help="only the ends of the uniforms, into results there are"
    )
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
        how = Asked(sources.get(name), pythons.get(name), given.seconds, given.ends)
        found = measured(survey.HERE / f"{name}.py", one, engines[name], how)
        path = given.out / f"{name}-{one.name}.json"
        if given.ends and "cannot" not in found:
            found = json.loads(path.read_text(encoding="utf-8")) | {"ends": found["ends"]}
        print(f"{name}:{one.name}: {found.get('cannot') or summary(found)}", flush=True)
        if "cannot" not in found:
            given.out.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


class Asked(NamedTuple):
    """How a row is run: by which interpreter, on which clone, for how long, and whether for the ends only."""

    source: Path | None = None
    python: Path | None = None
    seconds: float | None = None
    ends: bool = False


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
    how: Asked | None = None,
) -> dict[str, Any]:
    """One row, from a process of its own; or ``{"cannot": why}``."""
    how = how or Asked()
    environment = {**os.environ, **engine.environment}
    paths = [str(ROOT), *([str(how.source)] if how.source else [])]
    environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    if how.source:
        environment["RESISPEC_ENGINE_SOURCE"] = str(how.source)
    program = survey.HERE / "one_row.py"
    words = [how.python or sys.executable, program, wrapper, one.name, how.seconds or "", "ends" * how.ends]
    limit = GRACE + 2 * (how.seconds or one.settings.get("seconds", 600.0))
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
    result = answer["result"]
    if how.ends:
        return {"ends": short_ends(result["ends"])}
    return row(wrapper.stem, one, engine, result, time.monotonic() - started, how.seconds)


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
        "ends": short_ends(answer["ends"]),
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


def short_ends(found: dict[str, Any] | None) -> dict[str, Any]:
    """Verdict and reason of the ends, and how often the likeliest fault comes."""
    if found is None:
        return {"verdict": "not-tested", "reason": None, "log2_probability": None, "often": None}
    first = found["faults"][0] if found["faults"] else {"log2_probability": None, "often": None}
    return {name: found[name] for name in ("verdict", "reason")} | {
        name: first[name] for name in ("log2_probability", "often")
    }


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
