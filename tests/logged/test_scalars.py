"""Scalar logs: decisions recomputed, rounding told from the numbers, faults found, a right log left alone."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scalar_logs import FAULTS, lines, write

from resispec_verify import InputError, make_rule
from resispec_verify.evidence.acceptance_bets import gains
from resispec_verify.evidence.uniform_intervals import UniformIntervals, _gains, _shares
from resispec_verify.logged.scalars.acceptance import Acceptance, acceptance_of
from resispec_verify.logged.scalars.lines import blocks, is_scalar_log
from resispec_verify.logged.scalars.precision import Precision
from resispec_verify.logged.scalars.replay import replay_scalars
from resispec_verify.logged.scalars.summary import summarize_scalars
from resispec_verify.record.decisions import DecisionLog

RATIO = Acceptance()


def summary(path, rule=RATIO, **options):
    return summarize_scalars(replay_scalars(path, "speculative", rule, **options))


def one(p, q, accepted, u=None, **others):
    return {"p": p, "q": q, "accepted": accepted} | ({} if u is None else {"u": u}) | others


def of(tmp_path, *rows, **options):
    return summary(write(tmp_path / "log.jsonl", list(rows)), **options)


def test_a_right_log_agrees(tmp_path):
    row = summary(write(tmp_path / "log.jsonl", lines(1, 2000)), alpha=0.01)
    assert (row["decisions"], row["with_uniforms"], row["agree"], row["divergences"]) == (2000, 2000, 2000, 0)
    assert row["statistics"] == {"alpha": 0.01, "tests": 5, "verdict": "not-rejected"}
    assert [rate["depth"] for rate in row["acceptance_by_depth"]] == [0, 1, 2, 3]
    assert sum(rate["decisions"] for rate in row["acceptance_by_depth"]) == 2000
    assert row["precision"]["p"] == row["precision"]["u"] == "float32"
    assert {test["kind"] for test in row["next_token_tests"]} == {"residual", "bonus"}
    assert not row["notes"]


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_rejected(tmp_path, fault):
    count = {"bonus at temperature 1": 8000}.get(fault, 3000)
    row = summary(write(tmp_path / "log.jsonl", lines(2, count, fault)))
    decisions_differ = FAULTS.index(fault) < 3
    assert bool(row["divergences"]) == decisions_differ
    kinds = {test["kind"]: test["verdict"] for test in row["next_token_tests"]}
    assert (kinds["residual"] == "rejected") == (fault == "the target instead of the residual")
    assert (kinds["bonus"] == "rejected") == (fault == "bonus at temperature 1")
    assert (row["repeated_uniforms"] > 0) == (fault == "u of the decision before")
    assert row["statistics"]["verdict"] == "rejected" or fault == "accepts 0.02 too often"


def test_without_uniforms_the_rates_tell(tmp_path):
    rows = lines(5, 40000, "accepts 0.02 too often", u=False)
    row = summary(write(tmp_path / "log.jsonl", rows), alpha=0.05)
    assert row["with_uniforms"] == row["divergences"] == 0
    assert row["acceptance"]["verdict"] == "rejected"
    assert row["acceptance"]["looks_like"] in ("accepts more often", "learned by the acceptance")
    right = summary(write(tmp_path / "log.jsonl", lines(5, 40000, u=False)), alpha=0.05)
    assert right["statistics"]["verdict"] == "not-rejected"


def test_the_first_decisions_that_differ_are_named(tmp_path):
    rows = [
        one(0.512345678, 0.623456789, True, 0.4234567891),
        one(0.512345678, 0.623456789, True, 0.923456789),
    ]
    row = of(tmp_path, *rows)
    first = row["first_divergence"]
    assert (first["line"], first["logged"], first["recomputed"]) == (2, "accepted", "rejected")
    assert first["ratio"] == pytest.approx(0.512345678 / 0.623456789)
    assert first["margin"] == pytest.approx(0.923456789 - 0.512345678 / 0.623456789)
    assert 0 < first["allowance"] < 1e-6


def test_inside_the_band_a_decision_proves_nothing(tmp_path):
    many = [one(0.1234 + i / 10000, 0.5678, False, 0.9321) for i in range(30)]
    edge = 0.3 / 0.6
    for shift, status in ((0.0, "near"), (1e-4, "near"), (3e-3, "differs")):
        row = of(tmp_path, *many, one(0.3, 0.6, True, round(edge + shift, 4)))
        assert row["precision"] == {"p": "4 decimals", "q": "4 decimals", "u": "4 decimals"}
        assert (row["near_ties"], row["divergences"]) == ((1, 0) if status == "near" else (0, 1))
    row = of(tmp_path, *many, one(0.3, 0.6, True, 0.5001), precision="float32")
    assert (row["near_ties"], row["divergences"]) == (0, 1)


def test_the_interval_holds_everything_that_rounds_to_what_was_written():
    rng = np.random.default_rng(4)
    p, q = rng.random(2000), rng.random(2000)
    for decimals in (2, 4):
        half = np.full(2000, 0.5 * 10.0**-decimals)
        value, low, high = RATIO.interval(np.round(p, decimals), np.round(q, decimals), half, half)
        true = np.minimum(1.0, p / q)
        assert ((low <= true) & (true <= high)).all()
        assert ((low <= value) & (value <= high)).all()


@pytest.mark.parametrize(
    ("written", "name", "half"),
    [
        (lambda x: np.round(x, 3), "3 decimals", 5e-4),
        (lambda x: np.asarray([float(f"{v:.5g}") for v in x * 1e-3]), "5 digits", None),
        (lambda x: x.astype(np.float16).astype(float), "float16", None),
        (lambda x: x.astype(np.float32).astype(float), "float32", None),
        (lambda x: x, "float32", None),
    ],
)
def test_precision_is_told_from_the_numbers(written, name, half):
    values = written(np.random.default_rng(6).random(200))
    found = Precision()
    found.see(values[:100])
    found.see(values[100:])
    assert found.name == name
    if half is not None:
        assert (found.half(values) == half).all()
    assert (found.half(values) >= 2.0**-24 * values).all()


def test_a_finer_number_makes_the_band_narrower_and_never_wider():
    found = Precision()
    found.see(np.asarray([0.5, 0.25]))
    assert found.name == "2 decimals"  # of bfloat16, too, which is finer at 0.5
    found.see(np.asarray([0.1234567]))
    assert found.name == "7 decimals"
    found.see(np.asarray([0.123456789123]))
    assert found.name == "float32"


def test_bets_are_fair_at_every_probability_inside_the_rounding():
    for a, low, high in ((0.3, 0.29, 0.32), (0.99, 0.98, 1.0), (0.01, 0.0, 0.02)):
        for b in (0.0, 0.2, 0.9, 1.0):
            for share in (1.0, 0.25):
                arrays = [np.full(2, x) for x in (a, low, high, b)]
                with np.errstate(divide="ignore"):
                    yes, no = np.exp(gains(np.asarray([True, False]), *arrays, share))
                for true in np.linspace(low, high, 7):
                    assert true * yes + (1 - true) * no <= 1 + 1e-12


def test_the_bet_on_an_interval_has_mean_one_under_every_discrete_law():
    """In fractions: sum over y of p(y) times the mean density over its interval is the whole integral."""
    law = [Fraction(1, 7), Fraction(2, 7), Fraction(1, 14), Fraction(1, 2)]
    weight = [Fraction(1, 2), Fraction(2), Fraction(1, 4), Fraction(5, 4)]
    assert sum(weight) == 4
    total, start = Fraction(0), Fraction(0)
    for p in law:
        end = start + p
        inside = [
            max(Fraction(0), min(end, Fraction(k + 1, 4)) - max(start, Fraction(k, 4))) for k in range(4)
        ]
        total += sum(w * x for w, x in zip(weight, inside, strict=True))
        shares = _shares(np.asarray([float(start)]), np.asarray([float(end)]), 4)[0]
        assert shares == pytest.approx([float(x / p) for x in inside], abs=1e-12)
        start = end
    assert total == 1


def test_rounding_of_intervals_stays_within_its_bound():
    rng = np.random.default_rng(8)
    d, cells = 1e-3, 4
    for _ in range(200):
        law = rng.dirichlet(np.full(int(rng.integers(2, 200)), 0.3))
        edges = np.concatenate([[0.0], np.cumsum(law)])
        low, high = edges[:-1] + rng.uniform(-d, d, len(law)), edges[1:] + rng.uniform(-d, d, len(law))
        low, high = np.clip(low, 0, 1), np.clip(np.maximum(high, low), 0, 1)
        counts = rng.integers(0, 20, (1, cells)).astype(float)
        every = [
            _gains(
                counts.copy(), cells, low[i : i + 1], high[i : i + 1], np.asarray([d]), np.zeros(1, np.int64)
            )[0]
            for i in range(len(law))
        ]
        assert (law * np.exp(every)).sum() <= 1 + 1e-12


def test_uniforms_that_depend_on_the_one_before(tmp_path):
    rng = np.random.default_rng(9)
    test = UniformIntervals({"the one before": 8}, alpha=1e-6)
    u = rng.random(3000)
    u[1::2] = (u[0::2] + 0.1 * u[1::2]) % 1.0
    before = np.concatenate([[0.0], u[:-1]])
    test.add(u, np.zeros(3000), np.zeros(3000), [(before * 8).astype(int)])
    assert test.evidence.found_after(1e-6) is not None
    assert test.evidence.leading == "depends on the one before"


def test_rules_that_are_functions_of_p_and_q():
    p, q, zero = np.asarray([0.2, 0.6]), np.asarray([0.4, 0.3]), np.zeros(2)
    for name, expected in (
        ("speculative", [0.5, 1.0]), ("specinfer", [0.5, 1.0]), ("token-match", [0.2, 0.6]),
        ("sglang", [0.2, 0.6]),
    ):  # fmt: skip
        value, _, _ = acceptance_of(make_rule(name), name).interval(p, q, zero, zero)
        assert value == pytest.approx(expected)
    value, _, _ = acceptance_of(make_rule("sglang", threshold_acc=0.5, threshold_single=0.55), "x").interval(
        p, q, zero, zero
    )
    assert value == pytest.approx([0.4, 1.0])
    with pytest.raises(InputError, match="--rule resispec: its acceptance is not a function of p and q"):
        acceptance_of(make_rule("resispec"), "--rule resispec")


def test_drafts_without_a_law_and_impossible_decisions(tmp_path):
    row = of(tmp_path, one(0.0, 1, True), one(0.987654321, 0.512345678, False), one(0.25, 0.0, True))
    assert row["acceptance"]["impossible"] == 2
    assert (row["divergences"], row["undraftable_tokens"]) == (2, 1)
    assert row["first_divergence"]["line"] == 1
    assert row["statistics"]["verdict"] == "rejected"


BAD = [
    ('{"p": 0.5, "q": 0.5}', "line 2 has no accepted"),
    ('{"p": 0.5, "accepted": true}', "line 2 has no q; log q as the draft's probability"),
    ('{"p": 1.5, "q": 0.5, "accepted": true}', "line 2: p is 1.5"),
    ('{"p": "half", "q": 0.5, "accepted": true}', "line 2: p is half"),
    ('{"p": true, "q": 0.5, "accepted": true}', "line 2: p is True"),
    ('{"p": NaN, "q": 0.5, "accepted": true}', "line 2 is not valid JSON"),
    ('{"p": 0.5, "q": 0.5, "accepted": 1}', "line 2: accepted is 1; log accepted as true or false"),
    ('{"p": 0.5, "p": 0.4, "q": 0.5, "accepted": true}', "a key is there twice"),
    ('{"p": 0.5, "q": 0.5, "accepted": true, "u": 1.25}', "line 2: u is 1.25"),
    ('{"p": 0.5, "q": 0.5, "accepted": true, "depth": 0.5}', "line 2: depth is 0.5"),
    ('{"p": 0.5, "q": 0.5, "accepted": true, "reported": 0.5}', "line 2: reported is 0.5"),
    ('{"p": 0.5, "q": 0.5, "accepted": true, "round": 99999999999999999999999}', "line 2: round is"),
    ('{"p": 0.5, "q": 0.5, "accepted": true, "request": [1]}', r"line 2: request is \[1\]"),
    ("[1, 2]", "line 2 is"),
    ('{"p": 0.5', "line 2 is not valid JSON"),
    (
        '{"p": 0.5, "q": 0.5, "accepted": true}, {"p": 0.5, "q": 0.5, "accepted": true}',
        "line 2 is not valid JSON",
    ),
    ('{"p": 0.5, "q": 0.5, "accepted": true, "u": 0.5}', "line 2 has u, and others have not|line 1 has no u"),
]


@pytest.mark.parametrize(("line", "words"), BAD)
def test_bad_lines_are_named(tmp_path, line, words):
    path = tmp_path / "log.jsonl"
    path.write_text('{"p": 0.5, "q": 0.5, "accepted": true}\n' + line + "\n")
    with pytest.raises(InputError, match=words):
        summary(path)


def test_nothing_is_decided_after_a_rejection(tmp_path):
    rows = [one(0.5, 0.5, True, round=0), one(0.1, 0.5, False, round=0), one(0.5, 0.5, True, round=0)]
    with pytest.raises(InputError, match="line 3: a decision of round 0 after its rejection"):
        of(tmp_path, *rows)
    rows[2] |= {"round": 1}
    assert of(tmp_path, *rows)["decisions"] == 3


def test_an_empty_log_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match="holds no decisions"):
        summary(tmp_path / "log.jsonl")


def test_csv_says_the_same_as_json_lines(tmp_path):
    rows = lines(3, 300)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = ",".join(keys) + "\n"
    for row in rows:
        text += ",".join("" if key not in row else str(row[key]) for key in keys) + "\n"
    (tmp_path / "log.csv").write_text(text)
    csv, jsonl = summary(tmp_path / "log.csv"), summary(write(tmp_path / "log.jsonl", rows))
    assert {**csv, "path": ""} == {**jsonl, "path": ""}
    (tmp_path / "log.csv").write_text("p,q\n0.5,0.5\n")
    with pytest.raises(InputError, match="line 1 must name the columns"):
        summary(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text("p,q,accepted\n0.5,0.5,true\n0.5,half,true\n")
    with pytest.raises(InputError, match="line 3: q is half"):
        summary(tmp_path / "log.csv")


def test_blocks_do_not_change_the_answer(tmp_path, monkeypatch):
    path = write(tmp_path / "log.jsonl", lines(3, 2000))
    whole = summary(path)
    monkeypatch.setattr("resispec_verify.logged.scalars.lines._CHUNK", 4096)
    assert sum(1 for _ in blocks(path)) > 20
    parts = summary(path)
    assert parts["acceptance"]["p_value"] == pytest.approx(whole["acceptance"]["p_value"])
    assert parts["uniforms_test"]["log10_evidence"] == pytest.approx(whole["uniforms_test"]["log10_evidence"])
    assert parts["repeated_uniforms_p_value"] == whole["repeated_uniforms_p_value"]
    (tmp_path / "long.jsonl").write_text(json.dumps(one(0.5, 0.5, True, request="x" * 9000)))
    with pytest.raises(InputError, match="line 1 is longer"):
        summary(tmp_path / "long.jsonl")


def test_which_files_are_scalar_logs(tmp_path):
    (tmp_path / "a.log").write_text('{"p": 0.5, "q": 0.5, "accepted": true}\n')
    (tmp_path / "b.log").write_text('{"target_logits": [1]}\n')
    assert is_scalar_log(tmp_path / "a.log")
    assert not is_scalar_log(tmp_path / "b.log")


@pytest.mark.parametrize(
    ("value", "verdict", "looks"),
    [(lambda p, q: math.log(p), "agree", []), (lambda p, q: 0.0, "differs", ["0 for every token"]),
     (lambda p, q: math.log(q), "differs", ["the draft"]), (lambda p, q: math.log(p) - 0.1, "differs", [])],
)  # fmt: skip
def test_reported_log_probabilities(tmp_path, value, verdict, looks):
    rows = [
        row | ({"reported": value(row["p"], row["q"])} if row["accepted"] else {}) for row in lines(4, 300)
    ]
    found = summary(write(tmp_path / "log.jsonl", rows))["reported_logprobs"]
    assert found["verdict"] == verdict
    assert found["classes"][0]["class"] == "accepted"
    assert found["classes"][0]["looks_like"] == looks


def test_reported_log_probabilities_of_corrections(tmp_path):
    def with_reported(key):
        return [
            row | ({"next_reported": math.log(row[key])} if "next_p" in row else {}) for row in lines(4, 300)
        ]

    right = summary(write(tmp_path / "log.jsonl", with_reported("next_target_p")))["reported_logprobs"]
    assert (right["verdict"], len(right["classes"])) == ("agree", 2)
    wrong = summary(write(tmp_path / "log.jsonl", with_reported("next_p")))["reported_logprobs"]
    classes = {one["class"]: one for one in wrong["classes"]}
    assert classes["corrected"]["looks_like"] == ["the residual"]
    assert classes["bonus"]["verdict"] == "right"


def test_the_writer_writes_what_is_read(tmp_path):
    with DecisionLog(tmp_path / "log.jsonl") as log:
        log.add(p=np.float32(0.1), q=np.float64(0.25), accepted=np.bool_(True), u=0.125, round=0, depth=None)
        log.add(p=0.5, q=1, accepted=False, u=0.75, round=1)
        with pytest.raises(InputError, match="holds NaN"):
            log.add(p=float("nan"), q=1, accepted=False)
        with pytest.raises(InputError, match="p is list"):
            log.add(p=[1], q=1, accepted=False)
    row = summary(tmp_path / "log.jsonl")
    assert (row["decisions"], row["agree"]) == (2, 2)
    with pytest.raises(InputError, match="end the name with"):
        DecisionLog(tmp_path / "log.txt")


def test_numbers_that_several_grids_hold_may_be_of_the_widest(tmp_path):
    """0.5 and 0.75 are bfloat16 numbers, and may be 0.504 and 0.746: a ratio of 0.676 is inside."""
    found = of(tmp_path, one(0.5, 0.75, True, 0.67))
    assert (found["divergences"], found["near_ties"]) == (0, 1)
    kind = Precision()
    kind.see(np.array([0.25, 0.5]))
    assert kind.name == "2 decimals"
    assert kind.half(np.array([0.5]))[0] == 0.005
    assert kind.bits() == pytest.approx(np.log2(100))
    assert of(tmp_path, one(0.5, 0.75, True, 0.67), precision="float32")["divergences"] == 1
