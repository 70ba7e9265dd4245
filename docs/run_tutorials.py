"""Do what the tutorials say, block by block, and hold what comes out against what they show.

    python docs/run_tutorials.py [PAGE...]
    python docs/run_tutorials.py --notebook NOTEBOOK

A page is followed in an empty folder beside which nothing is touched; the checkout's own folders are linked
into it, and this interpreter and its commands come first in PATH. Of a page

* the block after ``<!-- file: NAME -->`` is written to NAME,
* the commands of a ``console`` block (after ``$ ``) are run by one bash for the whole page, without those
  that install; each must end with status 0, unless the page goes on to print its status (``echo $?``),
* a ``python`` block runs as a script, after those before it,
* the block after ``<!-- shown -->`` is what the block before it printed: line by line, numbers aside; a line
  ``...`` stands for any lines.

Exits with 1, and the place, where something else came out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>.+?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
INSTALLS = ("pip install", "python3 -m venv", "git clone", "cd ", "source ")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
SECONDS = 900


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, the text, and the mark in the comment before it."""

    kind: str
    text: str
    mark: str
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(m["kind"], m["text"], m["mark"] or "", page.count("\n", 0, m.start("text")))
        for m in BLOCK.finditer(page)
    ]


def commands(text: str) -> str:
    """The commands of a console block as lines of bash; those that install are left out."""
    lines = []
    for line in text.splitlines():
        if line.startswith("$ ") and not line[2:].startswith(INSTALLS):
            lines.append(line[2:])
        elif lines and lines[-1].endswith("\\"):
            lines.append(line)
    return "\n".join(lines)


def demanding(bash: str, failed: Path) -> str:
    """The same commands; those that fail without the page printing so are written to a file."""
    lines = bash.splitlines()
    after = [*lines[1:], ""]
    for i, line in enumerate(lines):
        if not line.endswith(("\\", "&")) and after[i] != "echo $?":
            lines[i] = f"{line} || echo {shlex.quote(line)} >> {failed}"
    return "\n".join(lines)


def script(page: str, folder: Path) -> tuple[str, dict[int, Path]]:
    """The page as one bash script, and where the output of each block goes, by its place."""
    lines, outputs, python = ["set +e"], {}, []
    for place, block in enumerate(blocks(page)):
        if block.mark.startswith("file: "):
            path = folder / "written" / str(place)
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            name = block.mark.removeprefix("file: ")
            lines.append(f"mkdir -p $(dirname {name}); cp {path} {name}")
            continue
        outputs[place] = folder / f"output-{place}"
        if block.kind == "console":
            bash = demanding(commands(block.text), folder / "failed")
            lines.append(f"{{\n{bash or ':'}\n}} > {outputs[place]} 2>&1")
        elif block.kind == "python":
            path = folder / f"block-{place}.py"
            path.write_text("\n".join([*python, f'print("{path.name}")', block.text]), encoding="utf-8")
            python.append(block.text)
            lines.append(f"python {path} > {outputs[place]} 2>&1 || exit {100 + place}")
    return "\n".join(lines) + "\n", outputs


def agrees(shown: str, printed: str) -> str | None:
    """None where the printed lines are those shown, numbers aside; else the first line that is not there."""
    lines, gap = [NUMBER.sub("#", line.strip()) for line in printed.splitlines() if line.strip()], False
    for line in shown.splitlines():
        wanted = NUMBER.sub("#", line.strip())
        if wanted == "...":
            gap = True
        elif wanted:
            at = lines.index(wanted) if wanted in lines else None
            if at is None or (at and not gap):
                return line
            lines, gap = lines[at + 1 :], False
    return None


def follow(path: Path) -> list[str]:
    """What is wrong with a page: one line each."""
    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder, work = Path(name), Path(name) / "work"
        work.mkdir()
        for entry in ("tests", "examples", "experiments"):
            (work / entry).symlink_to(ROOT / entry)
        bash, outputs = script(page, folder)
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",  # machines of CI are shared
        }
        done = subprocess.run(["bash", "-c", bash], cwd=work, env=environment, timeout=SECONDS, check=False)
        found = []
        if done.returncode >= 100:
            found.append(f"block {done.returncode - 100}: {outputs[done.returncode - 100].read_text()}")
        if (failed := folder / "failed").exists():
            found += [f"failed: {line}" for line in failed.read_text(encoding="utf-8").splitlines()]
        last = None
        for place, block in enumerate(blocks(page)):
            if block.mark == "shown":
                printed = outputs[last].read_text(encoding="utf-8") if last is not None else ""
                # Blocks of Python before this one are run again with it; what it prints itself comes last.
                printed = printed.partition(f"block-{last}.py\n")[2] or printed
                missing = agrees(block.text, printed)
                if missing is not None:
                    found.append(f"line {block.line}: not printed: {missing!r}\nprinted was:\n{printed}")
            elif place in outputs:
                last = place
    return [f"{path.name}: {one}" for one in found]


def execute(path: Path) -> None:
    """Execute a notebook in an empty folder; raises what a cell raises."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        book = nbformat.read(path, as_version=4)
        NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()


def main() -> int:
    """Follow the pages."""
    parser = argparse.ArgumentParser(description="Do what the tutorials say.")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    parser.add_argument("--notebook", type=Path, help="execute this instead")
    asked, wrong = parser.parse_args(), []
    if asked.notebook:
        execute(asked.notebook)
        print(f"{asked.notebook.name}: every cell ran")
        return 0
    for path in asked.pages or [path for path in sorted(TUTORIALS.glob("*.md")) if path.stem != "index"]:
        print(f"following {path.name}", flush=True)
        wrong += follow(path.resolve())
    print("\n".join(wrong) or "every tutorial does what it says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
