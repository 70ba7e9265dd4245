"""One colour a rule and one line a temperature: in every picture, and no two alike in one."""

import colorsys
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from resispec_verify.distributions import Pair, Sampling
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.report.page import document
from resispec_verify.report.plots import palette
from resispec_verify.report.plots.drift import plot_drift
from resispec_verify.report.plots.marginals import in_one_line, plot_marginals
from resispec_verify.report.plots.palette import ON_DARK, colour_of, looks, temperature_styles
from resispec_verify.report.plots.position import plot_position
from resispec_verify.report.plots.runtime import plot_runtime
from resispec_verify.report.plots.shaping import plot_exploration
from resispec_verify.report.plots.svg import inline_svg
from resispec_verify.rules import SHIPPED, OptimalSequential, ResiSpec, SpecInfer, TokenMatch
from resispec_verify.tables.drift import add_drift
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.position import look_at
from resispec_verify.tables.reading import Clock, PairBatch
from resispec_verify.tables.shaping import explore_pair

TARGET, DRAFT = np.array([[0.3, 0.4, 0.3], [0.2, 0.3, 0.5]]), np.array([[0.6, 0.3, 0.1], [0.5, 0.3, 0.2]])
RULES = (ResiSpec(), SpecInfer(), OptimalSequential(), TokenMatch())
NAMES = [rule.name for rule in RULES]
OWN = [f"own-{i}" for i in range(40)]


def rows_at(*temperatures, rules=RULES):
    found = []
    for temperature in temperatures:
        batch = PairBatch(Pair(TARGET, DRAFT), np.arange(2), Sampling(temperature), source="a/$x_{.pt")
        rows = {}
        evaluate(batch, Evaluation(rules, candidates=2), rows, clock=Clock())
        found += rows.values()
    return found


def drift_at(*temperatures, rules=RULES):
    rows = {}
    for temperature in temperatures:
        batch = PairBatch(Pair(TARGET, DRAFT), np.arange(2), Sampling(temperature), source="a/$x_{.pt")
        add_drift(rows, rules, batch, 2, budget=Budget(gap=0.0, most_paths=0, most_states=1e6,
                                                       until_decided=False))  # fmt: skip
    return list(rows.values())


def drawn(axes):
    """Colour, marker, line and filling of each series of a panel: what is labelled is a legend's."""
    lines = [line for line in axes.get_lines() if line.get_label() == "_" and line.get_marker() != "None"]
    return [
        (to_hex(line.get_color()), line.get_marker(), line._unscaled_dash_pattern, line.get_fillstyle())
        for line in lines
    ]


@pytest.mark.parametrize("names", [[rule.name for rule in SHIPPED], OWN, [*OWN[:8], *NAMES]])
def test_no_two_rules_of_a_picture_look_alike(names):
    found = looks((name, None) for name in names)
    assert len(set(found)) == len(names)
    assert looks((name, None) for name in names) == found, "they differ from run to run"


def test_shipped_rules_have_a_colour_each_whatever_else_is_in_the_picture():
    names = [rule.name for rule in SHIPPED]
    alone = {name: colour_of(name) for name in names}
    together = looks((name, None) for name in reversed(names))
    assert dict(zip(reversed(names), (look.colour for look in together), strict=True)) == alone
    assert len(set(alone.values())) == len(names)
    assert len({colour_of(name) for name in OWN}) > 1
    assert len({look.colour for look in looks((name, None) for name in OWN[:8])}) == 8


def test_a_rule_with_other_options_keeps_its_colour_and_has_another_marker():
    plain, other, again = looks([("resispec", ""), ("resispec", "hole=literal"), ("resispec", "")])
    assert plain == again != other
    assert plain.colour == other.colour
    own = looks([("mine", "a"), ("yours", ""), ("mine", "b")])
    assert own[0].colour == own[2].colour
    assert len(set(own)) == 3


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_each_can_be_told_from_what_it_is_drawn_on():
    for light, dark in ON_DARK.items():
        assert contrast(light, "#ffffff") >= 3, light
        assert contrast(dark, "#16181d") >= 3, dark
        assert colorsys.rgb_to_hls(*(int(light[i : i + 2], 16) / 255 for i in (1, 3, 5)))[2] > 0.04
    assert len(set(ON_DARK.values())) == len(ON_DARK)


# What a reader without green cones sees of linear RGB (Vienot, Brettel, Mollon 1999), and without red ones.
SEEN = {
    "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
    "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
}


