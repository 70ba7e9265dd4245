"""What others build on: exit statuses as documented, the action, hooks, citation, schemas, the example that fails."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import resispec_verify

ROOT = Path(__file__).parents[2]
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
        ["bash", "-eo", "pipefail", "-c", step["run"]], capture_output=True, text=True, check=False, cwd=tmp_path,
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


def test_the_example_of_pytest_fails_as_documented():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_sampler.py"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout
    assert "forgets_the_residual is not lossless" in done.stdout
    assert "reproduce: assert_lossless(forgets_the_residual" in done.stdout
