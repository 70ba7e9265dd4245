"""One position token by token: residuals from the definition, texts of tokens, and the command."""

import csv
import importlib.util
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from resispec_verify.cli import main
from resispec_verify.cli.tokenizer import token_texts
from resispec_verify.errors import InputError
from resispec_verify.oracle import MARGINALS
from resispec_verify.report.plots.position import plot_position
from resispec_verify.rules import make_rule
from resispec_verify.tables.position import look_at

HAND = ["--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1"]
PAIR = tuple(Fraction(k, 10) for k in (3, 4, 3)), tuple(Fraction(k, 10) for k in (6, 3, 1))
EXAMPLE = "examples/smollm2-skip6-N8-fp16.pt"


@pytest.mark.parametrize("name", ["specinfer", "resispec", "sequoia"])
def test_the_residual_is_the_transcription_s(name):
    p, q = (np.array(law, np.float64) for law in PAIR)
    found = look_at(p, q, [make_rule(name)])
    rule = MARGINALS[name].make()
    state = rule.reject(rule.start(*PAIR), 0)
    assert found.rejected == 0
    assert found.residuals[name] == pytest.approx([float(r) for r in state.residual], abs=1e-15)
    accepted = sum(float(rule.accept(state, x) * state.draft[x]) for x in range(3))
    assert found.next_accepted[name] == pytest.approx(accepted, abs=1e-15)
    assert found.l1[name] == pytest.approx(2 * (1 - accepted), abs=1e-15)  # candidates from the draft shown


def test_the_tokens_that_carry_the_mass_and_the_rest():
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.full(200, 0.1), 2)
    found = look_at(p, q, [make_rule("resispec"), make_rule("specinfer")])
    records = found.records(12)
    assert len(records) == 13
    assert found.rejected in [r["token"] for r in records]
    assert records[-1]["token"] == "188 others"
    for name, law in found.series().items():
        assert sum(r[name] for r in records) == pytest.approx(law.sum(), abs=1e-13)
    shown = [r["draft"] for r in records[:-1]]
    assert shown == sorted(shown, reverse=True)


def test_tokens_of_any_kind_are_drawn(tmp_path):
    """Formulas, control characters and glyphs that the font lacks are text, not errors or warnings."""
    p, q = (np.array(law, np.float64) for law in PAIR)
    found = look_at(p, q, [make_rule("specinfer"), make_rule("resispec")])
    names = {0: "'$x_{'", 1: "'\x1b[31m\n'", 2: "'\u4e2d\U0001f600'" + "long " * 20}
    plot_position(found, "$ a {title", names).savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def tokenizer_file(path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"one": 0, "$two": 1}, unk_token="one")).save(str(path))
    return path


needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="the package tokenizers is not installed"
)


@needs_tokenizers
def test_the_command_with_texts(capsys, tmp_path):
    names = [tmp_path / name for name in ("a.json", "a.csv", "a.svg")]
    arguments = [f"--{kind}={name}" for kind, name in zip(("json", "csv", "plot"), names, strict=True)]
    tokenizer = tokenizer_file(tmp_path / "tokenizer.json")
    assert main(["picture", *HAND, "--tokenizer", str(tokenizer), *arguments]) == 0
    assert "'$two'" in capsys.readouterr().out
    (result,) = json.loads(names[0].read_text())["results"]
    assert [t["text"] for t in result["tokens"]] == ["'one'", "'$two'", "", ""]
    with open(names[1], newline="") as file:
        assert [line["token"] for line in csv.DictReader(file)] == ["0", "1", "2", "0 others"]
    assert b"<svg" in names[2].read_bytes()


@needs_tokenizers
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": {"type": "BPE"}}', b"[" * 100_000])
def test_what_is_no_tokenizer_is_one_line(content, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not a tokenizer\.json") as caught:
        token_texts(path, [0])
    assert "\n" not in str(caught.value)


def test_without_the_library_it_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert main(["picture", *HAND, "--tokenizer", str(tmp_path / "a.json")]) == 2
    assert "pip install tokenizers" in capsys.readouterr().err


def test_the_library_is_loaded_only_when_asked_for():
    code = (
        "import sys; from resispec_verify.cli import main; status = main(sys.argv[1:]);"
        "assert not {'tokenizers', 'torch', 'matplotlib'} & set(sys.modules); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, "picture", *HAND], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*HAND, "--rejected", "1", "--rule", "resispec"], "never rejects token 1"),
        ([*HAND, "--rejected", "3"], "outside the vocabulary"),
        ([*HAND, "--candidates", "1"], "--candidates must be in 2..16"),
        ([*HAND, "--candidates", "17"], "--candidates must be in 2..16"),
        ([*HAND, "--tokens", "0"], "--tokens must be"),
        ([*HAND, "--rule", "optimal-joint"], "decides about all its candidates at once"),
        (["--target", "0.5,0.5", "--draft", "0.5,0.5"], "no token can be rejected"),
        ([*HAND, "--position", "0"], "needs a dump"),
        ([*HAND, "--tokenizer", "nowhere.json"], "no such file"),
        (["--logits", EXAMPLE, "--position", "8"], "outside 0..7"),
        (["--logits", EXAMPLE, *HAND], "give one of"),
        ([], "give one of"),
    ],
)
def test_bad_input_is_one_line_and_two(arguments, words, capsys):
    if "nowhere.json" in arguments:
        pytest.importorskip("tokenizers")
    assert main(["picture", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert words in shown
