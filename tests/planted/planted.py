"""Plant known faults, one at a time, and count the tests that notice each.

    python tests/planted/planted.py --tree . --out found.json
    python tests/planted/planted.py --tree . --check

A fault is found by its text and not by its path: the snippet must occur exactly once in the package, whatever
its whitespace. So the same faults can be planted before and after files have been moved, and a change of the
tests or of the layout that makes them blind shows in the counts.

For each fault the tree (what git tracks, and new files that it does not ignore) is copied to a temporary
folder, the fault is planted there, and pytest runs on the copy: the test files that mention what the fault is
about, and all others, folder by folder, where those notice nothing. It stops at ``--most`` failures or after
``--limit`` seconds. A test that fails without the fault too does not count.

Each fault gives a line of JSON: ``failed`` tests (0 where nobody noticed), whether that ``stopped`` at the
most or ``timed_out``, how many tests ``ran``, the ids of those that failed, and the seconds it took. Faults
that ``--out`` has already are passed over, so that an interrupted run can go on.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "resispec_verify"
# Folders of tests, by how their names begin, in the order in which they run; others go with the first.
FOLDERS = ("unit", "properties", "conformance", "broken", "cli", "gpu", "extremes")
LOG = "PLANTED_LOG"  # environment: where the hooks below write what became of each test

# Tests that cannot notice, by how their paths begin.
DUMPS = ("tests/dumps", "tests/unit/test_dumps")
ALWAYS = ("tests/golden", "tests/planted", "tests/project")  # notice any change, or none
RULES = ("tests/properties", "tests/conformance", "tests/broken_rules", "tests/extremes")


class Fault(NamedTuple):
    """One mistake, as somebody might make it.

    Attributes
    ----------
    name, room : str
        ``room`` is rules, kernels, dumps or statistics.
    old, new : str
        The snippet, and what it becomes; ``new`` is one line.
    first : str
        A pattern; the test files that match it, whatever the case, run first.
    skip : tuple of str
        Tests that are not needed, by how their paths begin.
    """

    name: str
    room: str
    old: str
    new: str
    first: str
    skip: tuple[str, ...]


FAULTS = (
    # The rejected token keeps its residual where the hole is read literally.
    Fault("resispec-hole-kept", "rules",
          "strike_out(parts.r, tokens)", "parts.r",
          "literal", DUMPS),
    # Only the token rejected last is remembered, which three candidates show.
    Fault("specinfer-forgets-seen", "rules",
          "xp.where(here > 0, here, seen)", "here",
          "skip.duplicates", DUMPS),
    # n - 1 for n in the equation for rho.
    Fault("k-seq-power", "rules",
          "rho * b - 1.0 + miss**n", "rho * b - 1.0 + miss ** (n - 1)",
          "k.?seq", DUMPS),
    # The draft without the rejected token is not normalised.
    Fault("sequoia-draft-not-normalised", "rules",
          "return normalize(left, left)", "return left",
          "sequoia", DUMPS),
    # Struck out is no better than impossible: a token may come twice once the support is exhausted.
    Fault("eagle-zero-for-drawn", "rules",
          "> 0, -1.0, draft)", "> 0, 0.0, draft)",
          "eagle|greedy", DUMPS),
    # min(1, p/q) of each token by itself: the weight of the path before it is lost.
    Fault("block-weight-dropped", "rules",
          "reached = weight * p", "reached = p",
          "block", DUMPS),
    # The room of the rejected token, read literally, as if it held something already.
    Fault("last-round-own-room", "kernels",
          "room + p[j] if literal else room", "room + p[j] - own if literal else room",
          "literal|last.round", DUMPS),
    # Eq. 13's budget takes from what is left for the next candidate, and here it does not.
    Fault("path-sum-room", "kernels",
          "max(room - (budget - t), 0.0)", "room",
          "floor", DUMPS),
    # The token rejected now is taken to be full at the level of an earlier hole.
    Fault("water-level-full-hole", "kernels",
          "total -= min(ratio[at] * q, p)", "total -= p",
          "water", DUMPS),
    # A coefficient of the series near 0.
    Fault("kl-series-coefficient", "kernels",
          "return d * t * (0.5 - t * (1 / 6 - t * (1 / 12", "return d * t * (0.5 - t * (1 / 6 - t * (1 / 10",
          "diverg|kullback|kl_", DUMPS),
    # A limit rounded down: acceptance above it is called proof.
    Fault("limit-rounded-down", "kernels",
          "1.0 + least + (prefix.shape[0] - 1) * EPS", "1.0 + least - (prefix.shape[0] - 1) * EPS",
          "limit", DUMPS),
    # Two ratios that agree in their leading bits stay as they are.
    Fault("ratio-order-runs-of-two", "kernels",
          "if j - run > 1:", "if j - run > 2:",
          "ratio.?order", DUMPS),
    # Two bytes, but not those.
    Fault("bfloat16-as-float16", "dumps",
          '"BF16": "bfloat16"', '"BF16": "float16"',
          "bfloat16|bf16", RULES),
    # The first token of the padding is taken for one of the vocabulary.
    Fault("padding-off-by-one", "dumps",
          "winner >= self.declared", "winner > self.declared",
          "padding", RULES),
    # Two draft tokens may both become token 0.
    Fault("token-0-twice", "dumps",
          "(tokens[order][1:] >= 0)", "(tokens[order][1:] > 0)",
          "d2t", RULES),
    # A round that was cut although nothing was accepted.
    Fault("round-cut-at-nothing", "dumps",
          "not 0 < k < entry.gamma", "not 0 <= k < entry.gamma",
          r"stopped|\bcut\b", RULES),
    # A prior that knows which cells will be seen: evidence with an expectation above 1.
    Fault("e-process-prior-of-seen", "statistics",
          "(0.5 * len(law), np.full(len(k), 0.5))", "(0.5 * len(k), np.full(len(k), 0.5))",
          "fit.?test|e.?process", RULES),
    # Many acceptances are held against the lowest probabilities, few against the highest.
    Fault("rates-bounds-swapped", "statistics",
          "_TILTS[:, None] > 0, high, low", "_TILTS[:, None] > 0, low, high",
          "replay", RULES),
    # Averaging over bets costs the logarithm of their number, here nothing.
    Fault("detectable-without-bets", "statistics",
          "math.log(bets) + regret(draws, cells)", "regret(draws, cells)",
          "detectable", RULES),
    # A whole unit in the last place for half of one: too many near-ties.
    Fault("near-tie-whole-unit", "statistics",
          "exponent - (info.nmant + 2)", "exponent - (info.nmant + 1)",
          "near.tie|half_ulp", RULES),
)  # fmt: skip


# Hooks: this file is also the plugin of the pytest that it starts.


def pytest_configure() -> None:
    """Refuse to test another copy of the package, an installed one perhaps."""
    import resispec_verify

    found = Path(resispec_verify.__file__).resolve()
    assert found.is_relative_to(Path.cwd().resolve()), found


def pytest_runtest_logreport(report: Any) -> None:
    """Write down what became of a test."""
    if report.failed or report.when == "call":
        _write(report)


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be collected has noticed too."""
    if report.failed:
        _write(report)


