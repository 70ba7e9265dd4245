"""`--junit` and `--annotations`: a case a demand, as continuous integration reads it."""

from xml.etree import ElementTree

import pytest
from cli_helpers import EXAMPLE, PREFIX, drawn, logs, save

from resispec_verify.report.cases import Case, github_lines, junit_xml

HAND = ("--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", "--candidates", "1")
RULES = ("--rule", "resispec", "--rule", "specinfer", "--marginal", "operational")

# The form that pytest writes and that Jenkins, GitLab and others read: attributes that must and may be there,
# and the elements inside, in this order.
FORM = {
    "testsuites": ({"name"}, set(), ("testsuite",)),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped"}, {"time"}, ("testcase",)),
    "testcase": ({"classname", "name"}, {"time"}, ("properties", "skipped", "error", "failure")),
    "properties": (set(), set(), ("property",)),
    "property": ({"name", "value"}, set(), ()),
    "failure": ({"message", "type"}, set(), ()),
    "error": ({"message", "type"}, set(), ()),
    "skipped": ({"message"}, set(), ()),
}


def hold(element):
    """That an element, and all inside, has the form."""
    must, may, inside = FORM[element.tag]
    assert must <= set(element.attrib) <= must | may
    order = [inside.index(child.tag) for child in element]  # raises on what must not be there
    assert order == sorted(order)
    for child in element:
        hold(child)


def read(path):
    """Cases by name, from a file in the right form whose counts are right."""
    suites = ElementTree.parse(path).getroot()
    assert suites.tag == "testsuites"
    hold(suites)
    (suite,) = suites
    cases = {case.get("name"): case for case in suite}
    assert int(suite.get("tests")) == len(cases) == len(suite)
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(count)) == len(suite.findall(f"*/{tag}"))
    return cases


def fact(case, name):
    return case.find(f"properties/property[@name='{name}']").get("value")


def test_a_case_for_each_demand(cli, tmp_path):
    done = cli("kl", *HAND, *RULES, "--require-exact", "--max-tv", 0.01, "--junit", tmp_path / "j.xml")
    cases = read(tmp_path / "j.xml")
    assert done.status == 1
    assert {name: [child.tag for child in case][1:] for name, case in cases.items()} == {
        "resispec, T = 1, n = 1: exact": ["failure"],
        "resispec, T = 1, n = 1: TV at most 0.01": ["failure"],
        "specinfer, T = 1, n = 1: exact": [],
        "specinfer, T = 1, n = 1: TV at most 0.01": [],
    }
    failed = cases["resispec, T = 1, n = 1: exact"]
    assert float(fact(failed, "tv_mean")) == pytest.approx(5 / 58)
    assert "inexact: mean total variation in [0.0862" in failed.find("failure").get("message")


def test_what_is_not_demanded_is_skipped_and_does_not_pass(cli, tmp_path):
    assert cli("kl", *HAND, *RULES, "--junit", tmp_path / "j.xml").status == 0
    case = read(tmp_path / "j.xml")["resispec, T = 1, n = 1"]
    assert case.find("skipped").get("message") == "nothing was demanded; verdict: inexact"


def test_an_input_that_cannot_be_used_is_an_error(cli, tmp_path):
    for others in ((), (EXAMPLE,)):
        done = cli("kl", *others, tmp_path / "no.pt", "--rule", "specinfer", "--positions", "0:1",
                   "--require-exact", "--junit", tmp_path / "j.xml", "--annotations", "github")  # fmt: skip
        assert done.status == 2
        cases = read(tmp_path / "j.xml")
        assert len(cases) == 1 + len(others)
        (name,) = (name for name, case in cases.items() if case.find("error") is not None)
        assert name == f"{tmp_path / 'no.pt'}: usable input"
        assert done.err.startswith("::error title=resispec-verify%3A ")


