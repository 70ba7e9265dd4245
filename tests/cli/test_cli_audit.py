"""`audit` over HTTP, of functions and of files: exit statuses, what it prints and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_helpers import assert_one_line, assert_refused
from fake_engine import engines
from fake_server import FakeServer

HELPERS = Path(__file__).parents[1] / "helpers"
LITTLE = ("--length", 12, "--least-drafts", 8)
# Some 330 tokens are the fewest of which it can be said what would have been found.
SMALL = (*LITTLE, "--tokens", 400, "--concurrency", 2)
KEYS = {
    "verdict", "reasons", "notes", "tokens", "requests", "log10_evidence", "found_after", "detectable_tv",
    "control", "band", "drafts", "looks_like", "smallest", "path", "sampling", "facts", "stopped", "seed",
}  # fmt: skip


@pytest.fixture
def served():
    """Start servers of an engine with a fault and of its reference: their addresses."""
    opened = []

    def start(fault=None, schema="llamacpp", **behaviour):
        one, other = engines(fault)
        for engine, how in ((one, behaviour), (other, {})):
            opened.append(FakeServer(engine, schema, **how).__enter__())
        return [server.url for server in opened[-2:]]

    yield start
    for server in opened:
        server.__exit__()


def nobody():
    """An address at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("schema", ["llamacpp", "vllm"])
def test_a_clean_server_is_not_rejected(cli, served, schema, tmp_path):
    on, off = served(schema=schema)
    report = tmp_path / "report.json"
    run = cli("audit", on, "--reference", off, *SMALL, "--json", report)
    assert run.status == 0, run.out + run.err
    assert run.out.startswith(f"{on}: not rejected (")
    assert "Control: the reference through the same test" in run.out
    (found,) = json.loads(report.read_text())["results"]
    assert found.keys() >= KEYS
    assert (found["verdict"], found["mode"]) == ("not-rejected", "laws")
    assert (found["engine"], found["reference"]) == (on, off)
    assert found["tokens"] >= 400


def test_a_faulty_server_is_rejected_and_named(cli, served):
    on, off = served("correction-from-next-row")
    run = cli("audit", "--url", on, "--reference-url", off, *SMALL, "--json", "-")
    assert run.status == 1
    (found,) = json.loads(run.out)["results"]
    assert (found["verdict"], found["stopped"]) == ("rejected", "rejected")
    assert found["looks_like"]
    assert found["smallest"]["request"]["url"].startswith(on)


def test_the_loop_of_the_howto_repeats_the_smallest_request(cli, served, tmp_path, monkeypatch, capsys):
    on, off = served("correction-from-next-row", "vllm")
    run = cli("audit", on, "--reference", off, *SMALL, "--json", tmp_path / "audit.json")
    assert run.status == 1, run.err
    off = json.loads((tmp_path / "audit.json").read_text())["results"][0]["smallest"]["tokens_off"]
    assert off
    howto = (Path(__file__).parents[2] / "docs" / "howto" / "audit-a-server.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"```text\n(import json\n.*?)```", howto, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec(compile(loop, "howto-audit.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        f"{one['token']} came {one['seen']} times, due {round(one['due'], 1)}" for one in off
    ]


def test_a_chat_has_no_laws_and_is_sampled(cli, served):
    on, off = served("equal-seeds", "chat")
    run = cli(
        "audit", on, "--reference", off, "--schema", "chat", "--tokens", 400, "--first", 2, "--json", "-"
    )
    assert run.status == 1, run.out + run.err
    (found,) = json.loads(run.out)["results"]
    assert (found["verdict"], found["mode"]) == ("rejected", "samples")
    assert found["prefixes_off"]


def test_speculation_that_accepts_nothing_is_status_1(cli, served):
    on, off = served("never-accepts", "vllm")
    run = cli("audit", on, "--reference", off, *SMALL)
    assert run.status == 1
    assert run.out.startswith(f"{on}: not exercised (")


@pytest.mark.parametrize("schema", ["llamacpp", "vllm"])
@pytest.mark.parametrize("mode", ["laws", "samples"])
def test_a_draft_that_is_not_loaded_is_status_1(cli, served, tmp_path, schema, mode):
    on, off = served("no-drafts", schema)
    report = tmp_path / "junit.xml"
    asked = ("audit", on, "--reference", off, *SMALL, "--mode", mode)
    run = cli(*asked, "--junit", report)
    assert run.status == 1, run.out + run.err
    assert run.out.startswith(f"{on}: not exercised (")
    source = "its completions" if schema == "llamacpp" else "its counters, over the whole run"
    assert f"not one draft token was verified, by {source}: is the draft loaded?" in " ".join(run.out.split())
    assert 'errors="1"' in report.read_text()
    if mode == "laws":
        assert cli(*[0 if one == 8 else one for one in asked]).status == 0  # --least-drafts 0


