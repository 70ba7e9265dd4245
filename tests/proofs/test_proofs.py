"""Every statement reaches its status, every mutated twin fails, and the ledger says what is so."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from resispec_verify import proofs
from resispec_verify.cli import main
from resispec_verify.errors import InputError
from resispec_verify.oracle import longest_by_node, normalise
from resispec_verify.oracle.distinct import most_at_prices
from resispec_verify.proofs import TITLES, ProofReport

pytest.importorskip("sympy", reason="the proofs need SymPy, from the extra 'proofs'")

ROOT = Path(__file__).parents[2]
STATUS = {
    "eq-13": "refuted", "theorem-1": "refuted", "theorem-2": "refuted", "tree-rules": "refuted",
    "eq-13-repaired": "repaired", "theorem-1-repaired": "repaired", "theorem-2-repaired": "repaired",
}  # fmt: skip


@pytest.fixture(scope="module")
def maker():
    """The script that writes docs/explanation/theory.md."""
    spec = importlib.util.spec_from_file_location("make_theory", ROOT / "docs" / "make_theory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failures(report):
    return [name for name, passed in report.checks if not passed]


@pytest.mark.parametrize("name", TITLES)
def test_a_statement_reaches_its_status_and_its_place_on_the_page(name, maker):
    line = proofs.prove(name)
    report = line.report
    assert failures(report) == []
    assert report.status == STATUS.get(name, "proved")
    assert report.left
    assert (ROOT / line.file).is_file()
    for entry in report.coq:
        file, theorem = entry.split(": ")
        text = (ROOT / "proofs" / "coq" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(Theorem|Corollary) {theorem}\b", text, re.MULTILINE), entry
    page = maker.comparable(maker.PAGE.read_text(encoding="utf-8"))
    for part in (maker.row(line), maker.section(line)):
        assert maker.comparable(part) + "\n" in page, "run python docs/make_theory.py"


def test_the_page_has_nothing_else(maker):
    text = maker.PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\|.*\| \d+\.\d \|$", line)]
    assert [row.split("`")[1] for row in rows] == list(TITLES)
    assert re.findall(r"^### (.*)", text, re.MULTILINE) == list(TITLES.values())
    assert f"\n{len(TITLES)} statements, " in text
    lines = [fake(name) for name in TITLES]
    assert maker.page(maker.page(text, lines), lines) == maker.page(text, lines) != text


def fake(name, passed=True):
    """A line of the ledger that took no time to prove."""
    report = ProofReport(
        "claim", STATUS.get(name, "proved"), ("rational",), (("a check", passed),), ("words",), "nothing"
    )
    return proofs.Proved(name, report, 0.5)


def test_every_file_is_in_the_ledger():
    folder = ROOT / "resispec_verify" / "proofs"
    assert {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")} == set(TITLES)


def positive(value):
    """``(a)_+`` on numbers and on symbols."""
    from resispec_verify.proofs._symbols import positive_part

    return positive_part(value)


def larger(a, b):
    from resispec_verify.proofs._symbols import greatest

    return greatest(a, b)


def standard_residual(target, draft, rejected):
    return normalise([max(R - q, 0) for R, q in zip(target, draft, strict=True)], fallback=target)


def upper_hull(ends, first):
    slopes = {
        i: (ends[i][1] - ends[first][1]) / (ends[i][0] - ends[first][0]) for i in range(first + 1, len(ends))
    }
    steepest = max(slopes.values())
    return max(i for i, slope in slopes.items() if slope == steepest), steepest


def slope_to(ends, first, last):
    return last, (ends[last][1] - ends[first][1]) / (ends[last][0] - ends[first][0])


def one_token(ends, first):
    return slope_to(ends, first, first + 1)


def one_segment(ends, first):
    return slope_to(ends, first, len(ends) - 1)


def supported(p, q):
    return all(a > 0 or b == 0 for a, b in zip(p, q, strict=True))


def one_look(p, q, n):
    return (Fraction(1), *[Fraction(0)] * n)


# Statement, what is changed in its proof, and the beginnings of checks that must then fail.
TWINS = [
    ("eq-1-2", "sign", {"residual": lambda p, q: positive(q - p)}, ["min(p, q) + ", "the enumerated law"]),
    ("eq-1-2", "no-subtraction", {"residual": lambda p, q: p}, ["(q - min(p, q))", "the enumerated law"]),
    ("proposition-1", "sign", {"proxy": lambda p, r, s: p - r - s},
     ["k - p = s - r", "sum k - 1", "GetProxy"]),
    ("proposition-1", "no-reserve", {"proxy": lambda p, r, s: p + s},
     ["k - p = s - r", "sum k - 1", "GetProxy"]),
    ("lemma-1", "signed", {"distance": lambda a: a}, ["at a token", "J = 0 implies"]),
    ("lemma-1", "offset", {"distance": lambda a: 1 + a * a}, ["at a token", "r = Z q implies"]),
    ("proposition-2", "overlapping-supports", {"disjoint": False},
     ["a proxy exists only", "it exists exactly"]),
    ("degeneracy", "overlapping-supports", {"disjoint": False}, ["(2)", "(3)"]),
    ("degeneracy", "any-token", {"over": False}, ["(3)"]),
    ("eq-12", "negative-slack", {"others": lambda mass: -mass}, ["Z - |q(x0) - p(x0)|"]),
    ("eq-13", "capped", {"budget": lambda ratio, gap, room: min(max(ratio, gap), room)},
     ["an infeasible pair"]),
    ("eq-13", "gap", {"budget": lambda ratio, gap, room: gap}, ["an infeasible pair", "a feasible pair"]),
    ("eq-13-repaired", "as-printed", {"budget": lambda ratio, gap, room: max(ratio, gap)}, ["gap <= Z"]),
    ("eq-13-repaired", "no-gap", {"budget": lambda ratio, gap, room: min(ratio, room)},
     ["gap <= Z", "sum k = 1"]),
    ("theorem-1", "exact-rule", {"variants": {"exact": standard_residual}},
     ["V = 3 has a counterexample", "residuals are > 0", "not p in all"]),
    ("theorem-1-repaired", "not-below-the-draft", {"below": False},
     ["0 <= min(p, k) <= q", "it is token-free"]),
    ("theorem-1-repaired", "eq-14", {"accepted": lambda p, q, k: q * min_ratio(p, k)},
     ["accepted and left", "the enumerated law"]),
    ("theorem-2", "with-support", {"allowed": supported},
     ["a pair exists: smallest"]),
    ("theorem-2", "strict-curve", {"curve": lambda p, q, Z: Z},
     ["a pair exists: smallest", "p = (1, 1, 0)/2"]),
    ("theorem-2-repaired", "no-support", {"support": False}, ["strictly increasing"]),
    ("theorem-2-repaired", "sign", {"loss": lambda Zq, p: positive(p - Zq)},
     ["(Z q - r)_+", "the r above", "a term does not fall", "L(Z) = 0", "the oracle's linear program"]),
    ("path-identity", "wrong-normaliser", {"residual": lambda R, m, beta: (R - m) / (1 + beta**2)},
     ["induction step", "equal to p in Fractions"]),
    ("path-identity", "not-normalised", {"residual": lambda R, m, beta: R - m},
     ["induction step", "equal to p in Fractions"]),
    ("path-identity", "residual-is-the-target", {"residual": lambda R, m, beta: R},
     ["induction step", "equal to p in Fractions"]),
    ("path-identity", "residual-is-the-overlap", {"residual": lambda R, m, beta: m / beta if beta else R},
     ["induction step", "equal to p in Fractions"]),
    ("exact-rounds", "sign", {"combine": lambda moved, missing: moved + missing},
     ["q a = p", "emitted - p", "the enumerated law is the formula"]),
    ("exact-rounds", "one-side", {"combine": lambda moved, missing: moved},
     ["q a = p", "emitted - p", "the enumerated law is the formula"]),
    ("token-free", "less-than-the-least", {"lowest": lambda R, q: 0 * R},
     ["0 <= R - r <= q", "the enumerated law"]),
    ("token-free", "by-rejected-token", {"common": False}, ["the enumerated law"]),
    ("optimal-sequential", "maximum", {"covered": larger},
     ["min(p, t q) = t q", "(p - T_1 q)_+", "0 <= r_{k-1}"]),
    ("optimal-sequential", "first-candidate-only", {"times": one_look},
     ["the levels solve", "worked pair", "linear programs"]),
    ("transport-limit", "unsorted", {"key": lambda p, q, x: x}, ["the best prefix"]),
    ("transport-limit", "by-draft", {"key": lambda p, q, x: -q[x]}, ["the best prefix"]),
    ("transport-limit", "slope", {"power": lambda n: n + 1}, ["D_{n+1}", "D_1"]),
    ("specinfer-bound", "smaller", {"bound": lambda a, u, n: 1 + u - u**n - (1 - a) / u**n},
     ["the limit is at most the bound", "equality at"]),
    ("specinfer-bound", "larger", {"bound": lambda a, u, n: 1 + u - (1 - a) / u ** (n - 1)}, ["equality at"]),
    ("specinfer-bound", "first-candidate-repeated", {"grows": lambda covered: 1},
     ["1 - l(t", "the enumerated acceptance"]),
    ("specinfer-bound", "ratio", {"ratio": lambda n: (n - 1) / n},
     ["u^n - u^(2n-1) is stationary", "there the bound is 1"]),
    ("layout", "upper-hull", {"step": upper_hull}, ["sum min(p, m) is the limit", "m(A) <= "]),
    ("layout", "no-envelope", {"step": one_token}, ["sum min(p, m) is the limit"]),
    ("layout", "one-segment", {"step": one_segment},
     ["sum min(p, m) is the limit", "m(A) <= ", "n = 2: the layout exists"]),
    ("longest-step", "least-first", {"rank": lambda v: sorted(range(len(v)), key=lambda x: v[x])},
     ["sum v m is sum"]),
    ("longest-step", "wrong-prefixes",
     {"prefixes": lambda p, q, tokens: sorted(tokens, key=lambda x: p[x] - q[x])},
     ["the least over prefixes", "m >= 0"]),
    ("two-distinct", "with-replacement", {"offered": lambda q, B, v: q * B},
     ["A + q (B - v)", "the second candidate"]),
    ("two-distinct", "greedy", {"first": lambda p, q: tuple(map(min, p, q))},
     ["sum s_B = B", "no A accepts more"]),
    ("three-distinct", "number-alone", {"known": len}, ["both rules by sets emit p"]),
    ("three-distinct", "rules-of-sets", {"places": most_at_prices}, ["prices prove 27/28"]),
    ("longest-tree", "single-texts", {"sets": lambda texts: [frozenset([s]) for s in texts]},
     ["both programs", "sum min(P, pi) is attained"]),
    ("longest-tree", "token-by-token", {"most": lambda drawn, chance, above: min(drawn, chance)},
     ["one path"]),
    ("tree-rules", "node-by-node", {"best": longest_by_node},
     ["traversal, 2 siblings, 1 child", "univer, 2 paths", "on one path"]),
]  # fmt: skip


def min_ratio(p, k):
    """``min(1, p/k)``, Eq. 14."""
    from resispec_verify.proofs._symbols import least

    return 1 if k == 0 else least(p, k) / k


@pytest.mark.parametrize(
    ("name", "changed", "missed"), [pytest.param(n, c, m, id=f"{n}-{i}") for n, i, c, m in TWINS]
)
def test_a_mutated_twin_fails(name, changed, missed):
    module = importlib.import_module(f"resispec_verify.proofs.{name.replace('-', '_')}")
    report = module.prove(**changed)
    assert report.status == "failed"
    failed = failures(report)
    assert [start for start in missed if not any(check.startswith(start) for check in failed)] == []


def test_every_statement_has_a_twin():
    assert {name for name, *_ in TWINS} == set(TITLES)


def test_a_report_without_checks_is_not_a_proof():
    assert ProofReport("statement", "proved", ("rational",), ()).status == "failed"


def test_a_certificate_must_be_there():
    from resispec_verify.proofs._symbols import is_nonnegative, is_positive, least, orders, symbols

    a, b = symbols("a b")
    assert is_nonnegative(a * b / (1 + a))
    assert not is_nonnegative(a - b)
    assert not is_nonnegative(-a)
    assert not is_positive(a, b)
    with pytest.raises(ValueError, match="does not decide"):
        least(a, b)
    assert len(list(orders(3))) == 6


def test_theorem_1_lists_the_smallest_counterexamples():
    lines = proofs.prove("theorem-1").report.lines
    reading = " (proportional, local budget, hole excluded)"
    assert [line.removesuffix(reading) for line in lines if line.endswith(reading)] == [
        "p = (0, 1/2, 1/2), q = (1/2, 0, 1/2): emits (0, 1/6, 5/6)",
        "p = (1/4, 1/4, 1/2), q = (1/4, 1/2, 1/4): emits (7/20, 1/4, 2/5)",
    ]


def test_theorem_2_and_eq_13_print_their_counterexamples():
    text = "\n".join(line for name in ("theorem-2", "eq-13") for line in proofs.prove(name).report.lines)
    assert "smallest: p = (0, 1), q = (1, 0)" in text
    assert "smallest infeasible pair: p = (1/3, 2/3), q = (0, 1), x0 = 1: Z = 2/3, room 1/3" in text


@pytest.mark.parametrize(
    ("words", "name"), [("theorem-1", "theorem-1"), ("Theorem 1", "theorem-1"), ("Eq. 12", "eq-12")]
)
def test_a_statement_is_found_by_its_words(words, name):
    assert proofs.find(words) == name


def test_an_unknown_statement_is_one_line_with_the_nearest_name(capsys):
    assert main(["prove", "theorm-2"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "resispec-verify: error: unknown statement 'theorm-2'; did you mean 'theorem-2'?\n"
    assert shown.out == ""


def test_the_command_prints_one_proof(capsys):
    assert main(["prove", "eq-13"]) == 0
    shown = capsys.readouterr().out
    assert "refuted" in shown
    assert "[ok] an infeasible pair exists" in shown
    assert "smallest infeasible pair" in shown


def test_the_command_prints_the_ledger(monkeypatch, capsys):
    monkeypatch.setattr(proofs, "prove", fake)
    assert main(["prove", "--json", "-"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert (report["schema"], report["command"]) == (1, "prove")
    assert [row["statement"] for row in report["results"]] == list(TITLES)
    for row in report["results"]:
        assert row["status"] == STATUS.get(row["statement"], "proved")
        assert (row["method"], row["seconds"], row["coq"]) == ("rational", 0.5, [])
        assert row["statement"] in shown.err


def test_a_failed_proof_is_status_1(monkeypatch, capsys):
    monkeypatch.setattr(proofs, "prove", lambda name: fake(name, passed=name != "eq-12"))
    assert main(["prove"]) == 1
    assert "FAILED: eq-12" in capsys.readouterr().out
    assert main(["prove", "eq-12"]) == 1
    assert "[FAILED] a check" in capsys.readouterr().out


def test_without_sympy_there_is_one_line_with_the_remedy(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sympy", None)
    assert main(["prove", "eq-12"]) == 2
    assert "pip install 'resispec-verify[proofs]'" in capsys.readouterr().err
    with pytest.raises(InputError):
        proofs.prove("lemma-1")
    assert main(["prove", "eq-13"]) == 0  # in fractions alone