@pytest.mark.parametrize("how", SEEN)
def test_the_rules_of_most_pictures_are_told_apart_by_colour_blind_readers(how):
    names = ["resispec", "specinfer", "optimal-sequential", "sequoia"]
    rgb = [[int(colour_of(n)[i : i + 2], 16) / 255 for i in (1, 3, 5)] for n in names]
    seen = [np.clip(np.array(SEEN[how]) @ np.array(c) ** 2.2, 0, 1) ** (1 / 2.2) for c in rgb]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 0.12
    assert len({look.marker for look in looks((n, None) for n in names)}) == len(names)


def test_a_line_says_the_temperature():
    styles = temperature_styles([0.5, 1.0, 0.0])
    assert list(styles) == [1.0, 0.5, 0.0]
    assert styles[1.0] == temperature_styles([1.0])[1.0]
    many = temperature_styles([k / 10 for k in range(9)])
    assert len({(str(s["linestyle"]), s["fillstyle"]) for s in many.values()}) == 9


def test_eight_series_of_kl_are_eight_and_four_colours():
    figure = plot_marginals(rows_at(1.0, 0.5))
    for axes in figure.axes:
        series = [one for one in drawn(axes) if one[1] is not None]
        assert len(set(series)) == len(series) == 8
        assert [one[0] for one in series] == 2 * [colour_of(name) for name in NAMES]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["resispec: inexact", *(f"{name}: exact" for name in NAMES[1:]), "T = 1", "T = 0.5"]


def test_the_headline_of_kl_says_what_is_wrong():
    rows = rows_at(1.0, 0.5)
    share = f"{100 * sum(rows[0].tv) / 2:.2g} %"
    said = f"Not exact: resispec (up to {share} of the mass on wrong tokens). "
    assert in_one_line(rows) == said + "Exact: specinfer, optimal-sequential and token-match."
    assert in_one_line([]) == ""


def test_a_rule_has_one_colour_in_every_picture():
    rules = RULES[:3]
    p, q = TARGET[0], DRAFT[0]
    expected = [colour_of(rule.name) for rule in rules]
    assert [one[0] for one in drawn(plot_marginals(rows_at(1.0, rules=rules)).axes[0])] == expected
    assert [one[0] for one in drawn(plot_drift(drift_at(1.0, rules=rules)).axes[0])] == expected
    left = plot_exploration(explore_pair(p, q, 3)).axes[0]
    marked = {line.get_label().split(",")[0].split(":")[0]: line.get_color() for line in left.get_lines()}
    assert [marked[rule.name] for rule in rules] == expected
    bars = plot_position(look_at(p, q, rules, 3)).axes[0].containers
    assert [to_hex(bar[0].get_facecolor()) for bar in bars[2:]] == expected
    row = {"phase": "residual", "median_us": 1.0, "quartiles_us": [1.0, 1.0], "share": None}
    timed = plot_runtime([row | {"belongs_to": name} for name in ("resispec", "specinfer")]).axes[0]
    assert [to_hex(patch.get_facecolor()) for patch in timed.patches] == expected[:2]


def test_drift_says_what_it_is_a_picture_of():
    figure = plot_drift(drift_at(1.0, 0.5))
    assert len(figure.axes) == 6
    areas = [axes.get_subplotspec().get_position(figure).bounds[2] for axes in figure.axes]
    assert min(areas[:2]) > 1.5 * max(areas[2:])
    few = plot_drift(drift_at(1.0, rules=RULES[1:2])).get_suptitle()
    first, second = drift_at(1.0, rules=RULES[1:2])[0].results()
    values = [f"{row['acceptance_conditional']:.2f}" for row in (first, second)]
    assert few == f"Acceptance: specinfer from {values[0]} to {values[1]} at candidate 2."
    assert figure.get_suptitle() == "No rule accepts more than an exact one can."
    below = figure.legends[0].get_title().get_text()
    assert below.replace("\n", " ").startswith("$x_{.pt, 2 positions, n = 2, T = 1 and 0.5. ")
    assert "bands" not in below


def test_every_colour_of_a_picture_is_one_that_the_page_has_for_both_themes():
    svg = inline_svg(plot_marginals(rows_at(1.0)), "a")
    page = document("t", "", [])
    for name in NAMES:
        assert f"var(--c{colour_of(name)[1:]})" in svg
        assert page.count(f"--c{colour_of(name)[1:]}:") == 2
    assert not [colour for colour in ON_DARK if colour in svg]


def test_what_is_no_rule_is_on_every_page_too():
    assert {palette.BLUE, palette.ORANGE, palette.GREEN, palette.PINK} <= set(ON_DARK)


def test_names_of_files_are_no_formulas(tmp_path):
    plot_marginals(rows_at(1.0)).savefig(tmp_path / "a.png")
    plot_drift(drift_at(1.0)).savefig(tmp_path / "b.png")
