"""The page of an audit: all verdicts in words, pictures with their numbers, no markup of a server."""

import base64
import csv
import html
import html.parser
import io
import re
import shlex
from dataclasses import replace

import pytest
from fake_engine import engines
from fake_server import FakeServer
from rich.console import Console

from resispec_verify.audit.settings import VERDICTS, AuditResult, AuditSettings
from resispec_verify.cli import main
from resispec_verify.report.audit_page import NEXT, SAID, audit_page
from resispec_verify.report.audits import plainly, print_audit, sentences
from resispec_verify.report.plots.audit import plot_cuts, plot_evidence, plot_prefixes

EVIL = "<script>alert(1)</script>\"'&\x00\ud800\u202e$x_{"
VOID = {"meta", "link", "br", "img", "input", "hr"}
ON, OFF = "http://127.0.0.1:8001", "http://127.0.0.1:8000"
LINE = 6.3


class Page(html.parser.HTMLParser):
    """What is on a page; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.texts.append(data)

    def get(self, name):
        return [value for _, attribute, value in self.attributes if attribute == name]

    def words(self):
        return " ".join("".join(self.texts).split())


def found(verdict="rejected", **more):
    """A run in mode laws with all there can be; of a rejection what only it has."""
    rejected = verdict == "rejected"
    one = AuditResult(
        verdict, ON, OFF, "laws", 1e-6, 5e-7, 0.99, 7,
        reasons=[] if verdict == "not-rejected" else [f"{ON}: the reason"],
        notes=["a remark"], prompts=8, tokens=64, requests=2, log10_evidence=12.3 if rejected else 0.2,
        found_after=40 if rejected else None, detectable_tv=None if rejected else 0.031,
        control={"tokens": 2560, "log10_evidence": 0.4, "detectable_tv": 0.09},
        band={"tv": 1e-3, "given": False, "others": 0.04,
              "measured": [{"how": "anew", "mean": 1e-3, "used": True}]},
        drafts={"drafted": 342, "accepted": 168, "source": "its counters"},
        looks_like="too cold: as if drawn at 0.8 times the temperature" if rejected else None,
        tokens_off=[{"token": 338, "seen": 41, "due": 6.9, "z": 12.5}] if rejected else [],
        cuts=[{"at": 0.5, "seen": 0.625, "detectable": 0.25}, {"at": 0.999, "seen": 1.0, "detectable": 1.0}],
        places=[{"place": "1", "tokens": 32, "log10_evidence": 7.5, "leading": "cold", "log10_gain": 9.5}],
        path={"engine": [[1, -0.1], [40, 6.5], [64, 12.3]], "reference": [[7, -0.1], [2560, -0.2]]},
        sampling=AuditSettings().facts()["sampling"],
        facts={"engine": {"schema": "completions", "model": "m"}, "reference": {"schema": "completions"}},
        stopped="tokens", seconds=8.4,
    )  # fmt: skip
    if rejected:
        body = {"model": "m", "prompt": [1, 2], "max_tokens": 2}
        one.smallest = {
            "prompt": [1, 2], "tokens": 2, "requests": 54, "seeds": [100, 153], "tokens_off": one.tokens_off,
            "request": {"url": f"{ON}/v1/completions", "body": body},
        }  # fmt: skip
    return replace(one, **more)


def sampled(**more):
    """A rejection in mode samples."""
    prefix = {"prompt": 1, "tokens": [" a", " b"], "seen": 0.34, "due": 0.14, "pairs": 50}
    path = {"engine": [[1, 0.0], [310, 6.8]], "reference": [[1, 0.0], [310, -0.6]]}
    control = {"pairs": 310, "log10_evidence": 0.6, "detectable_tv": 0.5}
    return found(
        mode="samples", prefixes_off=[prefix], path=path, control=control, band={}, cuts=[], places=[],
        tokens_off=[], found_after=1240,
        drafts={"drafted": None, "accepted": None, "source": None}, **more,
    )  # fmt: skip


def tables(page):
    """The numbers of each picture."""
    files = [v.partition("base64,")[2] for v in page.get("href") if v.startswith("data:text/csv")]
    return [list(csv.DictReader(io.StringIO(base64.b64decode(one).decode()))) for one in files]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_is_said_in_words_with_what_to_do_before_any_picture(verdict):
    result = found(verdict)
    text = audit_page(result, "resispec-verify audit --out a.html")
    body, words = html.unescape(text[: text.index("<svg")]), Page(text).words()
    assert SAID[verdict] in body
    assert NEXT[verdict] in body
    assert f"{verdict.replace('-', ' ')}</span>" in body
    assert all(" ".join(line.split()) in words for line in sentences(result) if not line.startswith("Note:"))
    assert words.index("Notes") < words.index("a remark") < words.index("How to get this again")
    assert "Note:" not in words
    assert "is lossless" not in words


def test_a_rejection_has_its_numbers_tokens_places_and_a_request_to_copy():
    page = Page(audit_page(found(), "resispec-verify audit --out a.html"))
    words = page.words()
    assert "It looks like this: too cold: as if drawn at 0.8 times the temperature." in words
    for shown in (
        "12.3 (rejected from 6.3)", "40 tokens", "168 of 342", "2,560 tokens", "338", "12.5000", "cold",
        "54 times, with seeds 100 to 153", "each request its own, from 7 on", "prompts8", "temperature1.0",
    ):  # fmt: skip
        assert shown in words
    assert (
        f"curl {ON}/v1/completions -H 'Content-Type: application/json' -d "
        '\'{"model": "m", "prompt": [1, 2], "max_tokens": 2}\'' in words
    )


def test_a_long_request_is_whole_on_the_page():
    one = found()
    one.smallest["request"]["body"]["prompt"] = list(range(1000))
    assert ", 998, 999]" in Page(audit_page(one, "")).words()


def test_a_function_is_called_in_the_smallest_request():
    one = found(engine="e.py:generate")
    one.smallest["request"] = None
    assert "e.py:generate([1, 2], 2, 100)" in Page(audit_page(one, "")).words()


def test_each_picture_carries_its_numbers():
    text = audit_page(found(), "")
    evidence, cuts = tables(Page(text))
    assert text.count("<figure") == 2
    assert evidence[2] == {"whose": "engine", "tokens": "64", "log10 of the evidence": "12.3"}
    assert [row["whose"] for row in evidence] == ["engine"] * 3 + ["reference"] * 2
    assert cuts == [
        {"cut at": "0.5", "seen": "0.625", "seen minus due": "0.125", "would have been found": "0.25"},
        {"cut at": "0.999", "seen": "1.0", "seen minus due": "0.0010000000000000009",
         "would have been found": ""},
    ]  # fmt: skip
    text = audit_page(sampled(), "")
    evidence, prefixes = tables(Page(text))
    assert evidence[1]["pairs of completions"] == "310"
    assert prefixes == [
        {
            "prompt": "2",
            "tokens": "[' a', ' b']",
            "engine": "0.34",
            "reference": "0.14",
            "pairs": "50",
        }
    ]


def hostile():
    one = sampled(
        looks_like=EVIL, notes=[EVIL], reasons=[EVIL],
        facts={"engine": {"model": EVIL, EVIL: [EVIL], "a": {EVIL: EVIL}}, "reference": {"model": EVIL}},
    )  # fmt: skip
    one.prefixes_off[0]["tokens"] = [EVIL, EVIL]
    one.tokens_off = [{"token": EVIL, "seen": 1, "due": 0.5, "z": 1.0}]
    one.places = [{"place": "1", "tokens": 1, "log10_evidence": "inf", "leading": EVIL, "log10_gain": 1.0}]
    one.smallest["prompt"] = EVIL
    one.smallest["request"]["body"] = {"model": EVIL, "prompt": EVIL}
    one.engine = one.reference = f"http://127.0.0.1/{EVIL}"
    return one


def test_nothing_of_a_server_becomes_markup():
    text = audit_page(hostile(), EVIL)
    text.encode()  # a lone surrogate would not go into a file
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "<script>alert" not in text
    assert page.words().count("alert(1)") > 10
    assert not {"\x00", "\u202e"} & set(text)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


@pytest.mark.parametrize("result", [found(), sampled(), hostile()], ids=["laws", "samples", "hostile"])
def test_nothing_is_fetched_and_no_id_comes_twice(result):
    text = audit_page(result, "")
    page = Page(text)
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert all(
        v.startswith(("#", "data:text/csv;base64,")) for v in page.get("href") + page.get("xlink:href")
    )
    assert page.get("src") == page.get("action") == []
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)|@import", text))
    assert "default-src 'none'" in text
    ids = page.get("id")
    assert len(ids) == len(set(ids))


def test_infinite_and_unknown_numbers():
    one = found(
        log10_evidence="inf",
        control={"tokens": 10, "log10_evidence": "inf", "detectable_tv": None},
        cuts=[
            {"at": 0.5, "seen": float("nan"), "detectable": 1.0},
            {"at": 0.9, "seen": None, "detectable": 1},
        ],
        path={"engine": [[1, "inf"], [2, 1e3]], "reference": [[1, None]]},
        places=[{"place": "1", "tokens": 3, "log10_evidence": "inf", "leading": "x", "log10_gain": None}],
    )
    text = audit_page(one, "")
    assert "∞ (rejected from 6.3)" in Page(text).words()
    assert "Frequencies against the law" not in text
    assert "nan" not in Page(text).words()


def test_nothing_was_gathered():
    bare = AuditResult("error", "e.py:f", "e.py:g", "laws", 1e-6, 5e-7, 0.99, 0, reasons=["e.py:f: no"])
    text = audit_page(bare, "resispec-verify audit")
    Page(text)
    assert "<svg" not in text
    assert "prompts" not in Page(text).words().partition("What was asked")[2]


def test_too_few_tokens_exclude_nothing():
    words = Page(audit_page(found("error", detectable_tv=1.0), "")).words()
    assert "nothing surely" in words
    assert "Too few tokens to be sure of finding anything." in words


def test_a_wide_band_has_a_line_unless_it_was_given():
    how = [{"how": "asked again alone", "mean": 0.03, "used": True},
           {"how": "as it drew its own tokens", "mean": 0.4, "used": False}]  # fmt: skip
    wide = {"tv": 0.031, "given": False, "others": 0.04, "measured": how}
    said = " ".join(sentences(found("not-rejected", band=wide)))
    assert "asked again alone 0.03, as it drew its own tokens 0.4, not used: another law)" in said
    assert "That band is wide: the law of a text depends on batching or on the cache." in said
    assert "not used: another law" not in " ".join(sentences(found()))
    for band in (wide | {"given": True}, wide | {"tv": 0.004}):
        assert "That band is wide" not in " ".join(sentences(found("not-rejected", band=band)))


@pytest.mark.parametrize(
    ("log10", "shown"),
    [(-0.3, "0.5"), (0.0, "1.0"), (3.0, "1,000"), (6.5, "10^6.5"), (400.0, "10^400.0"), ("inf", "inf")],
)
def test_evidence_is_written_as_people_do(log10, shown):
    assert plainly(log10) == shown


def test_settings_that_were_tested_are_named():
    text = " ".join(sentences(found("not-rejected")))
    assert "Tested at temperature 1, no filters: other settings are audits of their own." in text
    sampling = found().sampling | {"temperature": 0.7, "top_k": 40, "top_p": 0.9}
    text = " ".join(sentences(found("not-rejected", sampling=sampling)))
    assert "Tested at temperature 0.7 and top_k 40, top_p 0.9: other" in text
    assert "moves 3.1 percentage points of probability the same way everywhere" in text


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ([{"token": 5, "seen": 20, "due": 6.9, "z": 5.0}, {"token": 6, "seen": 0, "due": 40.0, "z": -6.3}],
         "Count the tokens of all of them: 6 came 0 times, where 40.0 are due."),
        ([{"token": 5, "seen": 8, "due": 6.9, "z": 0.4}], "No single token stands out in them"),
        (None, "Count their beginnings, and those of as many of the reference's with other seeds."),
    ],
)  # fmt: skip
def test_what_to_count_in_the_smallest_requests(off, said):
    one = found()
    if off is None:  # mode samples has no laws to count against
        del one.smallest["tokens_off"]
    else:
        one.smallest["tokens_off"] = off
    console = Console(file=io.StringIO(), width=200)
    print_audit(one, console)
    assert said in console.file.getvalue()


def test_counts_of_first_tokens_are_printed_by_prompt():
    console = Console(file=io.StringIO(), width=200)
    print_audit(sampled(), console)
    (row,) = [line for line in console.file.getvalue().splitlines() if '[" a", " b"]' in line]
    assert re.split(r"\s{2,}", row.strip()) == ["2", '[" a", " b"]', "17 of 50", "7 of 50"]


def texts(axes):
    return {one.get_text(): one for one in axes.texts}


def test_a_rejection_after_few_tokens_beside_a_long_control_is_on_log_axes():
    path = {"engine": [[i, i * 2.0 - 3] for i in range(1, 400)], "reference": [[10, 0.0], [10_000, -0.3]]}
    (axes,) = plot_evidence(path, LINE).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "symlog")
    assert set(texts(axes)) == {"engine", "reference (control)", "rejected from 6.3 on"}
    assert [line.get_label() for line in axes.lines if len(line.get_xdata()) > 2] == ["engine"]


def test_a_clean_run_is_on_linear_axes_with_the_line_in_sight():
    path = {"engine": [[11, 0.0], [10_000, -0.5]], "reference": [[3, 0.0], [2500, -0.2]]}
    (axes,) = plot_evidence(path, LINE).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    assert axes.get_ylim()[1] > LINE
    names = texts(axes)
    assert names["reference (control)"].get_va() == "bottom"  # the upper one is named above
    assert names["engine"].get_va() == "top"


@pytest.mark.parametrize(
    "path",
    [{}, {"engine": []}, {"engine": [[1, 0.0]]}, {"reference": [[1, -0.0], [2, 1000.0]]}],
    ids=["none", "empty", "one point", "reference alone"],
)
def test_little_evidence_is_drawn(path, tmp_path):
    plot_evidence(path, LINE).savefig(tmp_path / "a.svg")


def test_cuts_have_bars_only_where_something_would_have_been_found(tmp_path):
    figure = plot_cuts(found().cuts)
    (axes,) = figure.axes
    (bar,) = axes.patches
    assert (bar.get_y(), bar.get_height()) == (-0.25, 0.5)
    (dots,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert list(dots.get_ydata()) == pytest.approx([0.125, 0.001])
    plot_cuts([]).savefig(tmp_path / "a.svg")


def test_first_tokens_are_dots_with_names(tmp_path):
    records = [
        {"prompt": 0, "tokens": ["$x_{", "\u202e", "\U00010ffff"], "seen": 0.0, "due": 0.2},
        {"prompt": 1, "tokens": [1, 22], "seen": 0.5, "due": 0.4},
    ]
    figure = plot_prefixes(records)
    (axes,) = figure.axes
    dots = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert dots == {"engine": [0.0, 0.5], "reference": [0.2, 0.4]}
    assert axes.get_yticklabels()[1].get_text() == "[1, 22]\nprompt 2"
    assert set(texts(axes)) == {"engine", "reference"}
    figure.savefig(tmp_path / "a.svg")
    plot_prefixes([]).savefig(tmp_path / "b.svg")


def test_the_command_writes_it_without_passwords_and_says_how_to_repeat_it(tmp_path, capsys):
    out = tmp_path / "page.html"
    on, off = engines()
    with FakeServer(on, "vllm") as engine, FakeServer(off, "vllm") as reference:
        urls = [one.url.replace("//", "//me:pa%20ss@") for one in (engine, reference)]
        main(
            ["audit", urls[0], "--reference", urls[1], "--tokens", "64", "--length", "16", "--out", str(out)]
        )
    assert f"{out}: the page" in capsys.readouterr().out.replace("\n", "")
    text = out.read_text(encoding="utf-8")
    page = Page(text)
    assert "pa%20ss" not in text
    assert "pa ss" not in text
    assert "prompts8" in page.words()
    (command,) = re.findall(r"<pre><code>(resispec-verify.*?)</code></pre>", text, flags=re.DOTALL)
    assert shlex.split(html.unescape(command)) == [
        "resispec-verify", "audit", "--url", engine.url, "--reference-url", reference.url,
        "--length", "16", "--tokens", "64", "--out", str(out),
    ]  # fmt: skip
