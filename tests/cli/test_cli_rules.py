"""Rules by name and from a user's own file: what runs, and what is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_helpers import assert_one_line, command, row

from resispec_verify.rules import RULES

PAIR = ("--target", "0.5,0.3,0.2", "--draft", "0.2,0.3,0.5")
EXAMPLE_RULE = Path(__file__).parents[2] / "examples" / "my_rule.py"

HEADER = """
from dataclasses import dataclass, replace
import numpy as np
from resispec_verify import Rule, State
from resispec_verify.kernels.elementwise.residuals import standard_residual

class Mine(Rule):
    name, claims_exact, source, depends_on = "mine", True, "a test", "nothing"

    def reject(self, state, tokens):
        residual = standard_residual(state.residual, state.draft)
        return replace(state, residual=residual, round=state.round + 1)
"""

# Code after the header, the rule, and words of the one line that refuses it.
REFUSED = {
    "no such name": ("", "Other", ["no 'Other'", "there are: Mine"]),
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
        ["Bad() raised TypeError"],
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
    "complex numbers": (
        "class Bad(Mine):\n    def accept(self, state): return state.residual + 0j",
        "Bad",
        ["accept(state) must be float64 like its input, got complex128", "astype(float64)"],
    ),
    "objects": (
        "class Bad(Mine):\n    def final(self, state): return state.residual.astype(object)",
        "Bad",
        ["final(state) must be float64 like its input, got object"],
    ),
    "whole numbers": (
        "class Bad(Mine):\n    def accept(self, state): return (state.residual > 0).astype(int)",
        "Bad",
        ["accept(state) must be float64 like its input, got int64"],
    ),
    "half precision": (  # the rounding bounds are those of the working precision
        "class Bad(Mine):\n    def reject(self, state, tokens):\n"
        "        after = super().reject(state, tokens)\n"
        "        return replace(after, residual=after.residual.astype('float16'))",
        "Bad",
        ["reject(state, tokens): residual must be float64 like its input, got float16"],
    ),
    "a masked array": (
        "class Bad(Mine):\n    def accept(self, state): return np.ma.masked_invalid(state.residual)",
        "Bad",
        ["accept(state) must be an array of shape (3,), got MaskedArray"],
    ),
    "a generator": (
        "class Bad(Mine):\n    def accept(self, state):\n        while True: yield 1.0",
        "Bad",
        ["accept(state) must be an array of shape (3,), got generator"],
    ),
    "a residual of NaN": (
        "class Bad(Mine):\n    def reject(self, state, tokens):\n"
        "        return replace(super().reject(state, tokens), residual=np.nan * state.residual)",
        "Bad",
        ["reject(state, tokens): residual must be finite, got NaN", "normalize"],
    ),
    "a draft of infinity": (
        "class Bad(Mine):\n    def reject(self, state, tokens):\n"
        "        return replace(super().reject(state, tokens), draft=np.inf + state.draft)",
        "Bad",
        ["reject(state, tokens): draft must be finite"],
    ),
    "a round of another kind": (
        "class Bad(Mine):\n    def reject(self, state, tokens):\n"
        "        return replace(super().reject(state, tokens), round=np.ones(3))",
        "Bad",
        ["round must be 1, got array([1., 1., 1.])"],
    ),
    "extra is no mapping": (
        "class Bad(Mine):\n    def start(self, p, q, n): return State(p, q, extra=[1])",
        "Bad",
        ["start(target, draft, candidates): extra must be a mapping of names to arrays, got list"],
    ),
    "a name that is a number": (
        "class Bad(Mine):\n    name = 3",
        "Bad",
        ["name must be a text of one line, got 3"],
    ),
    "a name of two lines": (
        "class Bad(Mine):\n    name = 'a\\nb'",
        "Bad",
        ["name must be a text of one line, got 'a\\nb'"],
    ),
    "a name that is set later": (
        "class Bad(Mine):\n    def __init__(self): self.name = None",
        "Bad",
        ["name must be a text of one line, got None"],
    ),
    "an attribute that raises": (
        "class Bad(Mine):\n    @property\n    def source(self): raise KeyError('no source')",
        "Bad",
        ["raised KeyError: 'no source'"],
    ),
    "a claim that is a text": (
        "class Bad(Mine):\n    claims_exact = 'yes'",
        "Bad",
        ["claims_exact must be True or False, got 'yes'"],
    ),
    "depends_on an array": (
        "class Bad(Mine):\n    depends_on = np.ones(2)",
        "Bad",
        ["depends_on must be nothing or token, got array"],
    ),
    "most candidates a fraction": (
        "class Bad(Mine):\n    most_candidates = 2.5",
        "Bad",
        ["most_candidates must be None or a whole number of at least 1, got 2.5"],
    ),
    "most candidates below the least": (
        "class Bad(Mine):\n    least_candidates, most_candidates = 3, 2",
        "Bad",
        ["most_candidates must be None or a whole number of at least 3, got 2"],
    ),
    "least candidates a text": (
        "class Bad(Mine):\n    least_candidates = '1'",
        "Bad",
        ["least_candidates must be a whole number of at least 0, got '1'"],
    ),
    "a rule over paths": (
        "from resispec_verify.rules import Medusa\nBad = Medusa()",
        "Bad",
        ["rules that verify whole paths"],
    ),
    "something of ours that is no rule": (
        "from resispec_verify.rules import Iid\nBad = Iid()",
        "Bad",
        ["is not a rule"],
    ),
    "a class that makes something else": (
        "class Bad(Mine):\n    def __new__(cls): return 3",
        "Bad",
        ["Bad() must return a Bad, got int"],
    ),
    "it exits when it is made": (
        "import sys\nclass Bad(Mine):\n    def __init__(self): sys.exit(0)",
        "Bad",
        ["Bad() raised SystemExit: 0"],
    ),
    "an error that cannot be printed": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\n"
        "class Bad(Mine):\n    def accept(self, state): raise Odd",
        "Bad",
        ["accept raised Odd"],
    ),
    "an error of a thousand words": (
        "class Bad(Mine):\n    def accept(self, state): raise ValueError('word ' * 1000)",
        "Bad",
        ["accept raised ValueError: word word", "..."],
    ),
    "not an Exception": (
        "class Bad(Mine):\n    def accept(self, state): raise BaseException('hm')",
        "Bad",
        ["accept raised BaseException: hm"],
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


PROPOSAL = """
class Own:
    name = "own"

    def limit(self, target, draft, candidates):
        {limit}

    def next(self, draft, drawn):
        {next}

