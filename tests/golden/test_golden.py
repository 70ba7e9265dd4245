"""Every command prints and writes what it did: see golden.py."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import golden
from cases import CASES, SLOW
from golden import differences, load, outputs

from resispec_verify.proofs import TITLES

NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in sorted(CASES)]


@pytest.mark.parametrize("name", NAMES)
def test_the_outputs_are_kept(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = differences(name, outputs(CASES[name]))
    again = f"if that is meant: python tests/golden/golden.py {name}, and look at the difference"
    assert not found, "\n".join([*found, again])


def test_the_ledger_that_is_kept_has_every_statement():
    """The case itself is slow, and not run every day."""
    rows = load("prove")["out"].splitlines()
    lacks = [name for name in TITLES if not any(row.split()[:1] == [name] for row in rows)]
    assert not lacks, f"no {', '.join(lacks)}: run python tests/golden/golden.py prove"


def test_a_lost_key_a_new_one_and_another_figure_are_noticed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = outputs(CASES["kl-hand-json"])
    changed = found["out"].replace('"rule"', '"role"', 1)
    said = differences("kl-hand-json", found | {"out": changed})
    assert {line.rpartition("/")[2] for line in said} == {"rule is gone", "role is new"}
    table = outputs(CASES["kl-hand"])
    figure = table | {"out": table["out"].replace("operational", "operative", 1)}
    assert len(differences("kl-hand", figure)) == 1


def test_what_was_written_did_not_hold(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(golden, "EXPECTED", tmp_path)
    monkeypatch.setattr(golden, "CASES", {"a-one": [], "a-two": []})
    monkeypatch.setattr(golden, "outputs", lambda arguments: {"status": "0"})
    monkeypatch.setenv("COLUMNS", "80")  # which main sets
    golden.save("a-one", {"status": "0"})
    monkeypatch.setattr("sys.argv", ["golden.py", "a"])
    assert golden.main() == 0
    assert capsys.readouterr().out == "1 hold, 1 written: a-two\n"
    monkeypatch.setattr("sys.argv", ["golden.py", "--check", "a-one", "b"])
    with pytest.raises(SystemExit, match="2"):
        golden.main()
    assert "no case begins with 'b'" in capsys.readouterr().err
