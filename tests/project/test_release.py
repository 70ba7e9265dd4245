"""What others build on: exit statuses as documented, the action, hooks, schemas, the example that fails."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

import resispec_verify
from resispec_verify.cli import COMMANDS
from resispec_verify.schema import SCHEMA

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "resispec_verify" / "schemas"
(PAGE,) = (ROOT / "docs").rglob("exit-status.md")
STATUSES = re.findall(r"^\| `(.+)` \| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("command", "status"), STATUSES)
def test_a_command_ends_as_its_page_says(command, status, cli, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert cli(*shlex.split(command)).status == int(status)


def test_each_status_has_an_example():
    assert {int(status) for _, status in STATUSES} == {0, 1, 2, 3}


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_versions_agree():
    version = resispec_verify.__version__
    assert read("CITATION.cff")["version"] == version
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    date = read("CITATION.cff")["date-released"]
    assert f"## [{version}] - {date}" in changelog


def test_the_action_runs_its_command(tmp_path):
    (step,) = (s for s in read("action.yml")["runs"]["steps"] if "COMMAND" in s.get("env", {}))
    program = tmp_path / "resispec-verify"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m resispec_verify "$@"\n')
    program.chmod(0o755)
    asked = "kl --target '0.3, 0.4, 0.3' --draft 0.6,0.3,0.1 --candidates 1 --rule resispec --require-exact"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path),
             "COMMAND": asked, "JUNIT": "made here.xml"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("::error title=resispec-verify%3A resispec")
    assert 'failures="1"' in (tmp_path / "made here.xml").read_text(encoding="utf-8")


def test_the_hooks_are_commands_that_exist(cli):
    for hook in read(".pre-commit-hooks.yaml"):
        program, command, *options = shlex.split(hook["entry"])
        assert program == "resispec-verify"
        shown = cli(command, "--help").out
        assert [o for o in options if o.startswith("--") and o not in shown] == []


def reports():
    """Reports of every command: those that are kept of tests/golden, which holds that they are as printed."""
    for path in sorted((ROOT / "tests" / "golden" / "expected").glob("*-*.txt")):
        for part in re.split(r"^=== .*\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            if part.startswith("{") and '"schema"' in part:
                yield pytest.param(json.loads(part), id=path.stem)


def validator(command):
    schema = json.loads((SCHEMAS / f"{command}-{SCHEMA}.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("report", list(reports()))
def test_a_report_fits_its_schema(report):
    validator(report["command"]).validate(report)


def test_the_report_of_a_page_fits_its_schema_and_a_wrong_one_does_not(cli, tmp_path, undrawn):
    dump = ROOT / "examples" / "smollm2-skip6-N8-fp16.pt"
    done = cli("report", dump, "--positions", "0:2", "--rule", "specinfer", "--candidates", 1,
               "--out", tmp_path / "p.html", "--json", "-")  # fmt: skip
    report = done.json
    validator("report").validate(report)
    for wrong in (report | {"command": "kl"}, report | {"schema": 2}, report | {"results": None}):
        assert not validator("report").is_valid(wrong)
    del report["results"][0]["verdict"]
    assert not validator("report").is_valid(report)


def test_every_command_with_json_has_a_schema(cli):
    with_json = {name for name in COMMANDS if "--json" in cli(name, "--help").out} | {"tree"}
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}-{SCHEMA}.json" for name in with_json}


def test_the_example_of_pytest_fails_as_documented():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_sampler.py"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout
    page = ROOT / "docs" / "howto" / "in-your-ci.md"
    shown = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("E ")]
    assert len(shown) == 9
    assert [line for line in done.stdout.splitlines() if line.startswith("E ")] == shown
