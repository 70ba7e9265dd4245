"""Figures: data in, Figure out; nothing global, nothing crashes on 0 or inf."""

import subprocess
import sys

import numpy as np
import pytest

from resispec_verify.distributions import Pair
from resispec_verify.report.plots.marginals import _corner, plot_marginals
from resispec_verify.rules import ResiSpec, SpecInfer
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.reading import Clock, by_hand


def rows_of(target, draft):
    rows = {}
    target, draft = np.atleast_2d(np.asarray(target, float)), np.atleast_2d(np.asarray(draft, float))
    evaluate(
        by_hand(Pair(target, draft)), Evaluation((ResiSpec(), SpecInfer()), candidates=2), rows, clock=Clock()
    )
    return list(rows.values())


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ([[0.3, 0.4, 0.3], [0.2, 0.3, 0.5]], [[0.6, 0.3, 0.1], [0.5, 0.3, 0.2]]),
        ([[0.5, 0.5]], [[0.5, 0.5]]),  # every distance is 0, which a log axis cannot show
        ([[1.0, 0.0]], [[0.0, 1.0]]),  # disjoint supports
    ],
)
def test_a_figure_of_two_axes_with_labels(target, draft, tmp_path):
    figure = plot_marginals(rows_of(target, draft))
    distance, acceptance = figure.axes
    assert "total variation" in distance.get_ylabel()
    assert "limit" in acceptance.get_xlabel()
    assert distance.get_legend() is acceptance.get_legend() is None, "a legend covers the data"
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert [t.split(":")[0] for t in texts] == ["resispec", "specinfer"]
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_positions_are_whole_and_zero_is_said_to_be_on_the_edge():
    distance, _ = plot_marginals(rows_of([[0.3, 0.4, 0.3]] * 3, [[0.6, 0.3, 0.1]] * 3)).axes
    ticks = distance.get_xticks()
    assert (ticks == ticks.round()).all()
    assert distance.get_ylabel() == "total variation; 0 is drawn on the lower edge"


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([0.7, 0.9], (1 - 1.3 * 0.3, 1.008)),
        ([0.05, 0.2], (0.0, 0.26)),
        ([0.05, 0.9], (0.0, 1.02)),
        ([], (0.0, 1.02)),
    ],
)
def test_axes_end_where_all_points_are_in_a_corner(values, ends):
    assert _corner(np.asarray(values, float)) == pytest.approx(ends)


def test_no_rows_give_an_empty_figure():
    assert len(plot_marginals([]).axes) == 2


def test_pyplot_stays_unloaded():
    code = (
        "import resispec_verify.report.plots.marginals as m, sys; m.plot_marginals([]);"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"MPLBACKEND": "agg", "PATH": ""}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
