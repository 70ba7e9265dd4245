"""The tutorials: their notebook, and what follows them. `.ci/run` follows them as a whole."""

from __future__ import annotations

import subprocess

import make_notebook
import pytest
import run_tutorials
from written import with_part


def test_the_notebook_is_that_of_its_page(monkeypatch):
    monkeypatch.setattr("sys.argv", ["make_notebook.py", "--check"])
    assert make_notebook.main() == 0, "run python docs/make_notebook.py"


def test_a_notebook_installs_nothing():
    cells = make_notebook.cells(make_notebook.PAGE.read_text(encoding="utf-8"))
    code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "resispec-verify record" in code
    assert "pip install" not in code
    assert "venv" not in code


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("a 1\nb", "a 2\nb\n", None),
        ("b", "a\nb\n", "b"),
        ("...\nb", "a\nb\n", None),
        ("a\n...\nc", "a\nb\n", "c"),
        ("a b", "a c\n", "a b"),
    ],
)
def test_what_is_shown_is_held_against_what_is_printed(shown, printed, missing):
    assert run_tutorials.agrees(shown, printed) == missing


@pytest.mark.parametrize(
    ("console", "failed"),
    [
        ("$ true\n", []),
        ("$ false\n$ true\n", ["false"]),
        ("$ false\n$ echo $?\n", []),
        ("$ printf a \\\n    b && false\n", ["    b && false"]),
        ("$ python -m venv x\n", []),
    ],
)
def test_a_command_that_fails_unsaid_is_noticed(tmp_path, console, failed):
    bash = run_tutorials.demanding(run_tutorials.commands(console), tmp_path / "failed")
    subprocess.run(["bash", "-c", bash], check=False, capture_output=True)
    found = (tmp_path / "failed").read_text().splitlines() if (tmp_path / "failed").exists() else []
    assert found == failed


def test_a_page_without_marks_is_left_alone():
    marked = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n"
    assert with_part(marked, "x", "new\n") == marked.replace("old", "new")
    for page in ("a\n", marked.replace("<!-- end -->", ""), marked + marked):
        with pytest.raises(LookupError, match="once, and"):
            with_part(page, "x", "new")