def test_what_is_not_known_of_speculation_is_told_to_ci(cli, tmp_path):
    """A function that returns ids only: it is not rejected, and nobody can say whether it speculates."""
    file, report = functions(tmp_path), tmp_path / "junit.xml"
    law = ("--law", f"{file}:law", "--encode", f"{file}:encode")
    ci = ("--junit", report, "--annotations", "github")
    run = cli("audit", f"{file}:generate", "--reference", f"{file}:plain", *law, *SMALL, *ci)
    assert run.status == 0, run.err
    note = (
        "does not report how many draft tokens were accepted and rejected: whether speculation was on is not"
    )
    assert note in report.read_text()
    assert 'name="notes"' in report.read_text()
    (line,) = run.err.splitlines()
    assert line.startswith("::warning title=resispec-verify%3A ")
    assert note in line


@pytest.mark.parametrize("schema", ["llamacpp", "vllm"])
@pytest.mark.parametrize("mode", ["laws", "samples"])
def test_swapped_addresses_are_status_1(cli, served, schema, mode):
    on, off = served("correction-from-next-row", schema)
    run = cli("audit", off, "--reference", on, *SMALL, "--mode", mode, "--json", "-")
    assert run.status == 1
    (found,) = json.loads(run.out)["results"]
    assert (found["verdict"], found["stopped"]) == ("reference-mismatch", "control")
    assert "draft tokens itself: are the addresses swapped?" in found["reasons"][0]


def test_nobody_listens(cli, served):
    on = nobody()
    run = cli("audit", on, "--reference", nobody())
    assert_refused(run, f"error: --url {on}: no connection")
    assert_one_line(run.err)
    one, _ = served()
    assert_refused(cli("audit", one, "--reference", on), f"error: --reference-url {on}: no connection")
    run = cli("audit", one, "--reference", served()[1], "--draft-url", on)
    assert_refused(run, f"error: --draft-url {on}: no connection")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (),
            "--url is missing and --reference-url is missing: say what is audited and against what, once",
        ),
        (("ON",), "error: --reference-url is missing: say what is audited and against what, once each"),
        (("--reference", "OFF"), "error: --url is missing: say what is audited"),
        (("ON", "--url", "ON", "--reference", "OFF"), "error: --url is given 2 times: say what"),
        (
            ("ON", "--reference", "OFF", "--reference-url", "OFF"),
            "error: --reference-url is given 2 times: say",
        ),
        (("ON", "--reference", "OFF", "--band", "1"), "band must be a total variation in [0, 1), got 1"),
        (("ON", "--reference", "OFF", "--band", "-0.1"), "band must be a total variation in [0, 1)"),
        (("ON", "--reference", "OFF", "--alpha", "0"), "alpha must be between 0 and 1, got 0"),
        (("ON", "--reference", "OFF", "--alpha", "1.5"), "alpha must be between 0 and 1, got 1.5"),
        (("ON", "--reference", "OFF", "--temperature", "0"), "temperature must be above 0, got 0"),
        (("ON", "--reference", "OFF", "--top-p", "0"), "top_p must be in (0, 1], got 0"),
        (("ON", "--reference", "OFF", "--seconds", "0"), "seconds must be positive, got 0"),
        (("ON", "--reference", "OFF", "--resume", "-"), "--resume needs a file"),
        (("ON", "--reference", "one.jsonl"), "give two files of completions (.jsonl), or two engines"),
        (("ON", "--reference", "missing.py:plain"), "missing.py"),
        (("ON", "--reference", "ON"), "is both audited and its own reference; nothing would be compared"),
        (("ON", "--reference", "ON/"), "is both audited and its own reference (http://127.0.0.1:"),
        (("ON", "--reference", "localhost ON"), "is the same); nothing would be compared"),
        (("127.0.0.1:8000", "--reference", "OFF"), "127.0.0.1:8000: did you mean http://127.0.0.1:8000?"),
        (("ON", "--reference", "localhost:8000/v1"), "did you mean http://localhost:8000/v1?"),
        (
            ("ON", "--reference", "OFF", "--draft-url", "localhost:8002"),
            "did you mean http://localhost:8002?",
        ),
    ],
)
def test_bad_usage_is_one_line(cli, served, arguments, said):
    on, off = served()
    names = {"ON": on, "ON/": f"{on}/", "OFF": off, "localhost ON": on.replace("127.0.0.1", "localhost")}
    run = cli("audit", *[names.get(one, one) for one in arguments])
    assert_refused(run, said)
    assert_one_line(run.err)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not JSON", "is not JSON"),
        ('{"text": "x"}', 'has no "prompt"'),
        ("[]", "is no prompt"),
        ("[1, -1]", "is no prompt"),
        ('""', "is no prompt"),
        ("[true]", "is no prompt"),
    ],
)
def test_prompts_are_refused_by_their_line(cli, tmp_path, line, said):
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'"a prompt"\n\n{line}\n')
    run = cli("audit", "http://127.0.0.1:9", "--reference", "http://127.0.0.1:10", "--prompts", file)
    assert_refused(run, f"{file}:3: {said}")