class Bad(Mine):
    proposal = Own()
"""

# What is wrong with `next` and `limit` of a proposal, and words of the line that refuses it.
BAD_PROPOSALS = {
    "next: shape": ("return draft[:2]", "return None", "next(draft, drawn) must have shape (3,), got (2,)"),
    "next: a list": ("return [1, 0, 0]", "return None", "must be an array of shape (3,), got list"),
    "next: dtype": ("return draft > 0", "return None", "must be float64 like its input, got bool"),
    "next: NaN": ("return np.nan * draft", "return None", "sum to at most 1, got an entry of nan"),
    "next: negative": ("return draft - 0.25", "return None", "sum to at most 1, got an entry of -0.05"),
    "next: above 1": ("return 1.5 * draft", "return None", "sum to at most 1, but sums to 1.5"),
    "next: only later": (
        "return draft * (1 + len(drawn))", "return None", "sum to at most 1, but sums to 2"),
    "next: raises": ("return 1 / 0", "return None", "proposal.next raised ZeroDivisionError"),
    "limit: a number": ("return draft", "return 0.5", "must be an array of shape (2,), got float"),
    "limit: shape": ("return draft", "return target", "must have shape (2,), got (2, 3)"),
    "limit: NaN": ("return draft", "return target[..., 0] * np.nan", "must lie in [0, 1], got nan"),
    "limit: above 1": ("return draft", "return target.sum(axis=-1) + 1", "must lie in [0, 1], got 2"),
    "limit: below 0": ("return draft", "return target[..., 0] - 1", "must lie in [0, 1], got -0.8"),
    "limit: raises": ("return draft", "return self.bound", "proposal.limit raised AttributeError"),
}  # fmt: skip


@pytest.mark.parametrize("verb", ["kl", "limits"])
@pytest.mark.parametrize("case", BAD_PROPOSALS)
def test_a_proposal_is_checked_before_the_run(case, verb, cli, tmp_path):
    following, limit, words = BAD_PROPOSALS[case]
    path = tmp_path / "own.py"
    path.write_text(HEADER + PROPOSAL.format(next=following, limit=limit))
    result = cli(verb, "--logits", tmp_path / "not read.pt", "--rule", f"{path}:Bad")
    assert result.status == 2
    assert_one_line(result.err, f"{path}:Bad", "proposal", words)


@pytest.mark.parametrize(
    ("following", "limit", "words"),
    [
        ("return draft * (1 + (len(draft) == 6))", "return None", "but sums to 2"),
        ("return draft", "return target[..., 0] * (np.nan if target.shape[-1] == 6 else 1)", "got nan"),
    ],
)
def test_a_proposal_is_checked_in_the_run(following, limit, words, cli, tmp_path, dump):
    path = tmp_path / "own.py"
    path.write_text(HEADER + PROPOSAL.format(next=following, limit=limit))
    result = cli("limits", "--logits", dump, "--rule", f"{path}:Bad")
    assert result.status == 2
    assert_one_line(result.err, f"{path}:Bad", "proposal", words)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("proposal = Own", "proposal must be a value, not a class: say Own()"),
        ("proposal = Own(); proposal.name = None", "proposal must have a name"),
        ("proposal = Own(); proposal.distinct = 1", "proposal.distinct must be True or False, got 1"),
        ("proposal = None", "proposal must have a method next(draft, drawn), got None"),
    ],
)
def test_what_a_proposal_is(attributes, words, cli, tmp_path):
    path = tmp_path / "own.py"
    code = PROPOSAL.format(next="return draft", limit="return None").replace("proposal = Own()", attributes)
    path.write_text(HEADER + code)
    assert_one_line(cli("kl", *PAIR, "--rule", f"{path}:Bad").err, f"{path}:Bad", words)


def test_a_proposal_that_derives_from_ours_is_used(cli, tmp_path):
    """One that draws token 0 alone, declared as a kind of `Iid`: its own law counts, not the draft."""
    path = tmp_path / "own.py"
    path.write_text(
        f"{HEADER}\nfrom resispec_verify.rules import Iid\n"
        "class First(Iid):\n    def next(self, draft, drawn): return np.eye(len(draft))[0]\n"
        "class Own(Mine):\n    proposal = First()\n"
    )
    result = cli("kl", *PAIR, "--candidates", 1, "--rule", f"{path}:Own", "--json", "-")
    # Token 0 has p = .5 above q = .2: always accepted.
    assert row(result.json, "mine")["acceptance"] == [1.0]
    assert row(result.json, "mine")["tv_mean"] == 0.5


def test_a_proposal_of_ones_own_may_say_that_candidates_differ(cli, tmp_path):
    path = tmp_path / "own.py"
    code = PROPOSAL.format(next="return draft", limit="return None").replace(
        'name = "own"', 'name, distinct = "own", True'
    )
    path.write_text(HEADER + code)
    result = cli("limits", "--target", "1,0,0", "--draft", "0.5,0.5,0", "--rule", f"{path}:Bad")
    assert_one_line(result.err, "rule 'mine' draws 3 different candidates, but only 2 tokens")


@pytest.mark.parametrize("verb", ["kl", "limits"])
def test_what_a_rule_prints_stays_out_of_the_report(verb, tmp_path, dump):
    """Printed when the file is run, when the rule is made, and in every method, on several threads."""
    path = tmp_path / "loud.py"
    path.write_text(
        f"print('loading')\n{HEADER}\n"
        "import sys\n"
        "class Loud(Mine):\n"
        "    depends_on = 'token'\n"
        "    def __init__(self): print('making')\n"
        "    def accept(self, state):\n"
        "        sys.stdout.write('accepting\\n')\n"
        "        return super().accept(state)\n"
        "    def reject(self, state, tokens):\n"
        "        print('rejecting')\n"
        "        residual = standard_residual(state.residual, state.draft)[..., None, :]\n"
        "        shape = (len(tokens), residual.shape[-1])\n"
        "        rows = [np.broadcast_to(v, shape) for v in (residual, state.draft)]\n"
        "        return State(*rows, state.round + 1)\n"
    )
    result = command(verb, "--logits", dump, "--rule", f"{path}:Loud", "--json", "-")
    assert result.status == 0, result.err
    assert result.json["results"][0]["rule"] == "mine"
    assert {"loading", "making", "accepting", "rejecting"} <= set(result.err.splitlines())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise BaseException('hm')", ["line 1", "BaseException: hm"]),
        ("x = 1\0", ["null bytes"]),
        ("x = 1\nassert False, 'word ' * 1000", ["line 2", "AssertionError: word", "..."]),
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
    result = cli("kl", "--logits", dump, "--rule", f"{path}:Bad", "--jobs", 1)
    assert result.status == 2
    assert_one_line(result.err, "final(state) must have shape (5, 6), got (5, 3)")


def test_too_few_candidates_for_a_rule_are_refused_before_it_runs(cli, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(f"{HEADER}\nclass Own(Mine):\n    least_candidates = 4\n    start = None\n")
    line = cli("kl", *PAIR, "--rule", f"{path}:Own").err
    assert_one_line(
        line, "rule 'mine' verifies at least 4 candidates, got --candidates 3; say --candidates 4"
    )


def test_a_pipe_is_not_waited_for(cli, tmp_path):
    os.mkfifo(tmp_path / "own.py")
    assert_one_line(cli("kl", *PAIR, "--rule", f"{tmp_path}/own.py:Mine").err, "not a regular file")


def test_acceptance_above_1_by_rounding_is_1(cli, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        f"{HEADER}\nclass Own(Mine):\n"
        "    def accept(self, state): return super().accept(state) * (1 + 1e-7)\n"
    )
    result = cli("kl", "--target", "0.5,0.5", "--draft", "0.5,0.5", "--rule", f"{path}:Own", "--json", "-")
    assert row(result.json, "mine")["acceptance"] == [1.0, 0.0, 0.0]
    assert row(result.json, "mine")["verdict"] == "exact"


def test_no_file_and_no_name(cli, tmp_path):
    assert_one_line(
        cli("kl", *PAIR, "--rule", f"{tmp_path}/none.py:Mine").err, "cannot be read", "No such file"
    )
    assert_one_line(cli("kl", *PAIR, "--rule", "own.py").err, "own.py:NAME")


def test_the_example_of_the_documentation(cli):
    result = cli("kl", *PAIR, "--rule", f"{EXAMPLE_RULE}:EarlyStop", "--rule", "specinfer", "--json", "-")
    assert result.status == 0
    own, theirs = row(result.json, "early-stop"), row(result.json, "specinfer")
    assert own["verdict"] == "exact"
    assert own["acceptance"][:2] == theirs["acceptance"][:2]
    assert own["acceptance"][2] == 0.0
    code = EXAMPLE_RULE.read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 30
    page = EXAMPLE_RULE.parents[1] / "docs" / "howto" / "add-a-rule.md"
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


def test_two_rules_of_one_label_are_not_one_row(cli, tmp_path):
    """No text says a function, so that both are called optimal-sequential."""
    file = tmp_path / "levels.py"
    file.write_text(
        "import numpy as np\nfrom resispec_verify.rules import OptimalSequential\n"
        "halving = OptimalSequential(lambda p, q, n: np.ones((len(p), 1)) * 0.5 ** np.arange(n + 1))\n"
    )
    one, other = f"{file}:halving", "optimal-sequential"
    for names in ((one, other), (other, one)):
        done = cli("kl", *PAIR, *(word for name in names for word in ("--rule", name)))
        assert_one_line(done.err, "optimal-sequential")
    # min(p, q) less min(p, q / 2): (.2, .3, .2) less (.1, .15, .2).
    report = cli("kl", *PAIR, "--candidates", 1, "--rule", one, "--json", "-").json
    assert report["results"][0]["acceptance"] == pytest.approx([0.25], abs=1e-15)