def _write(report: Any) -> None:
    with open(os.environ[LOG], "a", encoding="utf-8") as file:
        file.write(json.dumps([report.outcome, report.nodeid]) + "\n")


class Run(NamedTuple):
    """One run of pytest: the tests that failed, in order, how many ran, and whether time was up."""

    failed: list[str]
    ran: int
    timed_out: bool


class Copy:
    """A copy of the tree in a folder of its own; with the tree's compiled kernels, if no fault goes there."""

    def __init__(self, tree: Path, folder: Path, compiled: bool) -> None:
        self.folder, self.root = folder, folder / "tree"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=tree, check=True, capture_output=True, text=True).stdout
        kernels = tree.joinpath(PACKAGE).rglob("*.nb[ic]") if compiled else ()
        for name in (*filter(None, names.split("\0")), *(str(path.relative_to(tree)) for path in kernels)):
            if (tree / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, self.root / name)

    def plant(self, fault: Fault) -> str:
        """Put the fault in its place; returns the file, or raises `LookupError`."""
        pattern = re.compile(r"\s+".join(map(re.escape, fault.old.split())))
        found = []
        for path in sorted((self.root / PACKAGE).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found += [(path, text, match) for match in pattern.finditer(text)]
        if len(found) != 1:
            raise LookupError(f"{fault.old!r} occurs {len(found)} times, and must occur once")
        path, text, match = found[0]
        text = text[: match.start()] + fault.new + text[match.end() :]
        ast.parse(text)
        path.write_text(text, encoding="utf-8")
        return str(path.relative_to(self.root))

    def stages(self, fault: Fault) -> tuple[list[str], list[str]]:
        """Test files that mention what the fault is about, and the others; by folder."""
        files = {}
        for path in (self.root / "tests").rglob("test_*.py"):
            name = path.relative_to(self.root).as_posix()
            if not name.startswith((*fault.skip, *ALWAYS)):
                text = name + path.read_text(encoding="utf-8")
                files[name] = re.search(fault.first, text, re.IGNORECASE) is not None
        ordered = sorted(files, key=lambda name: (_place(name), name))
        return [name for name in ordered if files[name]], [name for name in ordered if not files[name]]

    def test(self, tests: Sequence[str], most: int, seconds: float, without: Iterable[str] = ()) -> Run:
        """Run tests, at most so many failures and seconds long; ``without`` are left out."""
        log = self.folder / "log"
        log.write_text("", encoding="utf-8")
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "planted", "-p", "no:cacheprovider", "-n", "0",
            f"--maxfail={most}", "--continue-on-collection-errors", f"--basetemp={self.folder / 'tmp'}",
            *(f"--deselect={test}" for test in without), *tests,
        ]  # fmt: skip
        paths = [str(self.root), str(Path(__file__).resolve().parent)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), LOG: str(log)}
        with open(self.folder / "output", "w", encoding="utf-8") as output:
            status = _run(command, seconds, cwd=self.root, env=environment, stdout=output, stderr=output)
        if status in (3, 4):  # its own error, or one in how it was called
            raise RuntimeError((self.folder / "output").read_text(encoding="utf-8")[-2000:])
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        failed = list(dict.fromkeys(test for outcome, test in lines if outcome == "failed"))
        return Run(failed, len({test for _, test in lines}), status is None)


