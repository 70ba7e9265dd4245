"""Each step against fractions: ties, ends, both readings of top-k with top-p, mixtures."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction as F

import numpy as np
import pytest

from resispec_verify.distributions import Sampling, pair_from_logits
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.sampling_steps import penalise_counts, penalise_repetition
from resispec_verify.sampling.orders import ORDERS, order_of

NUCLEUS = [F(35, 100), F(25, 100), F(20, 100), F(5, 100), F(3, 100), *[F(15, 1000)] * 8]
ROWS = [
    [F(1)],
    [F(1, 4)] * 4,
    [F(1, 2), F(1, 4), F(1, 8), F(1, 8)],
    [F(0), F(1, 3), F(1, 3), F(1, 6), F(1, 6), F(0)],
    [F(1, 10), F(4, 10), F(1, 10), F(2, 10), F(2, 10)],
    [F(1, 16), F(3, 16), F(3, 16), F(1, 16), F(2, 16), F(3, 16), F(1, 16), F(2, 16)],
]


def law(weights, sampling):
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray([float(w) for w in weights]))
    return sampling.probabilities(logits, dtype=np.float64)


def normal(weights):
    return [w / sum(weights) for w in weights]


def exact_top_k(weights, k, ties):
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    kept = set(order[:k])
    if ties == "kept":
        kept = {i for i, w in enumerate(weights) if k >= len(weights) or w >= weights[order[k - 1]]}
    return [w if i in kept else F(0) for i, w in enumerate(weights)]


def exact_top_p(weights, share, lower_index_first, inclusive):
    """Keep a token while the mass above it is less than the share; the first always stays."""
    weights = normal(weights)
    sign = 1 if lower_index_first else -1
    order, above = sorted(range(len(weights)), key=lambda i: (-weights[i], sign * i)), F(0)
    kept = set()
    for rank, i in enumerate(order):
        if rank == 0 or above < share or (inclusive and above == share):
            kept.add(i)
        above += weights[i]
    return [w if i in kept else F(0) for i, w in enumerate(weights)]


def exact_min_p(weights, floor):
    return [w if w >= floor * max(weights) else F(0) for w in weights]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang", "llama.cpp"])
def test_every_order_in_fractions(row, engine):
    order = ORDERS[engine]
    cut = order.ties == "cut"
    shares = (None, F(1, 4), F(1, 2), F(3, 4), F(1))
    for k, share, floor in itertools.product((None, 1, 2, 3, 8), shares, (None, F(0), F(1, 3), F(1))):
        top_p, min_p = (None if value is None else float(value) for value in (share, floor))
        sampling = Sampling(1.0, k, top_p, min_p, order=engine)
        found, first = list(row), engine == "vllm"
        if first and floor is not None:
            found = exact_min_p(found, floor)
        whole = found
        if k is not None:
            found = exact_top_k(found, k, order.ties)
        if share is not None and share < 1:
            mass = whole if engine == "sglang" else found
            kept = exact_top_p(mass, share, cut, order.inclusive)
            found = [a if b else F(0) for a, b in zip(found, kept, strict=True)]
        if not first and floor is not None:
            found = exact_min_p(found, floor)
        expected = [float(w) for w in normal(found)]
        np.testing.assert_allclose(law(row, sampling), expected, atol=1e-14, err_msg=str(sampling))


def test_the_two_readings_of_top_k_with_top_p():
    after = law(NUCLEUS, Sampling(top_k=4, top_p=0.82, order="vllm"))
    joint = law(NUCLEUS, Sampling(top_k=4, top_p=0.82, order="sglang"))
    assert [int((found > 0).sum()) for found in (after, joint)] == [3, 4]
    assert abs(after - joint).sum() / 2 == pytest.approx(1 / 17, abs=1e-14)  # 0.0588


def test_temperature_after_filters_is_another_law():
    first, last = (
        law(NUCLEUS, Sampling(2.0, top_p=0.7, order=name)) for name in ("transformers", "llama.cpp")
    )
    roots = np.sqrt([float(w) for w in NUCLEUS])
    np.testing.assert_allclose(last, np.where(np.arange(13) < 3, roots, 0) / roots[:3].sum(), atol=1e-14)
    assert (first > 0).sum() > 3


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_xtc_is_a_mixture(probability):
    found = law(NUCLEUS, Sampling(order="llama.cpp", xtc_probability=probability, xtc_threshold=0.1))
    plain = np.asarray([float(w) for w in NUCLEUS])
    struck = np.where(np.arange(13) < 2, 0.0, plain) / 0.4  # 0.2 is the least of those above 0.1
    np.testing.assert_allclose(found, probability * struck + (1 - probability) * plain, atol=1e-14)


def test_xtc_spares_a_lone_choice():
    row = [F(6, 10), F(2, 10), F(2, 10)]
    one = Sampling(order="llama.cpp", xtc_probability=1.0, xtc_threshold=0.3)
    np.testing.assert_allclose(law(row, one), [0.6, 0.2, 0.2], atol=1e-15)


@pytest.mark.parametrize(("row", "kept"), [(NUCLEUS, 3), ([F(1, 4)] * 4, 4), ([F(9, 10), F(1, 10)], 1)])
def test_typical_p_by_hand(row, kept):
    p = np.asarray([float(w) for w in row])
    far = abs(-np.log(p) + (p * np.log(p)).sum())
    order = np.argsort(far, kind="stable")
    stays = set(order[: int((np.cumsum(p[order]) < 0.5).sum()) + 1])
    stays |= {i for i in range(len(p)) if any(abs(far[i] - far[j]) < 1e-12 for j in stays)}
    assert len(stays) == kept
    expected = np.where([i in stays for i in range(len(p))], p, 0)
    found = law(row, Sampling(typical_p=0.5))
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-14)


def test_top_n_sigma_by_hand():
    logits = np.asarray([0.0, 1.0, 2.0, 5.0, -np.inf])  # mean 2, deviation sqrt(3.5) = 1.87
    found = Sampling(top_n_sigma=2.0, order="llama.cpp").probabilities(logits, dtype=np.float64)
    assert (found > 0).tolist() == [False, False, True, True, False]
    two = Sampling(top_n_sigma=1.0, order="llama.cpp").probabilities(logits, dtype=np.float64)
    assert (two > 0).tolist() == [False, False, False, True, False]


def test_penalties_in_exact_numbers():
    logits = np.asarray([1.5, -1.5, 0.0, 3.0])
    seen = np.asarray([True, True, True, False])
    assert penalise_repetition(logits, seen, 2.0).tolist() == [0.75, -3.0, 0.0, 3.0]
    counts = np.asarray([2.0, 0.0, 1.0, 0.0])
    assert penalise_counts(logits, counts, frequency=0.5, presence=0.25).tolist() == [0.25, -1.5, -0.75, 3.0]


@pytest.mark.parametrize("seed", range(20))
def test_no_step_leaves_nothing(seed):
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(5, 8)) * 2)
    settings = {
        "temperature": float(rng.choice([0.0, 0.3, 1.0, 3.0])), "top_k": int(rng.integers(1, 9)),
        "top_p": float(rng.uniform(0.01, 1)), "min_p": float(rng.uniform()),
        "typical_p": float(rng.uniform(0.01, 1)),
        "top_n_sigma": float(rng.uniform(0.1, 3)), "xtc_probability": 0.5,
    }  # fmt: skip
    steps = rng.permutation(["temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc"])
    found = Sampling(**settings, order=[str(step) for step in steps]).probabilities(logits, dtype=np.float64)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-14)
    assert (found >= 0).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"top_k": 0}, "top-k must be"),
        ({"top_p": 0.0}, "top-p must be in"),
        ({"typical_p": 0.0}, "typical_p must be above 0 and at most 1, got 0"),
        ({"xtc_probability": 0.5}, "xtc_probability has no step in the order transformers"),
        ({"top_n_sigma": float("nan")}, "top_n_sigma must be finite, got nan"),
        ({"presence_penalty": 1.0}, "presence_penalty has no step in the order transformers"),
        ({"order": "tgi"}, "order has 'tgi', which is no engine"),
        ({"order": "top_k,top_k"}, "has a step twice"),
        ({"order": ["temperature", "logit_bias"]}, "order has logit_bias after temperature"),
        ({"order": "top_k", "temperature": 0.5}, "temperature has no step in the order top_k"),
        ({"bad_words": [[1, 2]]}, "only single ones are applied"),
        ({"logit_bias": {"a": 1}}, "logit_bias has 'a', which is no token id"),
        ({"min_tokens": 3}, "min_tokens bars stop_tokens, and there are none"),
        ({"draft": {"heat": 1}}, "draft: heat is no setting of sampling"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0, got 0"),
        ({"history": "block"}, "history must be 'token' or 'block-start'"),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(InputError) as caught:
        Sampling(**settings)
    assert words in str(caught.value)


def test_rows_alone_have_no_text():
    row = np.zeros((1, 3))
    penalised = Sampling(repetition_penalty=1.1)
    with pytest.raises(InputError, match="need the text"):
        penalised.probabilities(row, dtype=np.float64)
    with pytest.raises(InputError, match="need the text"):
        pair_from_logits(row, row, sampling=penalised, dtype="float64")
    with pytest.raises(InputError, match="need the text"):
        pair_from_logits(row, row, sampling=Sampling(draft={"bad_words": [1]}), dtype="float64")
    with pytest.raises(InputError, match="settings of a draft"):
        Sampling(draft={"top_k": 1}).probabilities(row, dtype=np.float64)


def test_a_draft_of_its_own():
    row = np.log([[0.5, 0.3, 0.2]])
    sampling = Sampling(0.5, top_k=2, draft={"temperature": None, "top_k": 1})
    pair = pair_from_logits(row, row, sampling=sampling, dtype="float64")
    np.testing.assert_allclose(pair.target, [[25 / 34, 9 / 34, 0]], atol=1e-15)
    np.testing.assert_allclose(pair.draft, [[1, 0, 0]], atol=1e-15)
    assert sampling.draft_sampling == Sampling(1.0, 1)


def test_a_sampling_survives_json():
    sampling = Sampling(
        0.7, 5, order="vllm", logit_bias={3: 1.5, "1": -2}, bad_words=[4, [2]],
        repetition_penalty=1.25, history="token",
        draft={"temperature": 1.0},
    )  # fmt: skip
    assert Sampling(**json.loads(json.dumps(sampling.plain()))) == sampling
    assert sampling.bad_words == (2, 4)
    assert hash(sampling) == hash(Sampling(**sampling.plain()))
    assert Sampling(0.7).plain() == {"temperature": 0.7}
    assert order_of("temperature, top_k").draws == ("temperature", "top_k")
