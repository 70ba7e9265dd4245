"""The test of tokens from laws that are known coarsely: its expectation, its bounds, and what it finds."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad

from resispec_verify.evidence.coarse_laws import CUTS, CoarseTest, _beyond, own_bets

# (low, high) of each draw: exact, in a box, without a mass for the others.
EXACT = [np.array([0.6, 0.3, 0.1]), np.array([0.5, 0.3, 0.2])]
CLOSED = [np.array([0.7, 0.3, 0.0]), np.array([0.5, 0.5, 0.0])]
COIN = [np.array([0.8, 0.2]), np.array([0.55, 0.45])]
SMALL_TAIL = [np.array([0.7, 0.28, 0.02])]


def vertices(low: np.ndarray, high: np.ndarray, band: float) -> list[np.ndarray]:
    """Extreme laws of the null: a corner of the box that sums to 1, and then the band from one to another."""
    corners, k = [], len(low)
    for free in range(k):
        for ends in itertools.product((0, 1), repeat=k - 1):
            law = np.where(np.insert(ends, free, 0), high, low).astype(float)
            law[free] = 1.0 - np.delete(law, free).sum()
            if low[free] - 1e-12 <= law[free] <= high[free] + 1e-12:
                corners.append(law)
    moved = list(corners)
    for law in corners:
        for order in itertools.permutations(range(k), k - 1) if band else ():
            # Take the band from the first cells that have it, and give it to the last.
            left, new = band, law.copy()
            to = next(i for i in range(k) if i not in order)
            for cell in order:
                taken = min(left, new[cell])
                new[cell] -= taken
                left -= taken
            new[to] += band - left
            moved.append(new)
    return moved


def worst(boxes, draws, band, slack, stop, others=None):
    """The largest expectation at a stopping time that an adversary, who sees all before, can make.

    Backwards over all outcomes: at each draw the worst law of the null after this history.
    """

    def after(history):
        test = CoarseTest(() if others is None else ("given",), band=band, slack=slack)
        for i, cell in enumerate(history):
            low, high = boxes[i % len(boxes)]
            test.add(low, high, cell, () if others is None else [others(i, history[:i], len(low))])
        value = math.exp(test.log_evidence) if test.log_evidence < math.inf else math.inf
        if len(history) == draws or (history and test.log_evidence > stop):
            return value
        low, high = boxes[len(history) % len(boxes)]
        values = [after((*history, cell)) for cell in range(len(low))]
        laws = vertices(low, high, band)
        # What cannot be drawn may be infinite evidence.
        return max(sum(p * v for p, v in zip(law, values, strict=True) if p > 1e-15) for law in laws)

    return after(())


def exactly(laws):
    return [(law, law) for law in laws]


def box(laws, width):
    return [(np.maximum(law - width, 0.0), np.minimum(law + width, 1.0)) for law in laws]


@pytest.mark.parametrize("stop", [0.02, 0.2, math.inf])
@pytest.mark.parametrize("laws", [EXACT, CLOSED, COIN, SMALL_TAIL])
@pytest.mark.parametrize(("band", "width"), [(0.0, 0.0), (0.05, 0.0), (0.0, 0.02), (0.05, 0.02), (0.3, 0.0)])
def test_expectation_at_a_stopping_time_is_at_most_1_under_every_law_of_the_null(laws, band, width, stop):
    # A box of 0.02 leaves open 0.02 a cell: `slack` above it, so that cuts are tested as well.
    slack = 0.07 if width else 1e-9
    assert worst(box(laws, width), 3, band, slack, stop) <= 1 + 1e-9


def test_expectation_over_four_draws_is_at_most_1():
    assert worst(exactly(COIN), 5, 0.1, 1e-9, 0.1) <= 1 + 1e-9
    assert worst(exactly(CLOSED), 4, 0.05, 1e-9, math.inf) <= 1 + 1e-9


def test_expectation_with_laws_that_are_given_and_follow_the_draws_is_at_most_1():
    def others(i, before, k):
        if i == 1:
            return None
        return np.eye(k)[before[-1]] if before else np.full(k, 1.0 / k)

    for band in (0.0, 0.05):
        assert worst(exactly(EXACT), 4, band, 1e-9, 0.3, others) <= 1 + 1e-9


def test_the_same_enumeration_finds_an_expectation_above_1_of_what_is_not_the_null():
    """Without it, nothing above could fail."""
    true, total = np.array([0.0, 0.1, 0.9]), 0.0
    for cells in itertools.product(range(3), repeat=3):
        test = CoarseTest(("given",), slack=1e-9)
        for cell in cells:
            test.add(EXACT[0], EXACT[0], cell, [true])
        total += math.prod(true[list(cells)]) * math.exp(test.log_evidence)
    assert total > 1.05


@pytest.mark.parametrize("band", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("width", [0.0, 0.02])
@pytest.mark.parametrize("laws", [EXACT, CLOSED, COIN, SMALL_TAIL])
def test_the_share_below_a_cut_has_the_expectation_that_its_bound_allows(laws, band, width):
    """Exactly, of one draw; also where the others have less mass than the band may give them."""
    for low, high in box(laws, width):
        room = 0.5 * float((high - low).sum())
        shares = []
        for cell in range(len(low)):
            test = CoarseTest(band=band, slack=1.0)
            test.add(low, high, cell)
            shares.append(test._below)
        for law in vertices(low, high, band):
            expected = law @ np.array(shares)
            assert np.all(np.abs(expected - np.array(CUTS)) <= band + room + 1e-12)


def zipf(rng, k=8):
    law = np.exp(-rng.uniform(0.5, 2.0) * np.log(np.arange(1, k + 1)))
    return law / law.sum()


def to_the_edge(law, band, direction):
    """The law at the edge of the band: as much as the band allows goes to the first cells, or from them."""
    new, left = law.copy(), band
    order = range(len(law) - 1, -1, -1) if direction == "first" else range(len(law))
    to = 0 if direction == "first" else len(law) - 2
    for cell in order:
        if cell != to:
            taken = min(left, new[cell])
            new[cell], left = new[cell] - taken, left - taken
    new[to] += band - left
    return new


@pytest.mark.parametrize("direction", ["first", "last"])
def test_adversaries_at_the_edge_of_the_band_are_rarely_rejected(direction):
    runs, alpha = 100, 0.05
    rejected = 0
    for seed in range(runs):
        rng = np.random.default_rng((seed, len(direction)))
        test = CoarseTest(band=0.08, slack=1e-9)
        for _ in range(60):
            law = zipf(rng)
            if seed % 2:  # all mass is reported: the others have none, but for the band
                law[-1] = 0.0
                law /= law.sum()
            test.add(law, law, int(rng.choice(len(law), p=to_the_edge(law, 0.08, direction))))
        rejected += test.found_at(alpha) is not None
    # At most 5 are due; 16 or more come with probability 3e-5.
    assert rejected < 16


def test_a_law_without_a_band_that_is_moved_by_one_is_rejected():
    rng, test = np.random.default_rng(1), CoarseTest(slack=1e-9)
    for _ in range(600):
        law = zipf(rng)
        test.add(law, law, int(rng.choice(len(law), p=to_the_edge(law, 0.15, "first"))))
    assert test.found_at(1e-6) is not None


@pytest.mark.parametrize("band", [0.0, 0.03])
@pytest.mark.parametrize("up", [True, False])
def test_a_fault_just_above_what_is_detectable_is_found_with_the_stated_power(band, up):
    """The fault moves mass across one cut, 1/2, where a cell ends: what `cuts` says of it must hold."""
    alpha, power, draws, runs = 1e-3, 0.9, 400, 60
    law = np.array([0.5, 0.3, 0.2])
    probe = CoarseTest(band=band, slack=1e-9)
    for cell in np.random.default_rng(0).choice(3, size=draws, p=law):
        probe.add(law, law, int(cell))
    at = CUTS.index(0.5)
    moved = probe.cuts(alpha, power)[at].detectable + 1e-3
    assert band < moved < 0.4
    wrong = np.array([0.5 + moved, 0.3 - 0.6 * moved, 0.2 - 0.4 * moved]) if up else np.array(
        [0.5 - moved, 0.3 + 0.6 * moved, 0.2 + 0.4 * moved]
    )  # fmt: skip
    found = 0
    for seed in range(runs):
        rng = np.random.default_rng((seed, 7))
        # The evidence grows with what is below the cut alone: that is put in at once.
        test = CoarseTest(band=band, slack=1e-9)
        cells = rng.choice(3, size=draws, p=wrong)
        starts, widths = np.cumsum(law) - law, law
        test._below = sum(
            np.clip((np.array(CUTS) - starts[c]) / widths[c], 0.0, 1.0) * int((cells == c).sum())
            for c in range(3)
        )
        test.cut_draws = draws
        # The bets' half of the evidence is nothing here.
        test._wealth = np.full_like(test._wealth, -np.inf)
        found += test._evidence() >= -math.log(alpha)
    assert found >= power * runs


def test_detectable_shrinks_with_the_draws_and_grows_with_the_band():
    law, found = np.array([0.5, 0.3, 0.2]), {}
    for band, draws in ((0.0, 100), (0.0, 400), (0.05, 400)):
        test = CoarseTest(band=band)
        for cell in np.random.default_rng(0).choice(3, size=draws, p=law):
            test.add(law, law, int(cell))
        assert test.detectable(1e-6, 0.99) == max(
            cut.detectable for cut in test.cuts(1e-6, 0.99) if cut.at <= 15 / 16
        )
        found[band, draws] = test.cuts(1e-6, 0.99)[CUTS.index(0.5)].detectable
    assert found[0.0, 400] < found[0.0, 100]
    assert found[0.0, 400] + 0.04 < found[0.05, 400] < found[0.0, 400] + 0.06
    assert all(cut.detectable == 1.0 for cut in CoarseTest().cuts(1e-6, 0.99))


@pytest.mark.parametrize("n", [1.0, 7.0, 300.0])
@pytest.mark.parametrize("bound", [0.07, 0.5, 0.93])
def test_the_closed_form_of_a_cut_is_the_integral_that_it_stands_for(n, bound):
    start = math.asin(math.sqrt(bound))  # theta = sin(angle)**2, and the Beta law is uniform in the angle
    for seen in (0.0, 0.3 * n, bound * n, 0.5 * (1 + bound) * n, n):

        def log_gain(angle, seen=seen):
            up, down = math.sin(angle) ** 2 / bound, math.cos(angle) ** 2 / (1.0 - bound)
            return (seen * math.log(up) if seen else 0.0) + ((n - seen) * math.log(down) if seen < n else 0.0)

        peak = min(max(math.asin(math.sqrt(seen / n)), start + 1e-3), math.pi / 2 - 1e-3)
        most = log_gain(peak)
        area = sum(
            quad(lambda x, f=log_gain, top=most: math.exp(f(x) - top), *ends, limit=400)[0]
            for ends in ((start, peak), (peak, math.pi / 2))
        )
        due = most + math.log(area / (math.pi / 2 - start))
        found = _beyond(np.array([seen]), n, np.array([bound]))[0]
        if (
            found == -math.inf
        ):  # the incomplete Beta function is below the least float: less is said, never more
            assert seen < bound * n
            assert due < 0
        else:
            assert found == pytest.approx(due, abs=1e-6)


def test_no_evidence_is_in_a_bound_of_1():
    assert _beyond(np.array([3.0]), 3.0, np.array([1.2]))[0] == 0.0


def test_a_draw_that_no_law_can_give_is_infinite_evidence_and_within_a_band_it_is_not():
    law = np.array([0.7, 0.3, 0.0])
    test = CoarseTest()
    test.add(law, law, 0)
    assert test.impossible == 0
    test.add(law, law, 2)
    assert test.impossible == 1
    assert test.log_evidence == test.strongest == math.inf
    assert test.found_at(1e-300) == 2
    test.add(law, law, 0)
    assert test.log_evidence == math.inf
    banded = CoarseTest(band=0.01)
    banded.add(law, law, 2)
    assert banded.impossible == 0
    assert 0 < banded.log_evidence < math.log(1 / 0.01)


def test_the_law_that_is_given_is_named_where_it_leads():
    law, other = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])
    rng, test = np.random.default_rng(3), CoarseTest(("nothing", "the other"))
    for _ in range(80):
        test.add(law, law, int(rng.choice(3, p=other)), [None, other])
    name, gain = test.leading
    assert name == "the other"
    assert gain > -math.log(1e-6)
    assert test.found_at(1e-6) is not None


def test_colder_draws_are_led_by_a_colder_law():
    rng, test = np.random.default_rng(4), CoarseTest()
    for _ in range(400):
        law = zipf(rng)
        colder = law**1.5 / (law**1.5).sum()
        test.add(law, law, int(rng.choice(len(law), p=colder)))
    assert test.leading[0] == "temperature x 0.667"
    assert test.found_at(1e-6) is not None


def test_own_bets_are_laws_and_the_greedy_one_is_not_of_the_others():
    for law in ([0.2, 0.1, 0.7], [0.75, 0.25], [1.0], [0.5, 0.5, 0.0]):
        names, laws = own_bets(np.array(law))
        assert laws.shape == (len(names), len(law))
        assert np.all(laws >= 0)
        assert laws.sum(axis=1) == pytest.approx(np.ones(len(names)))
    names, laws = own_bets(np.array([0.2, 0.1, 0.7]))
    assert laws[names.index("the most probable token")].tolist() == [1.0, 0.0, 0.0]


def test_a_law_that_is_open_is_not_cut():
    test = CoarseTest(slack=0.01)
    test.add(np.array([0.5, 0.2]), np.array([0.7, 0.4]), 0)
    assert (test.draws, test.cut_draws) == (1, 0)


def test_what_laws_leave_open_adds_to_what_would_have_been_found():
    found = []
    for width in (0.0, 0.04):
        test = CoarseTest(slack=0.05)
        low, high = np.array([0.6, 0.4]) - width / 2, np.array([0.6, 0.4]) + width / 2
        for i in range(2000):
            test.add(low, high, int(i % 5 >= 3))
        found.append(test.detectable(1e-6, 0.99))
    # The laws of the second are known to a total variation of half of .04 + .04.
    assert found[1] - found[0] == pytest.approx(0.04, abs=1e-9)
