"""Names of files cannot give commands to a CI system that reads what is printed."""

import pytest
import torch
from cli_helpers import drawn, save

from resispec_verify.report.table import print_lines

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
    class Console:
        def print(self, text, **_):
            self.said = text

    console = Console()
    print_lines(console, [line])
    assert console.said == shown


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
