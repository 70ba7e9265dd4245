"""The page: complete in itself, what comes from files escaped, and looked at in a browser where one is."""

import base64
import csv
import html.parser
import io
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from resispec_verify.cli import main
from resispec_verify.report.page import PageSection, numbers
from resispec_verify.report.rules_page import html_page

EXAMPLE = "examples/smollm2-skip6-N8-fp16.pt"
EVIL = "<script>alert(1)</script>\"'&"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """What is on a page; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.scripts, self.texts = [], [], [], [], []
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
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)

    def get(self, name):
        return [value for _, attribute, value in self.attributes if attribute == name]


def save(path, target, draft, **more):
    np.savez(path, target_logits=target, draft_logits=draft, **more)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page about a small dump whose name and dataset are hostile."""
    rng = np.random.default_rng(2)
    folder = tmp_path_factory.mktemp("page")
    dump = save(folder / "a<b>&'$x_{.npz", rng.normal(size=(6, 30)), rng.normal(size=(6, 30)), dataset=EVIL)
    out = folder / "report.html"
    arguments = ["--temperature", "1", "--temperature", "0.5", "--rule", "resispec", "--rule", "specinfer"]
    assert main(["report", "--logits", str(dump), "--out", str(out), *arguments]) == 0
    return out, dump, out.read_text(encoding="utf-8")


def test_it_is_well_formed_and_nothing_of_the_file_becomes_markup(made):
    _, dump, text = made
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "alert" not in page.scripts[0]
    assert "alert(1)" in "".join(page.texts)
    assert EVIL not in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert dump.name in "".join(page.texts)


