"""docs/reference/backends.md says how every file of the room was checked, and once that no GPU ran it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_has_its_line():
    page = (ROOT / "docs" / "reference" / "backends.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| ") and "`pytest " in line]
    files = {path.name for path in (ROOT / "resispec_verify" / "device").iterdir() if path.is_file()}
    missing = {name for name in files - {"__init__.py"} if not any(f"`{name}`" in line for line in table)}
    assert missing == set()
    assert page.count("been run on a GPU") == 1
    for line in table:
        for word in line.split("`pytest ")[1].split("`")[0].split():
            assert (ROOT / word).exists(), word
