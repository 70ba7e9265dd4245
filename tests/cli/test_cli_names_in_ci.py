"""Names of files cannot give commands to a CI system that reads what is printed."""

import io
from types import SimpleNamespace

import pytest
import torch
from cli_helpers import drawn, save
from rich.console import Console

from resispec_verify.report.audits import print_audit
from resispec_verify.report.table import print_lines, print_records

NAME = "a\n::error::said\r::set-output name=x::y.pt"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a\n::error::b", "a\\n::error::b"),
        (" ::error::b: 3 rounds", " \\x3a:error::b: 3 rounds"),
        ("x ##[add-mask]b", "x ##\\x5badd-mask]b"),
        ("x::y", "x::y"),
    ],
)
def test_a_line_is_one_line_and_no_command(line, shown):
    class Said:
        def print(self, text, **_):
            self.said = text

    console = Said()
    print_lines(console, [line])
    assert console.said == shown


@pytest.mark.parametrize("width", [30, 80])
def test_no_line_of_a_table_is_a_command(width):
    text = io.StringIO()
    console = Console(file=text, width=width)
    hostile = {"": "::error::said", "of": "::error::said", "no": "##[error]said"}
    print_records(
        console, "::error::said", [hostile, {"": "", "of": "::error::said", "no": "1"}], left=("", "of")
    )
    shown = text.getvalue()
    assert shown.count("said") == 5
    assert "##[" not in shown
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())


def test_neither_a_sampler_nor_a_page_begins_a_line_so(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = SimpleNamespace(
        engine="::error::said", verdict="rejected", tokens=1, seconds=1.0, stopped="", cuts=(), tokens_off=(),
        prefixes_off=(), smallest=None, engines={}, reasons=(),
    )  # fmt: skip
    monkeypatch.setattr("resispec_verify.report.audits.sentences", lambda _: [])
    text = io.StringIO()
    print_audit(result, Console(file=text))  # type: ignore[arg-type]
    assert text.getvalue().startswith("\\x3a:error::said: rejected")
    done = cli("kl", "##[error]said.pt")
    assert done.status == 2
    assert "##\\x5berror]said" in done.err


@pytest.mark.parametrize("command", ["compare", "report", "replay"])
def test_a_file_name_begins_no_line(cli, tmp_path, command):
    odd, rows = tmp_path / NAME, drawn(3, 5, seed=1)
    save(odd, rows)
    asked = {"compare": ("compare", odd, odd), "replay": ("replay", odd)}
    if command == "report":
        folder = tmp_path / "o\n::error::said"
        folder.mkdir()
        done = cli("report", odd, "--rule", "specinfer", "--candidates", 1, "--out", folder / "p.html")
    elif command == "replay":
        one = {"draft_tokens": torch.tensor([0]), "target_logits": drawn(2, 4, seed=1),
               "draft_logits": drawn(1, 4, seed=2), "accepted": 1, "next_token": 1}  # fmt: skip
        torch.save({"rounds": [one]}, odd)
        done = cli(*asked["replay"])
    else:
        done = cli(*asked["compare"])
    assert done.status == 0
    assert "said" in done.out
    assert not any(line.lstrip().startswith("::") for line in (done.out + done.err).splitlines())
