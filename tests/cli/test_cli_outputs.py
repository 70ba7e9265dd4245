"""Where results go: a full disk costs no table and is named, and no file is what its name denies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import PREFIX, assert_refused, command, drawn, save

try:
    import resource
except ImportError:  # Windows
    resource = None

FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.is_char_device(), reason="needs a device that is full")
TOO_LARGE = "File too large; make room or choose another place"
NO_SPACE = "No space left on device; make room or choose another place"


def said(result, *lines: str) -> None:
    """The whole answer is printed, and each file that could not be written is one line; status 2."""
    assert result.status == 2, result.err
    errors = [line for line in result.err.splitlines() if line.startswith(PREFIX)]
    assert errors == [PREFIX + line for line in lines]
    assert "Traceback" not in result.err


@full
@pytest.mark.parametrize(
    ("command_line", "words"),
    [
        (["kl", "--logits", "DUMP"], "Verdicts are certified"),
        (["kl", "--target", "0.3,0.7", "--draft", "0.5,0.5"], "Verdicts are certified"),
        (["limits", "--logits", "DUMP"], "limit"),
        (["drift", "--logits", "DUMP"], "rule"),
        (["explore", "--target", "0.3,0.7", "--draft", "0.5,0.5"], "Z"),
        (["picture", "--target", "0.3,0.7", "--draft", "0.5,0.5", "--rule", "specinfer"], "token"),
        (["runtime", "--vocab", "64", "--repeats", "2"], "GetProxy"),
        (["compare", "DUMP", "DUMP2"], "dump"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_full_disk_is_named_and_the_table_printed(cli, dump, tmp_path, command_line, words):
    other = save(tmp_path / "dump2.pt", drawn(5, 6, seed=3))
    given = {"DUMP": dump, "DUMP2": other}
    arguments = [given.get(word, word) for word in command_line]
    plain = cli(*arguments)
    if plain.status != 0:
        pytest.fail(plain.err)
    result = cli(*arguments, "--json", FULL, "--csv", tmp_path / "rows.csv")
    said(result, f"cannot write {FULL}: {NO_SPACE}")
    if command_line[0] != "runtime":  # which prints times
        assert result.out == plain.out
    assert words in result.out
    assert (tmp_path / "rows.csv").stat().st_size > 0


@full
def test_a_plot_on_a_full_disk(cli, dump, tmp_path):
    plot = tmp_path / "plot.svg"
    plot.symlink_to(FULL)
    result = cli("kl", "--logits", dump, "--plot", plot)
    said(result, f"cannot write {plot}: {NO_SPACE}")
    assert "Verdicts are certified" in result.out
    assert cli("kl", "--logits", dump).status == 0  # the next command has nothing to say about it


@full
def test_a_page_on_a_full_disk_is_not_said_to_be_there(cli, dump, undrawn):
    result = cli("report", "--logits", dump, "--out", FULL)
    said(result, f"cannot write {FULL}: {NO_SPACE}")
    assert result.out == ""


@full
def test_a_full_disk_behind_standard_output_costs_no_file(dump, tmp_path):
    rows = tmp_path / "rows.csv"
    words = ["kl", "--logits", str(dump), "--json", "-", "--csv", str(rows)]
    with FULL.open("w") as target:
        done = subprocess.run(
            [sys.executable, "-m", "resispec_verify", *words],
            stdout=target,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith(PREFIX)] == [
        f"{PREFIX}cannot write standard output: {NO_SPACE}"
    ]
    assert "Verdicts are certified" in done.stderr  # where the table goes with --json -
    assert rows.stat().st_size > 0


def limited(size: int):
    assert resource is not None
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_a_file_that_may_not_grow_leaves_nothing_half_written(dump, tmp_path):
    report = tmp_path / "report.json"
    report.write_text("{}\n")
    rows = tmp_path / "rows.csv"
    result = command("kl", "--logits", dump, "--json", report, "--csv", rows, preexec_fn=limited(100))
    said(result, *(f"cannot write {path}: {TOO_LARGE}" for path in (report, rows)))
    assert not rows.exists()
    assert "Verdicts are certified" in result.out
    assert report.read_text() == "{}\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".resispec-")] == []


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_a_journal_that_cannot_grow_ends_no_run(cli, tmp_path):
    """What is in it stays whole lines, from which a later run goes on."""
    dump = save(tmp_path / "dump.pt", drawn(12, 6, seed=1), drawn(12, 6, seed=2))
    journal, run = tmp_path / "j", ["kl", "--logits", dump, "--batch", 1]
    plain = cli(*run)
    result = command(*run, "--resume", journal, preexec_fn=limited(8192))
    said(result, f"cannot write {journal}: {TOO_LARGE}")
    assert result.err.count("\n") == 2 + result.err.count("compiling")
    assert f"cannot write {journal}: File too large; going on without it" in result.err
    assert result.out == plain.out
    kept = journal.read_bytes()
    assert kept.endswith(b"\n")
    assert 1 < kept.count(b"\n") < 13
    again = cli(*run, "--resume", journal)
    assert (again.status, again.out) == (0, plain.out)
    assert journal.read_bytes().startswith(kept)
    assert journal.read_bytes().count(b"\n") == 13


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("report", "--out", "page.pdf"), ("--out", "page.pdf", "HTML", ".html")),
        (("report", "--out", "page.json"), ("--out", "HTML")),
        (("kl", "--json", "rows.csv"), ("--json", "JSON", "not .csv", ".json")),
        (("kl", "--json", "page.HTML"), ("--json", "JSON", "not .html")),
        (("kl", "--json", "report.json.gz"), ("--json", "not .gz")),
        (("kl", "--csv", "rows.tsv"), ("--csv", "CSV", "not .tsv")),
        (("kl", "--csv", "rows.xlsx"), ("--csv", "CSV", "not .xlsx")),
        (("kl", "--plot", "plot.html"), ("--plot", ".png, .svg or .pdf")),
        (("kl", "--plot", "plot"), ("--plot", ".png, .svg or .pdf")),
        (("kl", "--resume", "run.pt"), ("--resume", "not .pt")),
        (("limits", "--json", "rows.csv"), ("--json", "not .csv")),
    ],
)
def test_a_name_that_promises_another_format_is_refused(cli, dump, tmp_path, options, words):
    name, option, file = options
    assert_refused(cli(name, "--logits", dump, option, tmp_path / file), *words)
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize(
    "options",
    [("report", "--out", "page"), ("report", "--out", "page.htm"), ("kl", "--json", "log.txt"),
     ("kl", "--json", "out"), ("kl", "--csv", "rows.dat"), ("kl", "--resume", "run.jsonl")],
)  # fmt: skip
def test_a_name_that_promises_nothing_else_is_taken(cli, dump, tmp_path, undrawn, options):
    name, option, file = options
    assert cli(name, "--logits", dump, option, tmp_path / file).status == 0
    assert (tmp_path / file).stat().st_size > 0