def test_nothing_is_fetched(made):
    _, _, text = made
    page = Page(text)
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert all(
        v.startswith(("#", "data:text/csv;base64,")) for v in page.get("href") + page.get("xlink:href")
    )
    assert page.get("src") == []
    styles = re.findall(r"url\(([^)]*)\)|@import", text)
    assert all(target.startswith("#") for target in styles)
    addresses = set(re.findall(r"https?://[^\"' <)]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not places
    assert "default-src 'none'" in text


def test_no_id_comes_twice_and_each_reference_is_on_the_page(made):
    page = Page(made[2])
    ids = page.get("id")
    assert len(ids) == len(set(ids))
    used = {v[1:] for v in page.get("xlink:href") if v.startswith("#")}
    used |= set(re.findall(r"url\(#([^)]*)\)", made[2]))
    assert used <= set(ids)


def test_verdicts_come_first_and_how_to_repeat_last(made):
    text = made[2]
    body = text[text.index("<body") :]
    assert body.index("inexact") < body.index("<svg")
    assert body.rindex("How to get this again") > body.rindex("<svg")
    plain = "".join(Page(text).texts)
    assert "--temperature 1 --temperature 0.5" in plain
    assert "SHA-256" in plain
    assert os.getcwd() not in plain


def test_it_opens_with_what_is_wrong_and_what_to_do_and_says_what_its_numbers_are(made):
    plain = re.sub(r"\s+", " ", "".join(Page(made[2]).texts))
    lead = plain.index("of the mass on wrong tokens) does not emit the target's law.")
    todo = plain.index("What to do. Do not use resispec where completions must be distributed")
    cards = plain.index("Emits another law than the target's at 6 of 6 positions: this is certain.")
    words = plain.index("certified gap: the probability of paths")
    assert lead < todo < cards < words
    assert plain.index("n: candidates") > cards


def test_the_verdict_in_a_sentence():
    found = {
        "label": "mine", "verdict": "undecided", "temperature": 1.0, "positions": 3, "candidates": 2,
        "verdict_counts": {"undecided": 2, "exact": 1}, "tv_mean": 0.0, "tv_max": 0.0, "kl_mean": 0.0,
        "acceptance": [0.5, 0.1], "limit_mean": None, "gap_max": 0.1,
        "tv_mean_bounds": [0.0, 1.21e-13], "rounding_max": 2e-13,
    }  # fmt: skip
    page = html_page("t", [found], [], [], "", {})
    assert "Neither proved nor refuted at 2 of 3 positions." in page
    assert "mine could not be decided." in page
    assert "larger --max-expansions" in page
    right = html_page("t", [found | {"verdict": "exact"}], [], [], "", {})
    assert "mine emits the target&#x27;s law here, to rounding." in right
    assert "Nothing is wrong at these positions. Acceptance: 0.6000." in right
    certain = html_page("t", [found | {"verdict": "exact", "gap_max": 0.0}], [], [], "", {})
    assert "<dd>below 1.3e-13</dd>" in certain
    assert "<dd>below 2e-13</dd>" in certain


@pytest.mark.parametrize(
    ("limit", "kind", "said"),
    [
        (
            0.8981,
            "iid",
            "0.6000; no exact rule could accept more than 0.8981; optimal-joint accepts that much.",
        ),
        (0.8981, "paths", "0.6000; no exact rule could accept more than 0.8981."),
        (0.6, "iid", "0.6000, and no exact rule could accept more with these candidates."),
    ],
)
def test_the_acceptance_beside_what_could_be_accepted(limit, kind, said):
    found = {
        "label": "mine", "verdict": "exact", "temperature": 1.0, "positions": 3, "candidates": 2,
        "tv_mean": 0.0, "tv_max": 0.0, "kl_mean": 0.0, "acceptance": [0.5, 0.1], "limit_mean": limit,
        "limit_kind": kind, "gap_max": 0.0, "tv_mean_bounds": [0.0, 0.0], "rounding_max": 0.0,
    }  # fmt: skip
    assert f"Acceptance: {said}" in html_page("t", [found], [], [], "", {})


def test_words_of_the_paper_are_explained(made):
    plain = re.sub(r"\s+", " ", "".join(Page(made[2]).texts))
    for word in ("EAL", "Z*", "iid", "local gap, Eq. 13"):
        assert f"{word}: " in plain[plain.index("For readers of the ResiSpec paper") :]
    for word in ("law", "KL(marginal || target)"):
        assert (
            plain.index("What the numbers are")
            < plain.index(f"{word}: ")
            < plain.index("What each rule emits")
        )
    assert "are always drawn, asked for or not" in plain


def test_the_command_on_the_page_makes_the_page(made, tmp_path, monkeypatch):
    import shlex

    out, _, text = made
    (command,) = re.findall(r"<pre><code>(.*?)</code></pre>", text, flags=re.DOTALL)
    words = shlex.split(html.unescape(command))
    assert words[:2] == ["resispec-verify", "report"]
    before = out.read_bytes()
    assert main(words[1:]) == 0
    assert out.read_bytes() == before


def test_each_picture_carries_its_numbers(made):
    page = Page(made[2])
    files = [v.partition("base64,")[2] for v in page.get("href") if v.startswith("data:")]
    tables = [list(csv.DictReader(io.StringIO(base64.b64decode(f).decode()))) for f in files]
    assert len(tables) == 4
    assert made[2].count("<figure") == 5  # the small panels of the second picture are one of their own
    positions, drift = tables[:2]
    assert {row["rule"] for row in positions} == {"resispec", "specinfer"}
    assert len(positions) == 2 * 2 * 6
    assert {"acceptance_conditional", "l1", "kl", "blind_spot", "gap"} <= set(drift[0])


def test_both_themes_and_colours_by_variable(made):
    text = made[2]
    assert "prefers-color-scheme:dark" in text
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert "var(--g" in drawn
    assert "var(--cd55e00)" in drawn
    assert not re.findall(r"#([0-9a-f]{2})\1\1\b", drawn)  # no grey that a theme would have to live with


def test_infinity_and_what_is_not_known():
    assert [numbers(v) for v in (float("inf"), 0.0, None, 1e-9, 3, "x", True)] == [
        "∞", "0", "", "1.00e-09", "3", "x", "True"
    ]  # fmt: skip
    page = html_page(
        "t", [], [EVIL], [PageSection("a", EVIL, [], [{EVIL: "inf", "b": 1.5}])], EVIL, {EVIL: []}
    )
    assert "Infinity" in page
    assert EVIL not in page
    Page(page)
    html_page("t", [], [], [], "", {})


def test_many_marks_become_one_picture():
    from matplotlib.figure import Figure

    from resispec_verify.report.plots.svg import inline_svg

    def drawn(points):
        figure = Figure()
        figure.subplots().plot(np.arange(points), np.arange(points) % 7, "o")
        return inline_svg(figure, "a")

    assert "data:image/png" in drawn(5000)
    assert "data:image/png" not in drawn(50)
    assert len(drawn(200_000)) < 500_000


def test_other_files_are_still_reported(made, tmp_path, capsys, undrawn):
    out = tmp_path / "b.html"
    assert (
        main(["report", "--logits", str(made[1]), "nowhere.npz", "--out", str(out), "--rule", "specinfer"])
        == 2
    )
    assert capsys.readouterr().err.count("\n") == 1
    assert "specinfer" in out.read_text(encoding="utf-8")


def test_rules_over_tuples_and_nothing_to_reject(tmp_path, undrawn):
    same = np.random.default_rng(1).normal(size=(2, 8))
    dump = save(tmp_path / "a.npz", same, same)
    out = tmp_path / "c.html"
    for rule in ("optimal-joint", "specinfer"):
        assert main(["report", "--logits", str(dump), "--out", str(out), "--rule", rule]) == 0
        Page(out.read_text(encoding="utf-8"))


def test_standard_output(made, capsys, undrawn):
    assert main(["report", "--logits", str(made[1]), "--out", "-", "--rule", "specinfer"]) == 0
    Page(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--logits", EXAMPLE], "--out"),
        (["--out", "a.html"], "nothing to report on"),
        (["--logits", EXAMPLE, "--out", EXAMPLE], "it is the dump that is read"),
        (["--logits", EXAMPLE, "--out", "nowhere/a.html"], "does not exist"),
        (["--logits", EXAMPLE, "--out", "a.html", "--candidates", "17"], "--candidates must be in 1..16"),
        (["--logits", EXAMPLE, "--out", "a.html", "--rule", "x"], "unknown rule"),
        (["--logits", EXAMPLE, "--out", "a.html", "--max-states", "0"], "--max-states"),
        (["--logits", EXAMPLE, "--out", "a.html", "--positions", "9:10"], "outside the dump"),
    ],
)
def test_bad_input_is_one_line_and_two(arguments, words, capsys, tmp_path):
    arguments = [str(tmp_path / "a.html") if a == "a.html" else a for a in arguments]
    assert main(["report", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert words in shown
    assert not (tmp_path / "a.html").exists()


PROBE = """
<script>
var wide = document.documentElement.scrollWidth;
var heads = document.querySelectorAll('th button');
var table = document.querySelector('details table');
document.querySelector('details').open = true;
var head = Array.from(table.tHead.rows[0].cells).findIndex(function (c) { return c.textContent === 'tv'; });
table.tHead.rows[0].cells[head].querySelector('button').click();
var column = Array.from(table.tBodies[0].rows).map(function (r) { return Number(r.cells[head].dataset.v); });
var text = document.querySelector('.panel svg text');
document.body.dataset.probe = JSON.stringify({
  wide: wide, buttons: heads.length, column: column, ink: getComputedStyle(text).fill,
  paper: getComputedStyle(document.body).backgroundColor, size: text.getBoundingClientRect().height
});
</script>
"""


def browse(page, folder, *flags):
    """What the page says about itself in a headless browser of a phone's width."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no chromium or chrome on this machine")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}", "--window-size=390,900", *flags, "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("the browser does not answer here")
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    if found is None:
        pytest.skip(f"the browser does not run here: {done.stderr[-200:]}")
    return json.loads(html.unescape(found[1]))


def test_at_390_pixels_nothing_is_scrolled_sideways(made, tmp_path):
    inside = "<script>parent.postMessage(document.documentElement.scrollWidth, '*')</script></body>"
    (tmp_path / "page.html").write_text(made[2].replace("</body>", inside), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(
        "<body><script>onmessage = e => { document.body.dataset.probe = JSON.stringify(e.data) }</script>"
        '<iframe src="page.html" style="width:390px;height:900px;border:0"></iframe></body>',
        encoding="utf-8",
    )
    assert browse(frame, tmp_path) <= 390


def test_in_a_browser(made, tmp_path):
    page = tmp_path / "probed.html"
    page.write_text(made[2].replace("</body>", PROBE + "</body>"), encoding="utf-8")
    light = browse(page, tmp_path)
    assert light["wide"] <= 500, "the page is wider than a phone"  # headless Chrome is no narrower than 500
    assert light["buttons"] > 10
    assert light["column"] == sorted(light["column"])
    assert light["size"] >= 8, "text of a picture is too small to read"
    dark = browse(page, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert light["paper"] != dark["paper"]
    for theme in (light, dark):  # what is written can be told from what it is written on
        ink, paper = (sum(map(int, re.findall(r"\d+", theme[k])[:3])) / 765 for k in ("ink", "paper"))
        assert abs(ink - paper) > 0.6