def _place(name: str) -> int:
    folder = name.split("/")[1]
    return next((i for i, start in enumerate(FOLDERS) if folder.startswith(start)), 0)


def _run(command: list[str], seconds: float, **options: Any) -> int | None:
    """The exit status; None where time was up. What it started ends with it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def copied(tree: Path, compiled: bool = True) -> Iterator[Copy]:
    """A copy for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as folder:
        yield Copy(tree, Path(folder), compiled)


def stage_by_stage(copy: Copy, fault: Fault, most: int, limit: float, without: Collection[str]) -> Run:
    """The files that mention what the fault is about; the others only where those notice nothing."""
    end, failed, ran, late = time.monotonic() + limit, [], 0, False
    for files in copy.stages(fault):
        if files and not failed and not late:
            found = copy.test(files, most - len(failed), max(1.0, end - time.monotonic()), without)
            failed, ran, late = failed + found.failed, ran + found.ran, found.timed_out
    return Run(failed, ran, late)


def measure(tree: Path, fault: Fault, sound: Copy, most: int, limit: float, broken: set[str]) -> dict:
    """Plant one fault and count. Tests that fail on the ``sound`` copy too are added to ``broken``."""
    result: dict[str, Any] = {"name": fault.name, "room": fault.room}
    while True:
        with copied(tree, compiled=fault.room != "kernels") as copy:
            try:
                result["file"] = copy.plant(fault)
            except LookupError as error:
                return result | {"error": str(error)}
            started = time.monotonic()
            found = stage_by_stage(copy, fault, most, limit, broken)
            seconds = time.monotonic() - started
        alike: set[str] = set()
        if found.failed:
            with contextlib.suppress(RuntimeError):  # a test that there is with the fault only
                alike = set(sound.test(found.failed, len(found.failed), limit).failed)
        if not alike or alike <= broken:
            break
        broken |= alike
    return result | {
        "failed": len(found.failed),
        "stopped": len(found.failed) >= most,
        "timed_out": found.timed_out,
        "ran": found.ran,
        "seconds": round(seconds),
        "tests": found.failed,
        "fail_without": sorted(broken),
    }


def check(tree: Path, faults: Iterable[Fault]) -> int:
    """Say where each fault would be planted; the number of those that have no place."""
    missing = 0
    for fault in faults:
        with copied(tree) as copy:
            try:
                print(f"{fault.name}: {copy.plant(fault)}, {len(copy.stages(fault)[0])} test files first")
            except LookupError as error:
                missing += 1
                print(f"{fault.name}: {error}")
    return missing


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(), help="a checkout of the project")
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault; may be repeated")
    parser.add_argument("--most", type=int, default=10, help="failures at which a fault has been noticed")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds a fault")
    parser.add_argument("--out", type=Path, help="also add the lines to this file")
    parser.add_argument("--check", action="store_true", help="only say where the faults would be planted")
    options = parser.parse_args()
    unknown = set(options.only or ()) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no fault is named {', '.join(sorted(unknown))}")
    faults = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    if options.check:
        return min(check(options.tree, faults), 1)
    done: set[str] = set()
    if options.out and options.out.exists():
        done = {json.loads(line)["name"] for line in options.out.read_text(encoding="utf-8").splitlines()}
    broken: set[str] = set()
    with copied(options.tree) as sound:
        for fault in faults:
            if fault.name in done:
                continue
            line = json.dumps(measure(options.tree, fault, sound, options.most, options.limit, broken))
            print(line, flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
