"""Rewrite every command output shown in README.md and docs/*.md by running the command again.

    python docs/regenerate.py [--check] [PAGE...]
    python docs/regenerate.py --pictures

A PAGE is one such file; without any it is all. A line ``<!-- output: ARGUMENTS -->`` before a fenced block
names the arguments of ``resispec-verify`` that printed it. ``--check`` changes nothing and exits with 1 where
a figure has changed; numbers below 1e-12 are rounding noise, differ between machines, and are not compared.

``--pictures`` draws those of ``docs/img`` instead, each by its command in `PICTURES`, and the benchmarks'
from their points. They are not compared: fonts differ between machines, and ``runtime`` measures anew.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- output: (?P<arguments>.+?) -->\n```\w*\n)(?P<text>.*?)(```\n)", re.DOTALL)
NOISE = re.compile(r"\b\d(\.\d+)?e-(1[2-9]|[2-9]\d|\d{3})\b|\b0\b")

EXAMPLE = "examples/smollm2-skip6-N8-fp16.pt"
PICTURES = (
    f"kl {EXAMPLE} --rule resispec --rule specinfer --rule optimal-sequential --plot docs/img/verdict.png",
    f"drift {EXAMPLE} --candidates 4 --plot docs/img/drift.png",
    f"explore {EXAMPLE} --position 3 --plot docs/img/explore.png",
    f"picture {EXAMPLE} --position 3 --plot docs/img/picture.png",
    "runtime --vocab 49152 --plot docs/img/runtime.png",
)  # fmt: skip


def draw() -> None:
    """Draw the pictures of docs/img again."""
    for arguments in PICTURES:
        run(arguments)
    points = ROOT / "docs" / "img" / "performance-growth.csv"
    subprocess.run([sys.executable, "benchmarks/run.py", "--redraw", str(points)], cwd=ROOT, check=True)


def run(arguments: str) -> str:
    """What the command prints on standard output, trailing blanks removed."""
    from resispec_verify.cli import main

    os.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(shlex.split(arguments))
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join(line for line in lines).strip("\n") + "\n"


def comparable(text: str) -> str:
    """The text with rounding noise masked and blanks squeezed."""
    text = NOISE.sub("~", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip(" ─"))


def stale(path: Path) -> list[str]:
    """Arguments of the blocks in a file whose figures have changed."""
    found = BLOCK.finditer(path.read_text(encoding="utf-8"))
    return [m["arguments"] for m in found if comparable(m["text"]) != comparable(run(m["arguments"]))]


def pages() -> list[Path]:
    """The files with outputs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Rewrite, or check."""
    parser = argparse.ArgumentParser(description="Rewrite the outputs that the pages show.")
    parser.add_argument("--check", action="store_true", help="only say which have changed")
    parser.add_argument("--pictures", action="store_true", help="draw docs/img again, and nothing else")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    asked = parser.parse_args()
    if asked.pictures:
        if asked.check or asked.pages:
            parser.error("--pictures stands alone")
        draw()
        return 0
    if none := [path for path in asked.pages if path.resolve() not in pages()]:
        parser.error(f"{none[0]} is no page here: give README.md or docs/*.md, or none for all")
    chosen = [path.resolve() for path in asked.pages] or pages()
    if asked.check:
        changed = [f"{path.relative_to(ROOT)}: {arguments}" for path in chosen for arguments in stale(path)]
        print("\n".join(changed) or "every output is current")
        return 1 if changed else 0
    for path in chosen:
        old = path.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda m: m[1] + run(m["arguments"]) + m[4], old)
        if new != old:
            path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
