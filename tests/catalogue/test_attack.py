"""The adversarial search: a small witness for every inexact rule, no claim of exactness for the others."""

from __future__ import annotations

import json
from fractions import Fraction as F

import pytest
from shipped_rules import measured

from resispec_verify.catalogue.attack import Witness, attack, counts_of, limit_of, shrink
from resispec_verify.catalogue.measured import CATALOGUE, Case, measure
from resispec_verify.cli import main
from resispec_verify.errors import InputError
from resispec_verify.oracle import marginal
from resispec_verify.rules import TREE_RULES

INEXACT = measured("inexact")
CONDITIONAL = [name for name in measured("exact-if") if name not in TREE_RULES]  # trees are not searched
LONG = 60.0  # the number of trials is the budget, so that runs can be repeated


def confirm(name, search, options):
    witness = search.witness
    assert len(witness["target"]) <= 5
    target, draft = (tuple(map(F, witness[key])) for key in ("target", "draft"))
    case = Case(target, draft, witness["candidates"], witness.get("chain"))
    tv, law = measure(name, case, **options)
    assert [str(mass) for mass in law] == witness["marginal"]
    assert str(tv) == witness["tv"]
    assert tv > 0
    assert tv >= search.best.value / 2
    return tv, case


@pytest.mark.parametrize("name", INEXACT)
def test_every_inexact_rule_yields_a_witness(name):
    counts = counts_of(name)
    n = 2 if 2 in counts else counts[0]
    search = attack(name, candidates=n, seconds=LONG, most_trials=120)
    _, case = confirm(name, search, CATALOGUE[name].measured_with)
    assert case.candidates == n
    assert search.trials <= 120 + 300
    if name != "spechub-force":
        assert max(mass.denominator for mass in case.target + case.draft) <= 30
    assert search.shortfall is None


@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_rule_whose_parameter_decides(name):
    breaking = CATALOGUE[name].inexact_with
    confirm(name, attack(name, seconds=LONG, most_trials=100, options=breaking), breaking)
    assert attack(name, seconds=LONG, most_trials=100).witness is None


@pytest.mark.parametrize(
    ("name", "meets"),
    [("speculative", True), ("eagle", True), ("spechub", True), ("specinfer", False), ("sequoia", False)],
)
def test_exact_rules_yield_none_and_the_shortfall_is_confirmed(name, meets):
    n = 2 if 2 in counts_of(name) else 1
    search = attack(name, vocab=4, candidates=n, seconds=LONG, most_trials=120)
    assert (search.best, search.witness) == (None, None)
    assert (search.shortfall_witness is None) is meets
    assert 0 < search.compared < search.trials
    if not meets:
        w = search.shortfall_witness
        target, draft = (tuple(map(F, w[key])) for key in ("target", "draft"))
        accepted = sum(marginal(name, target, draft, n).acceptance)
        assert F(w["acceptance"]) == accepted < F(w["limit"])
        assert F(w["limit"]) == limit_of(name, Case(target, draft, n))


def test_block_verification_has_no_witness_and_no_limit():
    search = attack("block", vocab=3, seconds=LONG, most_trials=60)
    assert (search.best, search.shortfall, search.trials, search.compared) == (None, None, 60, False)


def test_the_same_seed_finds_the_same():
    runs = [
        attack("llama-cpp", vocab=4, seconds=LONG, most_trials=150, seed=seed).best.case for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_time_is_a_budget_too():
    assert attack("speculative", seconds=0.2).seconds < 5


def test_shrinking_drops_idle_tokens_and_keeps_the_value():
    target = (F(499, 1000), F(501, 1000), F(0))
    draft = (F(1), F(0), F(0))
    found = Witness(F(1, 2), Case(target, draft, 1))
    small, trials = shrink(lambda case: abs(case.target[1] - case.draft[1]), found)
    assert small.case.target == (F(1, 2), F(1, 2))
    assert small.case.draft == (1, 0)
    assert trials == 1


def test_bad_input():
    for options, message in [
        ({"name": "specinfr"}, "unknown rule 'specinfr'; did you mean 'specinfer'"),
        ({"name": "csd"}, "no transcription of 'csd'"),
        ({"vocab": 9}, "--vocab must be 2 to 8"),
        ({"candidates": 4}, "--candidates must be one of 1, 2, 3 for specinfer, got 4"),
        ({"seconds": 0.0}, "--budget must be a positive number"),
        ({"seconds": float("nan")}, "--budget must be a positive number"),
    ]:
        with pytest.raises(InputError, match=message):
            attack(**{"name": "specinfer", "seconds": 1.0, **options})


def test_command(capsys):
    assert (
        main(["rules", "--attack", "llama-cpp", "--candidates", "1", "--budget", "0.5", "--json", "-"]) == 0
    )
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    (row,) = report["results"]
    assert (report["command"], report["attack"], row["rule"]) == ("rules", "llama-cpp", "llama-cpp")
    assert row["tv_max"] > 0.5
    assert "witness in fractions: target (" in shown.err
    assert main(["rules", "--attack", "sglang", "--budget", "0.6", "--vocab", "4", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "sglang: no witness against exactness among" in shown
    assert "no proof" in shown
    assert "acceptance met the limit on each of " in shown
    assert "sglang (threshold_single = 1/2, threshold_acc = 1/2): inexact" in shown
    assert main(["rules", "--attack", "specinfer", "--budget", "0.6", "--candidates", "2"]) == 0
    assert "falls short of the limit by" in capsys.readouterr().out
    assert main(["rules", "--attack", "medusa", "--budget", "1e-9"]) == 0
    assert (
        capsys.readouterr().out
        == "medusa: nothing tried: the budget ended before the first pair; raise --budget\n"
    )
    for value in ("86401", "inf", "nan", "0", "-1"):
        # sglang has two settings: what is refused is what was given, not each one's half.
        assert main(["rules", "--attack", "sglang", "--budget", value]) == 2
        assert f"at most 86400 seconds (a day), got {value}\n" in capsys.readouterr().err
    assert main(["rules", "--vocab", "4"]) == 2
    assert "--vocab is an option of --attack" in capsys.readouterr().err
