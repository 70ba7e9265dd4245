"""Every command output shown in the README and the docs is what the command prints today."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def regenerate():
    spec = importlib.util.spec_from_file_location("regenerate", ROOT / "docs" / "regenerate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
)
def test_outputs_are_current(regenerate, page, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert regenerate.stale(ROOT / page) == []


def test_pages_can_be_named_and_others_are_refused(regenerate, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    seen = []
    monkeypatch.setattr(regenerate, "stale", lambda path: seen.append(path) or [])
    monkeypatch.setattr("sys.argv", ["regenerate.py", "--check", "docs/reference/rules.md"])
    assert regenerate.main() == 0
    assert seen == [ROOT / "docs" / "reference" / "rules.md"]
    for word in ("docs/nothing.md", "--chek"):
        monkeypatch.setattr("sys.argv", ["regenerate.py", word])
        with pytest.raises(SystemExit, match="2"):
            regenerate.main()
        assert word in capsys.readouterr().err


def test_a_changed_figure_is_noticed(regenerate, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(found[0] for found in regenerate.BLOCK.finditer(text) if "0.6989" in found[0])
    page = tmp_path / "page.md"
    page.write_text(block.replace("0.6989", "0.6988", 1), encoding="utf-8")
    assert len(regenerate.stale(page)) == 1