def functions(tmp_path, fault=None, body=""):
    """A file of functions around the fake engine."""
    file = tmp_path / "mine.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(HELPERS)!r})\n"
        "import numpy as np\nfrom fake_engine import callables, engines\n"
        f"generate, plain = callables({fault!r})\n"
        "target = engines()[1].target\n"
        "def law(ids):\n    return np.log(target.law(ids))\n"
        "def encode(text):\n    return [ord(c) % 400 for c in text]\n" + body
    )
    return file


def test_functions_with_a_law(cli, tmp_path):
    file = functions(
        tmp_path,
        body="def loud(ids, count, seed):\n    print('loading')\n    return generate(ids, count, seed)\n",
    )
    law = ("--law", f"{file}:law", "--encode", f"{file}:encode")
    run = cli("audit", f"{file}:loud", "--reference", f"{file}:plain", *law, *SMALL, "--json", "-")
    assert run.status == 0, run.err
    (found,) = json.loads(run.out)["results"]  # what it prints does not spoil the report
    assert (found["verdict"], found["mode"]) == ("not-rejected", "laws")
    file = functions(tmp_path, "correction-from-next-row")
    run = cli("audit", f"{file}:generate", "--reference", f"{file}:plain", *law, *SMALL)
    assert run.status == 1
    assert run.out.startswith(f"{file}:generate: rejected (")
    assert f"  {file}:generate([" in run.out


def test_the_name_of_a_page_begins_no_line(cli, tmp_path, monkeypatch):
    file = functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    law = ("--law", f"{file}:law", "--encode", f"{file}:encode")
    page = "::error::said.html"
    run = cli("audit", f"{file}:generate", "--reference", f"{file}:plain", *law, *SMALL, "--out", page)
    assert run.status == 0, run.err
    assert "\\x3a:error::said.html: the page" in run.out
    assert not any(line.lstrip().startswith("::") for line in run.out.splitlines())


def test_functions_without_encode_want_ids(cli, tmp_path):
    file = functions(tmp_path)
    run = cli("audit", f"{file}:generate", "--reference", f"{file}:plain", "--law", f"{file}:law", *SMALL)
    assert_refused(run, "give --encode FILE.py:encode, or ids in --prompts")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("[5, 6]\n[7, 75]\n")
    run = cli(
        "audit", f"{file}:generate", "--reference", f"{file}:plain", "--law", f"{file}:law", *SMALL,
        "--prompts", prompts,
    )  # fmt: skip
    assert run.status == 0, run.out + run.err


def test_a_function_that_raises_is_an_error_of_the_engine(cli, tmp_path):
    file = functions(
        tmp_path, body="def broken(ids, count, seed):\n    raise RuntimeError('out of\\nmemory')\n"
    )
    run = cli(
        "audit", f"{file}:broken", "--reference", f"{file}:plain", "--law", f"{file}:law", "--encode",
        f"{file}:encode", *SMALL, "--json", "-",
    )  # fmt: skip
    assert run.status == 1
    (found,) = json.loads(run.out)["results"]
    assert found["verdict"] == "error"
    assert found["reasons"] == [f"{file}:broken: raises RuntimeError: out of memory"]
    assert found["notes"] == ["with --resume FILE a run is kept, and the same command goes on from there"]


