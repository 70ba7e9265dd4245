"""Rows of target and draft that are not of the same prefixes: named where they hardly overlap."""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.cli import main
from resispec_verify.logged.inspection import inspect_dump

RNG = np.random.default_rng(0)
T = 4 * RNG.normal(size=(12, 400))
D = T + RNG.normal(size=T.shape)


def _saved(folder, target, draft):
    path = folder / "dump.npz"
    np.savez(path, target_logits=target, draft_logits=draft)
    return path


@pytest.mark.parametrize(("target", "draft", "row"), [(T[1:], D[:-1], "i + 1"), (T[:-1], D[1:], "i - 1")])
def test_rows_that_are_one_off(tmp_path, target, draft, row):
    found = inspect_dump(_saved(tmp_path, target, draft))
    (note,) = [note for note in found["notes"] if "hardly overlap" in note]
    assert f"Row i of the target fits row {row} of the draft better" in note


def test_rows_of_the_same_prefixes(tmp_path):
    assert inspect_dump(_saved(tmp_path, T, D))["notes"] == []


def test_other_rows_altogether(tmp_path):
    (note,) = inspect_dump(_saved(tmp_path, T, 4 * RNG.normal(size=T.shape)))["notes"]
    assert note.endswith("are rows of the same prefixes?")


@pytest.mark.parametrize("command", ["kl", "limits"])
def test_commands_say_so_too(tmp_path, capsys, command):
    asked = ["--rule", "specinfer", "--candidates", "1"]
    assert main([command, str(_saved(tmp_path, T[1:], D[:-1])), *asked]) == 0
    assert "Target and draft hardly overlap" in capsys.readouterr().out
    assert main([command, str(_saved(tmp_path, T, D)), *asked]) == 0
    assert "hardly overlap" not in capsys.readouterr().out


def test_mass_on_what_is_called_padding(tmp_path, capsys):
    for logit, said in ((T[:4].min() - 20, False), (T[:4].max(), True)):
        target = np.concatenate([T[:4], np.full((4, 3), logit)], axis=-1)
        path = _saved(tmp_path, target, D[:4])
        assert main(["kl", str(path), "--pad-vocab", "--rule", "specinfer", "--candidates", "1"]) == 0
        out = capsys.readouterr().out
        assert "Vocabularies were padded" in out
        assert ("That is not padding" in out) is said


def test_limits_names_what_is_not_exact(tmp_path, capsys):
    assert main(["limits", str(_saved(tmp_path, T[:4], D[:4])), "--candidates", "2"]) == 0
    assert "shared-noise, redraw: not exact, though not above the limit here" in capsys.readouterr().out
    assert main(["limits", str(_saved(tmp_path, T[:4], D[:4])), "--rule", "specinfer"]) == 0
    assert "not exact" not in capsys.readouterr().out
