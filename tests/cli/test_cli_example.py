"""The command as users run it, on the real example dump."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cli_helpers import EXAMPLE, check_report, command, lines_of, number, row, strict_json

from resispec_verify import Sampling, make_rule, open_dump, operational_marginals, pair_from_logits

RULES = ("resispec", "specinfer")


def test_the_two_rules(example_run):
    result, _ = example_run
    assert result.status == 0
    specinfer, resispec = (row(result.json, name) for name in ("specinfer", "resispec"))
    assert specinfer["verdict"] == "exact"
    assert specinfer["tv_max"] < 1e-12
    assert resispec["verdict"] == "inexact"
    assert resispec["tv_mean"] == pytest.approx(0.4115, abs=1e-3)
    assert resispec["kl_mean"] == pytest.approx(0.7304, abs=0.02)
    for name in RULES:
        identity = row(result.json, name, "path-identity")
        assert identity["tv_max"] < 1e-12
        assert abs(identity["kl_max"]) < 1e-12


def test_the_tables_say_the_same_on_standard_error(example_run):
    result, _ = example_run
    lines = [line.split() for line in result.err.splitlines()]
    assert next(line for line in lines if line[:1] == ["resispec"])[-1] == "inexact"
    assert next(line for line in lines if line[:1] == ["specinfer"])[-1] == "exact"
    assert "cannot fail" in result.err
    assert "\x1b" not in result.err


def test_schema(example_run):
    report = example_run[0].json
    check_report(report)
    assert report["dump"] == {
        "paths": [str(EXAMPLE)],
        "positions": 8,
        "vocab": 49152,
        "dtype": "float16",
        "padding": None,
        "notes": [],
        "left_out": 0,
        "constant_rows": [],
    }
    keys = [(r["rule"], r["marginal"], r["temperature"], r["candidates"]) for r in report["results"]]
    assert len(set(keys)) == 4
    assert all(key[2:] == (1.0, 3) for key in keys)
    assert all(r["positions"] == 8 and r["dataset"] is None for r in report["results"])


def test_csv_is_one_line_a_position_and_agrees_with_the_json(example_run):
    result, path = example_run
    lines = lines_of(path.read_text())
    assert len(lines) == 4 * 8
    for r in result.json["results"]:
        mine = [line for line in lines if (line["rule"], line["marginal"]) == (r["rule"], r["marginal"])]
        assert [int(line["position"]) for line in mine] == list(range(8))
        for name in ("kl", "tv"):
            values = [float(line[name]) for line in mine]
            assert math.fsum(values) / 8 == pytest.approx(r[f"{name}_mean"], rel=1e-14, abs=0)
            assert max(values) == r[f"{name}_max"]
        assert int(max(mine, key=lambda line: float(line["kl"]))["position"]) == r["worst_position"]
        assert {line["verdict"] for line in mine} == {r["verdict"] or ""}


@pytest.mark.parametrize("name", RULES)
def test_the_library_gives_the_same_numbers(example_run, name):
    batch = open_dump(EXAMPLE).batch(6, 8)
    pair = pair_from_logits(batch.target, batch.draft, sampling=Sampling(1.0), dtype=np.float64)
    marginals = operational_marginals(make_rule(name), pair.target, pair.draft, 3)
    lines = lines_of(example_run[1].read_text())
    mine = [line for line in lines if (line["rule"], line["marginal"]) == (name, "operational")][6:]
    for i, line in enumerate(mine):
        excess = np.clip(marginals.placed[i] - pair.target[i], 0, None).sum()
        # The bounds in the file include the bound on rounding.
        low, high = (
            max(excess - marginals.rounding[i], 0.0),
            excess + marginals.gap[i] + marginals.rounding[i],
        )
        assert float(line["tv_low"]) == pytest.approx(low, rel=1e-9, abs=1e-14)
        assert float(line["tv_high"]) == pytest.approx(high, rel=1e-9, abs=1e-14)
        assert float(line["gap"]) == marginals.gap[i]
        accepted = marginals.acceptance[i].sum()
        assert accepted <= float(line["acceptance"]) * (1 + 1e-12)
        assert float(line["acceptance"]) <= accepted + marginals.gap[i] + 1e-12


def numbers_by_position(text: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    keys, values = ("rule", "marginal", "position"), ("kl", "tv", "gap", "limit")
    return {tuple(line[key] for key in keys): tuple(line[name] for name in values) for line in lines_of(text)}


def test_the_batch_size_changes_nothing(example_run, cli):
    """By default all eight positions are one batch."""
    found = numbers_by_position(cli("kl", "--logits", EXAMPLE, "--batch", 1, "--csv", "-").out)
    assert found == numbers_by_position(example_run[1].read_text())


def test_a_range_of_positions_keeps_the_numbering_of_the_dump(example_run, cli, tmp_path):
    path = tmp_path / "report.json"
    result = cli("kl", "--logits", EXAMPLE, "--positions", "2:5", "--csv", "-", "--json", path)
    whole = numbers_by_position(example_run[1].read_text())
    found = numbers_by_position(result.out)
    assert found == {key: value for key, value in whole.items() if key[2] in "234"}
    report = strict_json(path.read_text())
    check_report(report)
    for r in report["results"]:
        assert r["positions"] == 3
        name = (r["rule"], r["marginal"])
        mine = {int(key[2]): float(value[0]) for key, value in found.items() if key[:2] == name}
        assert r["worst_position"] == max(mine, key=lambda i: mine[i])


def test_float32(cli):
    options = ("--precision", "float32", "--positions", "0:2", "--json", "-")
    report = cli("kl", "--logits", EXAMPLE, *options).json
    check_report(report)
    assert row(report, "specinfer")["verdict"] == "exact"
    assert row(report, "resispec")["verdict"] == "inexact"
    assert 1e-10 < row(report, "specinfer")["tv_max"] < 1e-4
    for name in RULES:
        assert row(report, name, "path-identity")["tv_max"] < 1e-5


def test_torch(cli, example_run):
    arguments = ("kl", "--logits", EXAMPLE, "--backend", "torch", "--positions", "2:4", "--csv", "-")
    whole, found = (numbers_by_position(text) for text in (example_run[1].read_text(), cli(*arguments).out))
    assert found.keys() == {key for key in whole if key[2] in "23"}
    for key, values in found.items():
        np.testing.assert_allclose(np.array(values[:2], float), np.array(whole[key][:2], float), atol=2e-4)


def test_inspect(cli):
    result = cli("inspect", EXAMPLE, "--json", "-")
    assert result.status == 0
    (found,) = result.json["results"]
    facts = [found[key] for key in ("kind", "positions", "vocab", "dtype")]
    assert facts == ["flat", 8, 49152, "float16"]
    assert found["problems"] == []
    keys = {entry["key"]: entry for entry in found["keys"]}
    assert keys["target_logits"]["shape"] == [8, 49152]
    assert (keys["target_logits"]["used_as"], keys["draft_logits"]["used_as"]) == ("target", "draft")
    assert "target_logits" in result.err


def test_demands_set_the_exit_status(cli):
    arguments = ("kl", "--logits", EXAMPLE, "--positions", "0:1", "--rule")
    assert cli(*arguments, "resispec", "--require-exact").status == 1
    assert cli(*arguments, "specinfer", "--require-exact").status == 0


def test_version_and_help(cli):
    assert command("--version").out.strip().count(".") == 2
    for arguments in ((), ("--help",), ("kl", "--help")):
        result = cli(*arguments)
        assert result.status == 0
        assert "Usage: resispec-verify" in result.out
        assert result.err == ""
    assert "Exit status" in cli("--help").out


def test_numbers_are_numbers(example_run):
    for r in example_run[0].json["results"]:
        for key in ("kl_mean", "kl_max", "tv_mean", "tv_max", "gap_max", "limit_mean"):
            assert math.isfinite(number(r[key]))
