"""Rules by name and from a user's own file: what runs, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import assert_one_line, row

from resispec_verify.rules import RULES

PAIR = ("--target", "0.5,0.3,0.2", "--draft", "0.2,0.3,0.5")
EXAMPLE_RULE = Path(__file__).parents[2] / "examples" / "my_rule.py"

HEADER = """
from dataclasses import dataclass, replace
import numpy as np
from resispec_verify import Rule, State
from resispec_verify.kernels.residuals import standard_residual

class Mine(Rule):
    name, claims_exact, source, depends_on = "mine", True, "a test", "nothing"

    def reject(self, state, tokens):
        residual = standard_residual(state.residual, state.draft)
        return replace(state, residual=residual, round=state.round + 1)
"""

# Code after the header, the rule, and words of the one line that refuses it.
REFUSED = {
    "no such name": ("", "Other", ["no 'Other'", "rules in it: Mine"]),
    "not a rule": ("class Bad: pass", "Bad", ["subclass resispec_verify.Rule"]),
    "a number": ("Bad = 3", "Bad", ["subclass resispec_verify.Rule"]),
    "no reject": (
        "class Bad(Rule):\n    name, claims_exact, source, depends_on = 'b', True, 's', 'token'",
        "Bad",
        ["the method reject(state, tokens) is missing"],
    ),
    "no name": (
        "class Bad(Rule):\n    claims_exact, source, depends_on = True, 's', 'token'\n"
        "    def reject(self, state, tokens): return state",
        "Bad",
        ["the attribute name is missing"],
    ),
    "wrong depends_on": (
        "class Bad(Mine):\n    depends_on = 'all'",
        "Bad",
        ["depends_on must be nothing or"],
    ),
    "needs arguments": (
        "class Bad(Mine):\n    def __init__(self, x): pass",
        "Bad",
        ["Bad() failed: TypeError"],
    ),
    "a name that is taken": ("class Bad(Mine):\n    name = 'specinfer'", "Bad", ["'specinfer' is taken"]),
    "wrong shape of accept": (
        "class Bad(Mine):\n    def accept(self, state): return super().accept(state)[..., :2]",
        "Bad",
        ["accept(state) must have shape (3,), got (2,)"],
    ),
    "accept is a list": (
        "class Bad(Mine):\n    def accept(self, state): return [1, 1, 1]",
        "Bad",
        ["accept(state) must be an array of shape (3,), got list"],
    ),
    "reject without the axis of tokens": (
        "class Bad(Mine):\n    depends_on = 'token'",
        "Bad",
        ["reject(state, tokens): residual must have shape (2, 3), got (3,)"],
    ),
    "round is not counted": (
        "class Bad(Mine):\n    def reject(self, state, tokens): return state",
        "Bad",
        ["round must be 1, got 0"],
    ),
    "reject returns None": (
        "class Bad(Mine):\n    def reject(self, state, tokens): pass",
        "Bad",
        ["must return a State, got NoneType"],
    ),
    "NaN": (
        "class Bad(Mine):\n    def accept(self, state): return state.residual * np.nan",
        "Bad",
        ["accept(state) must lie in [0, 1], got nan"],
    ),
    "negative": (
        "class Bad(Mine):\n    def accept(self, state): return state.residual - 0.25",
        "Bad",
        ["accept(state) must lie in [0, 1], got -0.05"],
    ),
    "above 1": (
        "class Bad(Mine):\n    def accept(self, state): return 4 * state.residual",
        "Bad",
        ["accept(state) must lie in [0, 1], got 2"],
    ),
    "not a distribution": (
        "class Bad(Mine):\n    def final(self, state): return 0.5 * state.residual",
        "Bad",
        ["final(state) must be a distribution, but sums to 0.5"],
    ),
    "a negative law": (
        "class Bad(Mine):\n    def final(self, state): return 0 * state.residual + [1.5, -0.5, 0]",
        "Bad",
        ["final(state) must be a distribution, got an entry of -0.5"],
    ),
    "a proposal without its limit": (
        "class Own:\n    name, next = 'own', None\nclass Bad(Mine):\n    proposal = Own()",
        "Bad",
        ["proposal must have a method next(draft, drawn)"],
    ),
    "a proposal that is none": (
        "class Own:\n    name = 'own'\n    def limit(self, p, q, n): pass\n"
        "    def next(self, q, drawn): return 3 * q\nclass Bad(Mine):\n    proposal = Own()",
        "Bad",
        ["proposal.next(draft, drawn) must hold probabilities"],
    ),
    "it raises": (
        "class Bad(Mine):\n    def accept(self, state): return state.residual[9]",
        "Bad",
        ["accept raised IndexError"],
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_rule_that_cannot_be_used_is_refused_in_one_line(case, cli, tmp_path):
    code, name, words = REFUSED[case]
    path = tmp_path / "own.py"
    path.write_text(f"{HEADER}\n{code}\n")
    result = cli("kl", *PAIR, "--rule", f"{path}:{name}")
    assert result.status == 2
    assert_one_line(result.err, f"{path}:{name}", *words)
    assert result.out == ""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f(:", ["line 1", "SyntaxError"]),
        ("x = 1\nimport no_such_module_anywhere", ["line 2", "ModuleNotFoundError"]),
        ("raise SystemExit(3)", ["line 1", "SystemExit"]),
    ],
)
def test_a_file_that_does_not_run(code, words, cli, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(code)
    result = cli("kl", *PAIR, "--rule", f"{path}:Bad")
    assert result.status == 2
    assert_one_line(result.err, *words)


def test_a_fault_that_shows_only_on_the_data(cli, tmp_path, dump):
    # The toy pair has three tokens; this rule goes wrong with more.
    path = tmp_path / "own.py"
    path.write_text(f"{HEADER}\nclass Bad(Mine):\n    def final(self, s): return s.residual[..., :3] / 2 "
                    "if s.residual.shape[-1] == 6 else s.residual\n")  # fmt: skip
    result = cli("kl", "--logits", dump, "--rule", f"{path}:Bad")
    assert result.status == 2
    assert_one_line(result.err, "final(state) must have shape (5, 6), got (5, 3)")


def test_no_file_and_no_name(cli, tmp_path):
    assert_one_line(
        cli("kl", *PAIR, "--rule", f"{tmp_path}/none.py:Mine").err, "cannot be read", "No such file"
    )
    assert_one_line(cli("kl", *PAIR, "--rule", "own.py").err, "own.py:Name")


def test_the_example_of_the_documentation(cli):
    result = cli("kl", *PAIR, "--rule", f"{EXAMPLE_RULE}:EarlyStop", "--rule", "specinfer", "--json", "-")
    assert result.status == 0
    own, theirs = row(result.json, "early-stop"), row(result.json, "specinfer")
    assert own["verdict"] == "exact"
    assert own["acceptance"][:2] == theirs["acceptance"][:2]
    assert own["acceptance"][2] == 0.0
    code = EXAMPLE_RULE.read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 30
    page = EXAMPLE_RULE.parents[1] / "docs" / "adding-a-rule.md"
    assert code.split('"""', 2)[2].strip() in page.read_text(encoding="utf-8")


