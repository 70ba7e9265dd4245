"""The documentation: its Python blocks run, and its tables of options and keys are those of the code."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from resispec_verify.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
USAGE = DOCS / "reference" / "commands"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks():
    for page in PAGES:
        for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            yield pytest.param(code, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("code", list(blocks()))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    first = code.splitlines()[0]
    assert first.startswith("# tested"), "begin the block with '# tested', or make it ```text"
    for module in first.removeprefix("# tested").removeprefix(":").split():
        pytest.importorskip(module, reason=f"the block needs {module}")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "<docs>", "exec"), {"__name__": "docs"})


WITH_OPTIONS = [name for name in COMMANDS if name != "tree"] + ["tree cost", "tree length", "tree grow"]


def section(command):
    """The page about a command; None where there is none."""
    page = USAGE / f"{command}.md"
    return page.read_text(encoding="utf-8") if page.exists() else None


def test_every_command_has_a_section(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert set(re.findall(r"^│ ([a-z]+) ", shown, re.MULTILINE)) == set(COMMANDS)
    lacks = [command for command in COMMANDS if section(command) is None]
    assert not lacks, f"docs/reference/commands/ needs the pages {', '.join(lacks)}"
    index = (USAGE / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`(\w+)`\]\(\1\.md\) \|", index, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS), "the table of the index of commands lists each once"


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_usage_names_every_option(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out.rpartition("Exit status:")[0]  # which names demands of other commands
    options = set(re.findall(r"--[a-z][a-z-]*", shown)) - {"--help", "--paths"}
    options = {name for name in options if not name.startswith("--empty-")}
    usage = section(command.split()[0]) or ""
    assert options
    lacks = unnamed(options, usage)
    assert not lacks, f"name {', '.join(lacks)} in docs/reference/commands/{command.split()[0]}.md"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_commands", DOCS / "make_commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("command", COMMANDS)
def test_tables_of_options_and_keys_are_those_of_the_code(command, maker):
    text = section(command)
    assert text.count("<!-- generated: options -->") == text.count("<!-- generated: json -->") == 1
    assert maker.current(text, command) == text, "run python docs/make_commands.py"


def test_a_table_that_is_not_current_is_noticed(maker, tmp_path, monkeypatch, capsys):
    for page in USAGE.glob("*.md"):
        (tmp_path / page.name).write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(maker, "PAGES", tmp_path)
    monkeypatch.setattr("sys.argv", ["make_commands.py", "--check"])
    assert maker.main() == 0
    wrong = section("kl").replace("| `--candidates INT` | 3 |", "| `--candidates INT` | 4 |")
    (tmp_path / "kl.md").write_text(wrong, encoding="utf-8")
    assert maker.main() == 1
    assert f"not current: {tmp_path / 'kl.md'}; run" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["make_commands.py"])
    assert maker.main() == 0
    assert (tmp_path / "kl.md").read_text(encoding="utf-8") == section("kl")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "resispec_verify" / "schemas").iterdir()), ids=lambda p: p.stem
)
def test_every_key_of_a_report_has_a_meaning(path):
    schema = json.loads(path.read_text(encoding="utf-8"))
    found = schema["properties"] | schema["properties"]["results"]["items"]["properties"]
    assert [key for key, value in found.items() if not value.get("description")] == []


def unnamed(options, usage):
    """The options that a section does not name; one is not named by another that begins so."""
    return [name for name in sorted(options) if not re.search(rf"{name}(?![\w-])", usage)]


def test_an_option_that_is_not_named_is_noticed():
    assert unnamed({"--logits", "--csv"}, "`--logits-dtype`, `--csv PATH`") == ["--logits"]


def test_usage_names_only_options_and_rules_that_exist():
    from resispec_verify.cli import make_app
    from resispec_verify.rules.spec import parse_any_rule

    known = {"--help", "--pictures"}  # of docs/regenerate.py
    app = make_app()
    commands = [app[name] for name in COMMANDS] + [app["tree"][name] for name in ("cost", "length", "grow")]
    for command in commands:
        known |= {word for option in command.assemble_argument_collection() for word in option.names}
    pages = [DOCS / "index.md", DOCS / "reference" / "files.md", *USAGE.glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    text = text.replace("<!--", "").replace("-->", "")
    assert sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - known) == []
    for name in re.findall(r"--rule ([a-z]\S*)", text):
        if ".py:" not in name:
            parse_any_rule(name.strip("`,;"))  # raises on an unknown name


def test_api_page_lists_every_public_name():
    import resispec_verify

    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    missing = [
        n
        for n in resispec_verify.__all__
        if n != "__version__" and not re.search(rf"(resispec_verify\.|`){n}(\n|`)", text)
    ]
    assert missing == []
