"""The band: what a reference's laws vary by, and what is no noise."""

import math

import pytest

from resispec_verify.audit.gather import Piece
from resispec_verify.audit.interface import RawLaw
from resispec_verify.audit.noise import measure_band
from resispec_verify.audit.settings import AuditSettings


def law(p):
    return RawLaw((1, 2), (math.log(p), math.log(1 - p)), True)


class Reference:
    """Says the same law when it is asked again, and another anew."""

    name, vocab = "off", 2

    def __init__(self, anew):
        self.anew = anew

    def laws(self, prompt, tokens, top, *, fresh=False):
        return [law(self.anew if fresh else 0.6) for _ in tokens]


def pieces(own):
    return [Piece(i, 0, [1] * 4, None, None, None, [], [law(0.6)] * 4, [law(own)] * 4) for i in range(2)]


@pytest.mark.parametrize(("own", "anew", "band"), [(0.61, 0.6, 0.01), (0.6, 0.63, 0.03), (0.6, 0.6, 0.0)])
def test_it_is_the_widest_of_the_ways_to_ask(own, anew, band):
    found = measure_band(Reference(anew), pieces(own), AuditSettings(), [(5,)])
    assert found["tv"] == pytest.approx(band, abs=1e-4)
    assert [one["how"] for one in found["measured"]] == [
        "as it drew its own tokens", "asked again alone", "computed anew",
    ]  # fmt: skip
    assert all(one["used"] for one in found["measured"])


def test_another_law_while_it_draws_is_no_noise():
    found = measure_band(Reference(0.6), pieces(0.9), AuditSettings(), [(5,)])
    assert found["measured"][0]["mean"] == pytest.approx(0.3, abs=1e-4)
    assert not found["measured"][0]["used"]
    assert found["tv"] < 1e-4


def test_a_band_that_is_given_is_taken():
    found = measure_band(Reference(0.9), pieces(0.6), AuditSettings(band=0.02), [(5,)])
    assert (found["tv"], found["given"]) == (0.02, True)
