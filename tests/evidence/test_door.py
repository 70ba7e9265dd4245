"""The public functions of Python: right values, and one `InputError` for what is no law, rule or count."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import resispec_verify as rv
from resispec_verify import inputs, samplers
from resispec_verify.evidence import enumeration
from resispec_verify.evidence.path_rules import path_marginal
from resispec_verify.rules import Block, Iid
from resispec_verify.testing import assert_draft_as_declared, assert_lossless

P, Q = [[0.5, 0.3, 0.2]], [[0.2, 0.3, 0.5]]
EPS = float(np.finfo(np.float64).eps)


def refused(call: Any, *words: object) -> None:
    """One line that says all of ``words``."""
    with pytest.raises(rv.InputError) as caught:
        call()
    for word in words:
        assert str(word) in str(caught.value), caught.value


# What is no pair of laws, the argument that is named, and what is said of it.
BAD = [
    ([[2, -1, 5]], [[1, 1, 2]], "target, row 0: token 1 has probability -1"),
    (P, [[1, 1, 2]], "draft, row 0: probabilities sum to 4, not 1"),
    ([*P, [0.5, 0.5, 0.1]], Q * 2, "target, row 1: probabilities sum to 1.1"),
    (P * 2, [*Q, [0.5, float("nan"), 0.5]], "draft, row 1: token 1 has probability nan"),
    ([[float("inf"), 0.5, 0.5]], Q, "target, row 0: token 0 has probability inf"),
    (P, [[0.5, 0.5]], "target has shape (1, 3) but draft has (1, 2)"),
    (P, Q * 2, "target has shape (1, 3) but draft has (2, 3)"),
    (P[0], Q[0], "target must have shape (rows, V), got (3,); for one row give target[None]"),
    ([P], [Q], "target must have shape (rows, V), got (1, 1, 3)"),
    (0.5, 0.5, "target must have shape (rows, V), got ()"),
    (np.zeros((0, 3)), np.zeros((0, 3)), "target has no rows"),
    ([[]], [[]], "target has no tokens"),
    ([[0.5, 0.5], [1.0]], Q, "target is no array of numbers (rows differ in length)"),
    ("0.5,0.5", Q, "target is no array of numbers"),
    ([["a", "b", "c"]], Q, "target is no array of numbers"),
    ([[None, 0.5, 0.5]], Q, "target is no array of numbers (it holds a NoneType)"),
    ([[0.5j, 0.5, 0.5]], Q, "target must hold real numbers; it has dtype complex128"),
    (np.asarray([[True, False, False]]), Q, "target must hold real numbers; it has dtype bool"),
    (np.ma.masked_array(P, [[0, 0, 1]]), Q, "target is a masked array"),
]
FUNCTIONS = {
    "operational_marginals": lambda p, q: rv.operational_marginals(rv.SpecInfer(), p, q, 2),
    "path_identity": lambda p, q: rv.path_identity(p, q, rv.ResiSpec().proxy, [[2, 1]], 2),
    "verify_specinfer": lambda p, q: samplers.verify_specinfer(p, q, [[2, 1]], [[0.1, 0.2, 0.3]]),
    "verify_optimal_joint": lambda p, q: samplers.verify_optimal_joint(p, q, [[2]], [[0.1, 0.2, 0.3]]),
    "verify_optimal_sequential": lambda p, q: samplers.verify_optimal_sequential(p, q, [[2]], [[0.1, 0.2]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("target", "draft", "said"), BAD)
def test_what_is_no_pair_of_laws_is_one_line(name, target, draft, said):
    refused(lambda: FUNCTIONS[name](target, draft), said)


@pytest.mark.parametrize(("target", "draft", "said"), [row for row in BAD if "(rows, V)" not in row[2]])
def test_the_limit_of_any_rows(target, draft, said):
    refused(lambda: rv.transport_limit(target, draft, 2), said)


def test_right_laws_of_any_kind_give_the_right_answer():
    torch = pytest.importorskip("torch")
    exact = [[Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)]]
    for kind in (list, np.asarray, lambda rows: torch.tensor(rows, dtype=torch.float64)):
        found = rv.operational_marginals(rv.SpecInfer(), kind(P), kind(Q), 2)
        np.testing.assert_allclose(np.asarray(found.placed), P, rtol=0, atol=float(found.rounding[0]))
    found = rv.operational_marginals(rv.SpecInfer(), exact, Q, 2)
    np.testing.assert_allclose(found.placed, P, rtol=0, atol=float(found.rounding[0]))
    assert rv.operational_marginals(rv.SpecInfer(), np.asarray([[1, 0, 0]]), Q, 1).placed.tolist() == [
        [1, 0, 0]
    ]


@pytest.mark.parametrize("rows", [[[0.9, 0.1]], [[1 / 3, 1 / 3, 1 / 3]], np.full((1, 5000), 1 / 5000)])
def test_half_precision_is_widened_and_normalised(rows):
    """[0.9, 0.1] in bfloat16 sums to 0.99853: half a unit in the last place of each entry."""
    torch = pytest.importorskip("torch")
    rows = np.asarray(rows)
    for narrow in (
        rows.astype(np.float16),
        rows.astype(ml_dtypes.bfloat16),
        torch.tensor(rows).bfloat16(),
        torch.tensor(rows).half(),
    ):
        found = rv.operational_marginals(rv.SpecInfer(), narrow, narrow, 1)
        placed = np.asarray(found.placed)
        assert placed.dtype == np.float64
        assert placed.sum() == pytest.approx(1.0, abs=rows.shape[1] * EPS)
        # Rounding to bfloat16 moves an entry by 2**-9 of itself, and so does the sum.
        np.testing.assert_allclose(placed, rows, rtol=2 * 2**-8, atol=2**-24)


def test_a_row_that_is_off_by_more_than_its_type_rounds_is_refused():
    rows = np.asarray([[0.9, 0.1 + 4e-3]])
    for dtype in (np.float64, np.float32, np.float16):
        refused(
            lambda dtype=dtype: rv.operational_marginals(rv.SpecInfer(), rows.astype(dtype), [[0.5, 0.5]], 1),
            "target, row 0: probabilities sum to 1.00",
        )


def test_a_softmax_in_single_precision_is_a_law():
    logits = np.random.default_rng(0).normal(size=(4, 49152)).astype(np.float32)
    rows = np.exp(logits)
    rows /= rows.sum(axis=-1, keepdims=True, dtype=np.float32)
    assert rv.operational_marginals(rv.SpecInfer(), rows, rows, 1).placed.dtype == np.float32


def test_arrays_of_two_libraries_are_refused():
    torch = pytest.importorskip("torch")
    refused(
        lambda: rv.operational_marginals(rv.SpecInfer(), torch.tensor(P), np.asarray(Q), 1),
        "target is an array of torch and draft of numpy",
    )
    # A list has no library of its own.
    found = rv.operational_marginals(rv.SpecInfer(), torch.tensor(P, dtype=torch.float64), Q, 1)
    assert found.placed.dtype == torch.float64
    refused(
        lambda: rv.operational_marginals(rv.SpecInfer(), torch.tensor(P).to_sparse(), Q, 1),
        "sparse",
        "to_dense",
    )
    refused(
        lambda: rv.operational_marginals(rv.SpecInfer(), torch.tensor(P), torch.tensor(Q, device="meta"), 1),
        "draft on meta",
    )


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("specinfr", ("unknown rule 'specinfr'", "did you mean 'specinfer'?")),
        ("block", ("verifies paths", "path_marginal")),
        (Block(), ("verifies paths", "path_marginal")),
        (rv.SpecInfer, ("an instance, not a class: say SpecInfer()",)),
        (None, ("rule must be a Rule", "got None")),
        (7, ("rule must be a Rule", "got 7")),
    ],
)
def test_what_is_no_rule(rule, words):
    refused(lambda: rv.operational_marginals(rule, P, Q, 1), *words)


def test_a_rule_may_be_named():
    named, given = (rv.operational_marginals(rule, P, Q, 2) for rule in ("resispec", rv.ResiSpec()))
    assert named.placed.tolist() == given.placed.tolist()


class Divides(rv.Rule):
    """Divides by 0."""

    name, claims_exact, source, depends_on = "divides", False, "a test", "nothing"

    def reject(self, state, tokens):
        with np.errstate(invalid="ignore"):
            return rv.State(state.residual * np.nan, state.draft, state.round + 1)


def test_a_rule_that_returns_nan_gives_no_verdict():
    refused(lambda: rv.operational_marginals(Divides(), P, Q, 1), "rule 'divides'", "not finite", "row 0")


@pytest.mark.parametrize("count", [-1, 1.0, True, "2", None, 10**9])
def test_what_is_no_count(count):
    for call in (
        lambda: rv.operational_marginals(rv.SpecInfer(), P, Q, count),
        lambda: rv.transport_limit(P, Q, count),
    ):
        refused(call, "candidates must be")
    refused(lambda: rv.path_identity(P, Q, rv.ResiSpec().proxy, [[0]], count), "rounds must be")


def test_counts_of_numpy_and_none_at_all():
    assert rv.operational_marginals(rv.SpecInfer(), P, Q, np.int32(2)).acceptance.shape == (1, 2)
    np.testing.assert_allclose(rv.operational_marginals(rv.SpecInfer(), P, Q, 0).placed, P, rtol=0, atol=EPS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proposal": "iid"}, ("proposal must be a value", "'iid'")),
        ({"proposal": Iid}, ("proposal must be a value", "the class Iid")),
        ({"budget": 0.1}, ("budget must be a Budget", "0.1")),
        ({"budget": rv.Budget(gap=float("nan"))}, ("budget.gap must be in [0, 1]",)),
        ({"budget": rv.Budget(most_states=float("nan"))}, ("budget.most_states must be at least 0",)),
        ({"drawn_from": [[0.5, 0.5]]}, ("drawn_from has (1, 2)",)),
        ({"drawn_from": [[0.5, 0.5, 0.5]]}, ("drawn_from, row 0: probabilities sum to 1.5",)),
    ],
)
def test_what_is_no_option(options, words):
    refused(lambda: rv.operational_marginals(rv.SpecInfer(), P, Q, 1, **options), *words)


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([[0, 3]], "candidates, row 0: token 3 is outside the vocabulary 0..2"),
        ([[-1, 0]], "candidates, row 0: token -1"),
        ([[0.0, 1.0]], "candidates must hold whole numbers"),
        ([0, 1], "candidates must have shape (1, n), got (2,)"),
        ([[0, 1], [0, 1]], "candidates must have shape (1, n), got (2, 2)"),
    ],
)
def test_what_are_no_candidates(candidates, said):
    refused(lambda: rv.path_identity(P, Q, rv.ResiSpec().proxy, candidates, 2), said)
    refused(lambda: samplers.verify_specinfer(P, Q, candidates, [[0.1, 0.2, 0.3]]), said)


def test_a_rule_is_no_proxy():
    refused(lambda: rv.path_identity(P, Q, rv.ResiSpec(), [[0]], 1), "proxy must be a function", "a ResiSpec")


@pytest.mark.parametrize(
    ("uniforms", "said"),
    [
        ([[0.1, 0.2]], "uniforms must have shape (1, 3)"),
        ([[0.1, 0.2, 1.0]], "uniforms must lie in [0, 1)"),
        ([[0.1, float("nan"), 0.3]], "uniforms must lie in [0, 1)"),
        ([["a", "b", "c"]], "uniforms is no array of numbers"),
    ],
)
def test_what_are_no_uniforms(uniforms, said):
    refused(lambda: samplers.verify_specinfer(P, Q, [[0, 1]], uniforms), said)


def test_samplers_take_lists():
    found = samplers.verify_specinfer([[0.5, 0.5]], [[0.5, 0.5]], [[1]], [[0.5, 0.5]])
    assert (found.tokens.tolist(), found.accepted.tolist()) == ([1], [0])


@pytest.mark.parametrize(
    ("rejected", "said"), [(3, "in 0..2"), (-1, "in 0..2"), (1.0, "whole number"), (0, "cannot")]
)
def test_get_proxy(rejected, said):
    refused(lambda: rv.get_proxy(P[0], Q[0], rejected), said)
    assert rv.get_proxy(P[0], Q[0], 2).k.sum() == pytest.approx(1.0, abs=8 * EPS)


T1 = rv.Sampling()


@pytest.mark.parametrize(
    ("target", "draft", "options", "said"),
    [
        ([[0.0, float("nan")]], [[0.0, 1.0]], {}, "target, row 0: the logit of token 1 is nan"),
        ([[0.0, 1.0]], [[0.0, float("inf")]], {}, "draft, row 0: the logit of token 1 is inf"),
        ([[0.0, 1.0]], [[-float("inf")] * 2], {}, "draft, row 0: every logit is -inf"),
        ([[0.0, 1.0]], [[0.0]], {}, "target has shape (1, 2) but draft has (1, 1)"),
        ([[0.0, 1.0]], [[0.0, 1.0]], {"sampling": 0.7}, "sampling must be a Sampling"),
        ([[0.0, 1.0]], [[0.0, 1.0]], {"proposal_sampling": 0.7}, "proposal_sampling must be a Sampling"),
        ([[0.0, 1.0]], [[0.0, 1.0]], {"dtype": int}, "dtype must be float64 or float32"),
        ([[0.0, 1.0]], [[0.0, 1.0]], {"proposal": [[0.0]]}, "proposal has (1, 1)"),
    ],
)
def test_what_is_no_pair_of_logits(target, draft, options, said):
    options = {"sampling": T1, "dtype": np.float64, **options}
    refused(lambda: rv.pair_from_logits(target, draft, **options), said)


def test_logits_of_any_kind():
    torch = pytest.importorskip("torch")
    right = rv.pair_from_logits([[0.0, 1.0]], [[1.0, 0.0]], sampling=T1, dtype=np.float64)
    narrow = torch.tensor([[0.0, 1.0]]).bfloat16()
    pair = rv.pair_from_logits(narrow, narrow.flip(-1), sampling=T1, dtype=torch.float64)
    np.testing.assert_allclose(pair.target.numpy(), right.target, rtol=8 * EPS)
    assert T1.probabilities([0.0, 0.0], dtype="float32").tolist() == [0.5, 0.5]
    refused(lambda: T1.probabilities([0.0, float("nan")], dtype=np.float64), "token 1 is nan")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": "1"}, "temperature must be a number, got '1'"),
        ({"temperature": None}, "temperature must be a number"),
        ({"temperature": float("nan")}, "temperature must be a finite number >= 0"),
        ({"top_k": 2.5}, "top-k must be a whole number"),
        ({"top_k": True}, "top-k must be a whole number"),
        ({"top_p": "x"}, "top-p must be a number"),
        ({"min_p": 2}, "min-p must be in [0, 1]"),
    ],
)
def test_what_is_no_sampling(options, said):
    refused(lambda: rv.Sampling(**options), said)


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        ([0.5, 0.5], [0.5], "target has shape (2,) but draft has (1,)"),
        ([0.5, 0.6], [0.5, 0.5], "target: probabilities sum to 1.1"),
        (["0.5", "0.5"], [0.5, 0.5], "target is no array of numbers"),
        ([[0.5], [0.5, 0.5]], [0.5, 0.5], "target is no array of numbers"),
        ([0.5, 0.5j], [0.5, 0.5], "target must hold real numbers"),
    ],
)
def test_what_is_no_pair_of_probabilities(target, draft, said):
    refused(lambda: rv.pair_from_probabilities(target, draft), said)


@pytest.mark.parametrize("name", [None, 3, ["specinfer"]])
def test_a_rule_is_made_from_a_name(name):
    refused(lambda: rv.make_rule(name), "made from its name")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: assert_lossless(3), "sampler must be a function"),
        (lambda: assert_lossless(print, pairs="pairs"), "pairs must be a list"),
        (
            lambda: assert_lossless(print, pairs=([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])),
            "pairs is a list of (target, draft)",
        ),
        (lambda: assert_lossless(print, pairs=[([0.5, 0.5], [0.5, 0.6])]), "pairs[0]: draft: probabilities"),
        (lambda: assert_lossless(print, pairs=[(P, Q)]), "pairs[0]: target must have shape (V,)"),
        (lambda: assert_lossless(print, rule="specinfr"), "did you mean 'specinfer'?"),
        (lambda: assert_lossless(print, draws=2.5), "draws must be a whole number"),
        (lambda: assert_lossless(print, alpha="x"), "alpha must be a number"),
        (lambda: assert_draft_as_declared(None), "draw must be a function"),
        (lambda: path_marginal(rv.SpecInfer(), [[0.5, 0.5]], []), "rule must be a PathRule"),
        (lambda: path_marginal(Block(), [[0.5, float("nan")]], []), "targets[0] must hold laws"),
        (lambda: path_marginal(Block(), ["ab"], []), "targets[0] is no array of numbers"),
    ],
)
def test_what_else_is_refused(call, said):
    refused(call, said)


def test_inside_the_package_nothing_is_checked_twice(cli_pair, monkeypatch):
    """A run over a dump never comes through the public door."""
    from resispec_verify.tables.marginals import Evaluation, evaluate
    from resispec_verify.tables.reading import Clock, by_hand

    def door(**values):
        raise AssertionError("checked again")

    for module in ("inputs", "evidence.door", "samplers"):
        monkeypatch.setattr(f"resispec_verify.{module}.laws", door)
    rows: dict = {}
    evaluate(by_hand(cli_pair), Evaluation((rv.SpecInfer(), rv.ResiSpec()), 2), rows, clock=Clock())
    assert len(rows) == 4


@pytest.fixture
def cli_pair() -> rv.Pair:
    return rv.Pair(np.asarray(P), np.asarray(Q))


def test_the_documentation_of_a_public_function_is_that_of_the_one_behind_it():
    assert rv.operational_marginals.__doc__ == enumeration.operational_marginals.__doc__
    assert inputs.MOST_CANDIDATES == 1000


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: rv.operational_marginals(rv.SpecInfer(), None, [Q[0]], 1), "target"),
        (lambda: rv.operational_marginals("specinfer", [P[0]], None, 1), "draft"),
        (lambda: rv.transport_limit(None, [Q[0]], 2), "target"),
        (lambda: rv.pair_from_probabilities(None, Q[0]), "target"),
        (lambda: rv.get_proxy(None, Q[0], 0), "target"),
    ],
)
def test_nothing_at_all_is_refused(call, named):
    refused(call, f"{named} must be an array, got None")
