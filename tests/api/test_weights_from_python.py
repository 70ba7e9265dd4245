"""`weights` from Python: arrays, sequences, and refusals."""

import numpy as np
import pytest
import torch
from cli_helpers import logs, save

import resispec_verify as rv

P, Q = (0.3, 0.4, 0.3), (0.6, 0.3, 0.1)
WEIGHTS = [1.0, 0.4 * 290 / 141, 0.3 * 145 / 31]


@pytest.fixture
def path(tmp_path):
    return save(tmp_path / "d.pt", logs(P, P, P), logs(Q, Q, Q), tokens=torch.tensor([0, 0, 1, 2]))


def test_arrays_and_numbers(path):
    report = rv.weights(path, rule="resispec")
    arrays = report.arrays
    assert arrays["token"].tolist() == [0, 1, 2]
    assert np.exp(arrays["log_weight"]) == pytest.approx(np.array(WEIGHTS)[:, None].repeat(2, axis=1))
    assert (arrays["log_weight"][:, 0] <= np.log(WEIGHTS)).all()
    assert (np.log(WEIGHTS) <= arrays["log_weight"][:, 1]).all()
    assert report.mean_weight == pytest.approx((np.mean(WEIGHTS),) * 2)
    assert report.sequences[0] == pytest.approx((np.log(WEIGHTS).sum(),) * 2)
    assert report.effective_size[0] == pytest.approx(sum(WEIGHTS) ** 2 / np.square(WEIGHTS).sum())
    assert report.verdict == "not-rejected"
    assert report.to_dict()["command"] == "weights"
    assert "effective sample size" in repr(report)


def test_a_sampling_replaces_what_the_dump_states(path):
    cold = rv.weights(path, rule="specinfer", sampling=rv.Sampling(0.5), input="logits")
    p = np.square(P) / np.square(P).sum()
    assert cold.arrays["log_p"] == pytest.approx(np.log(p))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "resispec", "truncate": 0.9}, "truncate must be at least 1"),
        ({"rule": "resispec", "gap": -1}, "gap must be in"),
        ({"rule": "resispec", "candidates": 0}, "candidates"),
        ({"rule": rv.ResiSpec}, "an instance, not a class"),
        ({"rule": "block"}, "rule 'block': verifies paths of several tokens"),
        ({"rule": "spechub"}, "verifies exactly 2 candidates, got candidates=1"),
        ({"rule": "resispec", "sampling": 0.5}, "sampling must be a Sampling"),
        ({"rule": "resispec", "eos": "2"}, "eos must be token ids"),
    ],
)
def test_bad_arguments_are_one_line(path, options, message):
    with pytest.raises(rv.InputError, match=message) as error:
        rv.weights(path, **options)
    assert "\n" not in str(error.value)
