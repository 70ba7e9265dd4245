"""Laws that engines' own code gave on small rows (experiments/engines/sampling) against ours."""

import json
from pathlib import Path

import numpy as np
import pytest

from resispec_verify.distributions import Sampling
from resispec_verify.sampling.text import Text, adjusted

RESULTS = Path(__file__).parents[2] / "experiments" / "engines" / "sampling" / "results"
# Engines work in float32 on logits below 8: exp, sum and quotient.
FLOAT32 = 64 * 2.0**-24


@pytest.mark.parametrize(
    ("name", "count"), [("transformers", 96), ("vllm", 88), ("sglang", 80), ("llama.cpp", 120)]
)
def test_the_order_of_an_engine_gives_its_laws(name, count):
    held = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert len(held["laws"]) == count
    text = Text(np.asarray(held["prompt"]), np.asarray(held["output"]))
    for case in held["laws"]:
        sampling = Sampling(**case["settings"], order=held["order"])
        rows = adjusted(np.asarray(held["rows"][case["row"]], np.float64)[None], sampling, [text])
        found, law = sampling.law_of(rows, dtype=np.float64)[0], np.asarray(case["law"])
        if case["row"] == "tied":  # which of tied tokens stays is up to a sort that promises nothing
            found, law = np.sort(found), np.sort(law)
        np.testing.assert_allclose(found, law, atol=FLOAT32, err_msg=f"{case['settings']} {case['row']}")


def test_the_orders_differ_on_the_recorded_rows():
    """The comparison can fail: another engine's order does not give the same laws."""
    held = json.loads((RESULTS / "llama.cpp.json").read_text(encoding="utf-8"))
    cases = [c for c in held["laws"] if c["settings"] == {"temperature": 1.5, "min_p": 0.2}]
    rows = np.asarray([held["rows"][case["row"]] for case in cases], np.float64)
    other = Sampling(1.5, min_p=0.2, order="vllm").law_of(rows, dtype=np.float64)
    assert np.abs(other - [case["law"] for case in cases]).max() > 0.01