def test_compare_and_replay(cli, tmp_path):
    a, b = (save(tmp_path / f"{name}.pt", drawn(3, 5, seed=seed)) for seed, name in enumerate("ab"))
    out = ("--junit", tmp_path / "j.xml")
    assert cli("compare", a, b, "--max-tv", 1, "--require-same-top", *out).status == 1
    cases = read(tmp_path / "j.xml")
    assert [case.find("failure") is None for case in cases.values()] == [True, False]
    assert cli("compare", a, a, "--max-tv", 0, "--require-same-top", *out).status == 0
    assert all(case.find("failure") is None for case in read(tmp_path / "j.xml").values())
    log = tmp_path / "decisions.csv"
    log.write_text("p,q,u,accepted\n0.5,0.5,0.3,false\n0.5,0.5,0.4,true\n")
    assert cli("replay", log, *out).status == 0
    (case,) = read(tmp_path / "j.xml").values()
    assert case.find("skipped") is not None
    assert cli("replay", log, "--require-agreement", *out).status == 1
    (case,) = read(tmp_path / "j.xml").values()
    assert case.find("failure").get("message").startswith("1 divergences of 2 decisions")


def test_check_names_the_file_of_the_sampler(cli, tmp_path):
    file = tmp_path / "engine.py"
    file.write_text("def keeps(target, draft, rng):\n    return draft.argmax(axis=-1)\n")
    done = cli("check", f"{file}:keeps", "--input", "base", "--no-search", "--draws", 2000,
               "--junit", tmp_path / "j.xml", "--annotations", "github")  # fmt: skip
    (case,) = read(tmp_path / "j.xml").values()
    assert done.status == 1
    assert case.find("failure").text.startswith("rejected")
    assert f"::error file={file},title=" in done.err
    assert done.err.count("\n") == done.err.count("::error")  # each on one line


def test_audit_of_files(cli, tmp_path):
    off, on = (EXAMPLE.parent / f"completions-{name}.jsonl" for name in ("off", "on"))
    out = ("--first", 3, "--junit", tmp_path / "j.xml")
    assert cli("audit", on, "--reference", off, *out).status == 1
    (case,) = read(tmp_path / "j.xml").values()
    assert case.find("failure") is not None
    assert fact(case, "verdict") == "rejected"


def test_top_k_files_are_judged_for_every_completion(cli, tmp_path):
    laws = tmp_path / "laws.jsonl"
    laws.write_text('{"ids": [0, 1], "logprobs": [-0.7, -1.2]}\n')
    made = cli("convert", laws, laws, "--from", "jsonl", "--vocab", 20, "--out", tmp_path / "pairs.npz")
    if made.status:
        pytest.fail(made.err)
    done = cli("kl", tmp_path / "pairs.npz", "--rule", "specinfer", "--rule", "resispec", "--require-exact",
               "--junit", tmp_path / "j.xml")  # fmt: skip
    cases = read(tmp_path / "j.xml")
    assert done.status == 1
    assert [case.find("failure") is None for case in cases.values()] == [True, False]


def test_junit_needs_a_file_of_its_format(cli, tmp_path):
    assert cli("kl", *HAND, "--junit", "-").err.startswith(f"{PREFIX}--junit needs a file")
    done = cli("kl", *HAND, "--junit", tmp_path / "j.json")
    assert "it would hold JUnit XML, not .json" in done.err
    pair = save(tmp_path / "dump.pt", logs((0.5, 0.5)))
    assert cli("kl", pair, "--junit", pair).status == 2


def test_texts_from_elsewhere_stay_texts(tmp_path):
    odd = Case('<a>&"\x00\x1b[31m', "d", 'x,y: 100%\n::error::"', facts={"n": "\x08<b>", "none": None})
    (tmp_path / "j.xml").write_bytes(junit_xml("kl", [odd]))
    (case,) = read(tmp_path / "j.xml").values()
    assert case.get("name") == '<a>&"\\x00\\x1b[31m: d'
    assert fact(case, "n") == "\\x08<b>"
    assert len(case.find("properties")) == 1
    (line,) = github_lines([odd])
    assert "\n" not in line
    assert line.endswith('::x,y: 100%25%0A::error::"')