def test_a_rule_of_ours_with_the_users_parameters(cli, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from resispec_verify.rules import CSD\nmine = CSD(ratio=0.4, memory=[(2, 0), (17, 3)])\n"
    )
    result = cli("kl", *PAIR, "--rule", f"{path}:mine", "--json", "-")
    # By hand: the residual is one-hot at 0, and token 2, rejected with .3, passes the gate (.2 >= .4 of .5).
    found = row(result.json, "csd")
    assert found["acceptance"] == [1.0]
    assert abs(found["tv_mean"] - 0.3) < 1e-12
    assert found["verdict"] == "inexact"


@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_runs_by_name(name, cli):
    result = cli("kl", *PAIR, "--rule", name, "--candidates", 2, "--marginal", "operational", "--json", "-")
    assert result.status == 0, result.err
    assert row(result.json, name)["verdict"] in ("exact", "inexact")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rule", "block"), ["verifies paths", "needs a rounds dump"]),
        (("--rule", "medusa"), ["verifies paths", "needs a rounds dump"]),
        (("--rule", "csd"), ["'csd' needs ratio, memory"]),
        (("--rule", "easd"), ["'easd' needs target_entropy, draft_entropy, top_n, overlap, rejects"]),
        (("--rule", "spechub"), ["exactly 2 candidates", "--candidates 3"]),
        (("--rule", "spechub", "--candidates", 1), ["exactly 2 candidates", "--candidates 1"]),
        (("--rule", "sequoia", "--candidates", 4), ["4 different candidates", "3 tokens"]),
        (("--rule", "eagle", "--candidates", 4), ["4 different candidates", "3 tokens"]),
    ],
)
def test_what_a_rule_cannot_do_is_refused(arguments, words, cli):
    result = cli("kl", *PAIR, *arguments)
    assert result.status == 2
    assert_one_line(result.err, *words)


def test_a_rule_that_exits_is_no_success(cli, tmp_path):
    """SystemExit(0) inside a rule would end the run with the status of one whose demands are met."""
    path = tmp_path / "exits.py"
    path.write_text(
        "from resispec_verify.rules import SpecInfer\n"
        "class Exits(SpecInfer):\n"
        "    name = 'exits'\n"
        "    def accept(self, state):\n"
        "        raise SystemExit(0)\n"
    )
    done = cli(
        "kl", "--target", "0.5,0.5", "--draft", "0.5,0.5", "--rule", f"{path}:Exits", "--require-exact"
    )
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "SystemExit" in done.err