def test_two_files(cli, tmp_path):
    one, other = engines("correction-from-next-row")
    files = [tmp_path / "on.jsonl", tmp_path / "off.jsonl"]
    for file, engine, start in ((files[0], one, 0), (files[1], other, 5000)):
        rows = [
            {"prompt": "one", "tokens": engine.complete([7, 75], 4, start + i).tokens, "seed": start + i}
            for i in range(300)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = cli("audit", files[0], "--reference", files[1], "--json", "-")
    assert run.status == 1, run.err
    assert json.loads(run.out)["results"][0]["verdict"] == "rejected"
    assert_refused(
        cli("audit", files[0], "--reference", files[1], "--resume", tmp_path / "j"), "are for engines"
    )


def test_one_file_under_two_names_is_refused(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "on.jsonl").write_text('{"tokens": [1, 2]}\n' * 50)
    for other in ("on.jsonl", str(tmp_path / "on.jsonl")):
        run = cli("audit", "on.jsonl", "--reference", other)
        assert_refused(run, "on.jsonl: is both audited and its own reference; nothing would be compared")
    (tmp_path / "off.jsonl").symlink_to(tmp_path / "on.jsonl")
    assert_refused(cli("audit", "on.jsonl", "--reference", "off.jsonl"), "its own reference")


def test_a_server_that_dies_is_an_error_with_the_evidence_so_far(cli, served):
    on, off = served(dies_after=12)
    run = cli("audit", on, "--reference", off, *SMALL, "--json", "-")
    assert run.status == 1
    (found,) = json.loads(run.out)["results"]
    assert found["verdict"] == "error"
    assert found["reasons"][0].startswith(on)
    assert 0 < found["requests"] < 12
    assert found["notes"][0] == "what was gathered before is in the evidence above"
    assert "--resume FILE" in found["notes"][1]
    assert len(found["reasons"]) == 1


def test_a_slow_server_runs_into_the_timeout(cli, served):
    on, off = served(slow=1.5)
    run = cli("audit", on, "--reference", off, *LITTLE, "--timeout", "0.3", "--concurrency", 1)
    assert run.status in (1, 2)
    assert on in run.out + run.err
    assert "--timeout" in run.out + run.err


def test_a_rate_limit_is_waited_for(cli, served):
    on, off = served(rate_limit=9)
    run = cli("audit", on, "--reference", off, *SMALL)
    assert run.status == 0, run.out + run.err


def test_a_key_is_never_shown_or_kept(cli, served, tmp_path, monkeypatch):
    monkeypatch.setenv("THE_KEY", "sk-a-secret-that-is-no-key")
    on, off = served("correction-from-next-row")
    out, report, journal = (tmp_path / name for name in ("page.html", "report.json", "journal"))
    run = cli(
        "audit", on, "--reference", off, "--key-env", "THE_KEY", *SMALL, "--json", report, "--resume", journal
    )
    assert run.status == 1
    for text in (run.out, run.err, report.read_text(), journal.read_text()):
        assert text is not None
        assert "a-secret" not in text
    assert not out.exists()
    assert_refused(cli("audit", on, "--reference", off, "--key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY")


def test_a_journal_goes_on_and_one_of_other_settings_is_refused(cli, served, tmp_path):
    on, off = served()
    journal = tmp_path / "journal"
    asked = ("audit", on, "--reference", off, *SMALL, "--resume", journal)
    assert cli(*asked).status == 0
    before = journal.read_bytes()
    assert cli(*asked).status == 0
    assert journal.read_bytes() == before
    assert_refused(cli(*asked, "--seed", 1), f"{journal}: was begun with --seed 0, not 1")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_keeps_the_journal_and_says_so(served, tmp_path, heard):
    on, off = served(slow=0.05)
    journal = tmp_path / "journal"
    run = subprocess.Popen(
        [sys.executable, "-m", "resispec_verify", "audit", on, "--reference", off, *map(str, LITTLE),
         "--tokens", "5000", "--resume", str(journal)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    until = time.monotonic() + 120
    while (not journal.exists() or journal.read_bytes().count(b"\n") < 4) and time.monotonic() < until:
        assert run.poll() is None, run.communicate()
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (130, "")
    assert err.startswith("resispec-verify: interrupted; ")
    assert err.count("\n") == 1
    assert f"what was gathered is in {journal}" in err
    assert journal.read_bytes().count(b"\n") >= 4
