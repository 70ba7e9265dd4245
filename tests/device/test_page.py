"""docs/reference/backends.md says of every file of the room what it has run on."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_has_its_line():
    page = (ROOT / "docs" / "reference" / "backends.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| ") and "run on a GPU" in line]
    files = {path.name for path in (ROOT / "resispec_verify" / "device").iterdir() if path.is_file()}
    missing = {name for name in files - {"__init__.py"} if not any(f"`{name}`" in line for line in table)}
    assert missing == set()
    for line in table:
        for word in line.split("`pytest ")[1].split("`")[0].split():
            assert (ROOT / word).exists(), word
