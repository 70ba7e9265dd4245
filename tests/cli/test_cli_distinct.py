"""Candidates that must differ, in `kl` and in `limits`: more than what they are drawn from has is refused."""

from __future__ import annotations

import pytest
from cli_helpers import assert_one_line, assert_refused, lines_of, logs, row, save

# Four tokens; the draft has three, two and four of them.
TARGET = logs((0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1), (0.25, 0.25, 0.25, 0.25))
DRAFT = logs((0.5, 0.25, 0.25, 0.0), (0.0, 0.5, 0.0, 0.5), (0.4, 0.3, 0.2, 0.1))
NARROW = "draws 3 different candidates, but only 2 tokens of the draft have a probability above 0"


@pytest.fixture
def zeros(tmp_path):
    return save(tmp_path / "zeros.pt", TARGET, DRAFT)


@pytest.mark.parametrize("verb", ["kl", "limits"])
@pytest.mark.parametrize("rule", ["sequoia", "eagle", "llama-cpp", "sglang"])
def test_a_draft_with_zeros(cli, zeros, verb, rule):
    arguments = (verb, "--logits", zeros, "--rule", rule)
    assert_refused(cli(*arguments), f"{zeros}: position 1: rule '{rule}' {NARROW}", "lower --candidates to 2")
    assert cli(*arguments, "--candidates", 2).status == 0
    assert cli(*arguments, "--positions", "2:3").status == 0
    assert_refused(cli(*arguments, "--positions", "0:1", "--candidates", 4), "position 0", "only 3 tokens")


@pytest.mark.parametrize("verb", ["kl", "limits"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--top-k", 2), [NARROW, "widen --temperature, --top-k"]),
        (("--top-p", 0.6), [NARROW]),
        (("--min-p", 0.99), ["only 1 token of the draft has", "lower --candidates to 1"]),
        (("--temperature", 0), ["only 1 token of the draft has"]),
        (("--proposal-top-k", 2), ["only 2 tokens of the proposal have", "--proposal-temperature"]),
    ],
)
def test_filters(cli, tmp_path, verb, options, words):
    path = save(tmp_path / "d.pt", TARGET[2:], DRAFT[2:])
    assert_refused(cli(verb, "--logits", path, "--rule", "sequoia", *options), path, "position 0", *words)
    # Independent draws may repeat a token.
    assert cli(verb, "--logits", path, "--rule", "specinfer", *options).status == 0


@pytest.mark.parametrize("verb", ["kl", "limits"])
def test_a_wider_proposal_counts(cli, tmp_path, verb):
    """Siblings ranked by the draft's logits, verified at temperature 0."""
    path = save(tmp_path / "d.pt", TARGET[2:], DRAFT[2:])
    arguments = (verb, "--logits", path, "--rule", "eagle", "--temperature", 0)
    assert cli(*arguments, "--proposal-temperature", 1).status == 0
    logged = save(tmp_path / "p.pt", TARGET[:1], DRAFT[:1], proposal_logits=DRAFT[2:])
    assert cli(verb, "--logits", logged, "--rule", "eagle", "--candidates", 4).status == 0


@pytest.mark.parametrize("verb", ["kl", "limits"])
def test_by_hand(cli, verb):
    pair = ("--target", "0.5,0.3,0.2", "--draft", "0.5,0,0.5")
    assert_refused(cli(verb, *pair, "--rule", "sequoia"), f"--draft: rule 'sequoia' {NARROW}")
    one = ("--target", "0.5,0.5", "--draft", "1,0", "--candidates", 2)
    assert_refused(cli(verb, *one, "--rule", "spechub"), "only 1 token", "leave the rule out")
    single = ("--target", "1", "--draft", "1", "--candidates", 2)
    assert_refused(
        cli(verb, *single, "--rule", "spechub"), "the 1 token of the vocabulary; leave the rule out"
    )
    assert cli(verb, *single, "--rule", "specinfer").status == 0


def test_the_other_files_are_reported(cli, zeros, tmp_path):
    good = save(tmp_path / "good.pt", TARGET[2:], DRAFT[2:])
    result = cli("kl", "--logits", zeros, good, "--rule", "sequoia", "--json", tmp_path / "x.json")
    assert result.status == 2
    assert_one_line(result.err, zeros, "position 1")
    assert "sequoia" in result.out


def test_labels_tell_the_parameters(tmp_path, cli):
    path = tmp_path / "own.py"
    path.write_text(
        "from resispec_verify.rules import CSD, EASD\n"
        "csd = CSD(ratio=0.4, memory=[(2, 0), (1, 3)])\n"
        "easd = EASD(target_entropy=1, draft_entropy=0.5, top_n=2, overlap=0.5, rejects='position')\n"
    )
    pair = ("--target", "0.5,0.3,0.2", "--draft", "0.2,0.3,0.5")
    result = cli("kl", *pair, "--rule", f"{path}:csd", "--rule", f"{path}:easd")
    assert "csd[ratio=0.4,memory=1:3 2:0]" in result.out
    assert "easd[target_entropy=1,draft_entropy=0.5,top_n=2,overlap=0.5,rejects=position]" in result.out


def test_proposals_of_one_name_have_limits_of_their_own(cli, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "import numpy as np\n"
        "from resispec_verify.rules import SpecInfer\n"
        "class Own:\n"
        "    name = 'own'\n"
        "    def __init__(self, bound): self.bound = bound\n"
        "    def limit(self, p, q, n): return np.full(len(p), self.bound)\n"
        "    def next(self, q, drawn): return q\n"
        "class A(SpecInfer): name, proposal = 'a', Own(0.25)\n"
        "class B(SpecInfer): name, proposal = 'b', Own(0.75)\n"
    )
    pair = ("--target", "0.5,0.3,0.2", "--draft", "0.2,0.3,0.5", "--marginal", "operational")
    report = cli("kl", *pair, "--rule", f"{path}:A", "--rule", f"{path}:B", "--json", "-").json
    assert [row(report, name)["limit_mean"] for name in "ab"] == [0.25, 0.75]


def test_a_rule_for_many_candidates_runs(cli, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from resispec_verify.rules import SpecInfer\n"
        "class Three(SpecInfer): name, least_candidates = 'three', 3\n"
    )
    pair = ("--target", "0.5,0.3,0.2", "--draft", "0.2,0.3,0.5")
    assert cli("kl", *pair, "--rule", f"{path}:Three").status == 0


def test_no_acceptance_above_1_in_float32(cli, tmp_path):
    """Target and draft are one law, so a candidate is always accepted; sums of float32 terms exceed 1."""
    rows = 2 * logs((0.4, 0.3, 0.2, 0.1)).repeat(40, 13) + logs(*((0.1 + i,) * 52 for i in range(40)))
    path = save(tmp_path / "d.pt", rows + 0.1 * rows.sin())
    options = ("--rule", "specinfer", "--marginal", "operational", "--precision", "float32", "--csv", "-")
    lines = lines_of(cli("kl", "--logits", path, *options).out)
    assert max(float(line["acceptance"]) for line in lines) <= 1.0
