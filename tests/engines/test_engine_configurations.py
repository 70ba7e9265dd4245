"""Configurations as the engines' documentation shows them, and what must be unknown or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resispec_verify.cli import main
from resispec_verify.engines import (
    decide,
    engine_named,
    engine_of,
    known_engines,
    read_command_line,
    read_config,
)
from resispec_verify.engines.answers import Answer
from resispec_verify.engines.options import _once
from resispec_verify.errors import InputError

# Command lines and files as the engines' documentation has them, and others: the law, and the setting
# (null: no speculation, or it cannot be told).
EXAMPLES = json.loads((Path(__file__).parent / "examples.json").read_text("utf-8"))
COMMANDS, FILES = EXAMPLES["commands"], EXAMPLES["files"]

# Nothing can be said of these, and nothing is: the option that stands in the way is named.
UNKNOWN = [
    ("vllm", """vllm serve m -sc '{"method": "ngram", "speculate_harder": true}'""", "speculate_harder"),
    ("vllm", """vllm serve m -sc '{"rejection_sample_method": "blok"}'""", "rejection_sample_method"),
    ("vllm", 'vllm serve m --speculative-config "$SPEC"', "speculative_config"),
    ("vllm", "vllm serve m --config c.yaml", "config"),
    ("sglang", "sglang serve --speculative-algorithm HYDRA", "speculative_algorithm"),
    (
        "sglang",
        "sglang serve --speculative-algorithm EAGLE --speculative-accept-threshold-acc nan",
        "threshold_acc",
    ),
    (
        "sglang",
        "sglang serve --speculative-algorithm EAGLE --speculative-accept-threshold-acc $T",
        "threshold_acc",
    ),
    (
        "sglang",
        "SGLANG_SIMULATE_ACC_METHOD=x sglang serve --speculative-algorithm EAGLE",
        "SGLANG_SIMULATE_ACC_METHOD",
    ),
    ("sglang", "sglang serve --speculative-algorithm EAGLE --device npu", "device"),
    ("llama.cpp", "llama-server -md d.gguf --spec-draft-wonder 3", "spec_draft_wonder"),
    ("lmdeploy", "lmdeploy serve api_server m --speculative-algorithm medusa", "speculative_algorithm"),
    ("tgi", "text-generation-launcher --speculate many", "speculate"),
    ("tgi", "text-generation-launcher --speculate ''", "speculate"),
    ("vllm", """vllm serve m -sc '{"rejection_sample_method": ""}'""", "rejection_sample_method"),
    ("vllm", "vllm serve m -sc.rejection-sample-method none", "rejection_sample_method"),
]

REFUSED = [
    ("vllm", "", "empty"),
    ("vllm", "A=1", "empty"),
    ("tgi", "''", "empty"),
    ("vllm", "vllm serve m|tee log", "one command"),
    ("vllm", "vllm serve m --config a.yaml --config b.yaml", "given twice"),
    ("vllm", "vllm serve m&&ls", "one command"),
    ("vllm", "vllm serve m 2>log", "one command"),
    ("vllm", "vllm serve 'm", "cannot be split"),
    ("vllm", "vllm serve m | tee log", "one command"),
    ("vllm", "vllm serve m; ls", "one command"),
    ("vllm", "vllm serve m -sc '{\"method\":'", "must be a JSON object"),
    ("vllm", "vllm serve m -sc '[1]'", "got list"),
    ("vllm", """vllm serve m -sc '{"method": "ngram", "method": "mtp"}'""", "given twice"),
    ("vllm", "vllm serve m -sc '" + "[" * 100_000 + "'", "nested too deeply"),
    ("vllm", "sglang serve --speculative-algorithm EAGLE", "starts sglang"),
    ("sglang", "sglang serve --speculative-algorithm EAGLE --speculative-algorithm NGRAM", "given twice"),
]

BAD_FILES = [
    ("c.json", b"{", "is not JSON"),
    ("c.json", b"[1, 2]", "must hold names"),
    ("c.json", b"\xff\xfe", "not UTF-8"),
    ("c.json", b'{"a": 1, "a": 2}', "given twice"),
    ("c.json", b"[" * 100_000, "nested too deeply"),
    ("c.yaml", b"a: [1", "is not YAML"),
    ("c.yaml", b"a: 1\na: 2\n", "given twice"),
    ("c.yaml", b"a: !!python/object/apply:os.system ['touch ran']\n", "is not YAML"),
    ("c.yaml", b"speculative-config: &a {method: ngram, more: *a}\n", "aliases"),
    ("c.yaml", b"a: &a [x, x]\nb: [*a, *a]\n", "aliases"),
    ("c.json", b'{"a":' * 30 + b"1" + b"}" * 30, "nested too deeply"),
    ("c.yaml", b"- " * 20_000, "nested too deeply"),
    ("c.conf", b"", "must be named"),
    ("c.json", b" " * (1 << 20) + b"{}", "bytes"),
    ("c.json", b'{"a": 1' + b"0" * 400 + b"}", "too many digits"),
    ("c.yaml", b"a: 0x" + b"f" * 9000, "too many digits"),
    ("c.yaml", b"a: [0x" + b"f" * 9000 + b"]", "is not YAML"),
    ("c.yaml", b'a: !!int ""', "what its tag says"),
    ("c.yaml", b'a: !!float ""', "what its tag says"),
    ("c.yaml", b'a: !!bool "x"', "what its tag says"),
    ("c.yaml", b'a: !!timestamp "x"', "what its tag says"),
    ("c.yaml", b"a: !!set x", "is not YAML"),
    ("c.yaml", b"? [a]\n: 1", "is not YAML"),
]


def answered(name: str, text: str, **options: object) -> Answer:
    engine = engine_named(name)
    return decide(engine, read_command_line(engine, text), **options)


@pytest.mark.parametrize("example", COMMANDS, ids=lambda e: f"{e['engine']}-{e['setting']}")
def test_command_lines_of_the_documentation(example):
    engine = engine_named(example["engine"])
    assert engine_of(example["command"]) is engine
    answer = answered(engine.engine, example["command"])
    setting = answer.setting and answer.setting.name
    assert (answer.law, setting) == (example["law"], example["setting"]), answer.why
    if setting is not None:
        assert answer.decided_by or not any(s.when for s in engine.settings)


@pytest.mark.parametrize("example", FILES, ids=lambda e: f"{e['engine']}-{e['setting']}")
def test_configuration_files(example, tmp_path):
    if example["file"].endswith(("yml", "yaml")):
        pytest.importorskip("yaml")
    path = tmp_path / example["file"]
    path.write_text(example["text"])
    engine = engine_named(example["engine"])
    answer = decide(engine, read_config(engine, path), whole=True)
    setting = answer.setting and answer.setting.name
    assert (answer.law, setting) == (example["law"], example["setting"]), answer.why


@pytest.mark.parametrize("engine", known_engines())
def test_three_examples_an_engine(engine):
    assert sum(row["engine"] == engine for row in COMMANDS + FILES) >= 3


@pytest.mark.parametrize(("name", "text", "option"), UNKNOWN, ids=range(len(UNKNOWN)))
def test_what_cannot_be_told_is_unknown_and_named(name, text, option):
    answer = answered(name, text)
    assert (answer.law, answer.setting) == ("unknown", None)
    assert [option in decider.option for decider in answer.decided_by] == [True]
    assert option.rpartition("_")[2] in answer.why


@pytest.mark.parametrize(("name", "text", "words"), REFUSED, ids=range(len(REFUSED)))
def test_nonsense_is_refused(name, text, words, capsys):
    with pytest.raises(InputError, match=words):
        answered(name, text)
    assert main(["engines", name, "--command-line", text]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("file", "data", "words"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_bad_files_are_refused_and_run_nothing(file, data, words, tmp_path, capsys, monkeypatch):
    if file.endswith("yaml"):
        pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    Path(file).write_bytes(data)
    assert main(["engines", "vllm", "--config", file]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert not Path("ran").exists()


def test_many_names_are_compared_in_one_pass():
    """Each name is hashed some times, and compared with no other."""
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    pairs: list[tuple[str, object]] = [(Name(f"k{i}"), i) for i in range(2000)]
    _once(pairs)
    with pytest.raises(InputError, match="given twice"):
        _once([*pairs, (Name("k1999"), 0)])
    assert compared < 2 * len(pairs)


def test_lists_with_dates_are_only_text(tmp_path):
    pytest.importorskip("yaml")
    engine = engine_named("vllm")
    path = tmp_path / "c.yaml"
    path.write_text("a: [{2020-01-01: 1}, !!binary aGk=]\n")
    assert decide(engine, read_config(engine, path)).law == "exact"


def test_a_key_cannot_forge_a_line_of_the_report(tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"specul\x1b[2J\ntgi (read at 3.3.6): exact": 1}))
    assert main(["engines", "tgi", "--config", str(path)]) == 3
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line.startswith("tgi (read at") for line in out.splitlines()] == [True, False, False]
    assert "specul\\x1b[2J\\ntgi" in out


def test_a_missing_file(capsys):
    assert main(["engines", "vllm", "--config", "nowhere.json"]) == 2
    assert "cannot read nowhere.json" in capsys.readouterr().err


def test_toml(tmp_path):
    pytest.importorskip("tomllib")
    path = tmp_path / "c.toml"
    path.write_text("[speculative_config]\nmethod = 'ngram'\nrejection_sample_method = 'synthetic'\n")
    engine = engine_named("vllm")
    assert decide(engine, read_config(engine, path)).law == "lossy"


def test_a_file_and_a_command_line_together(tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps({"speculative_config": {"decoding_type": "MTP", "use_rejection_sampling": True}})
    )
    line = f"trtllm-serve m --config {path}"
    assert main(["engines", "--command-line", line]) == 3
    two = f"{line} --extra_llm_api_options other.yaml"
    assert main(["engines", "tensorrt-llm", "--config", str(path), "--command-line", two]) == 3
    assert main(["engines", "tensorrt-llm", "--config", str(path), "--command-line", line]) == 0
    assert "rejection sampling" in capsys.readouterr().out


def test_status_and_json(capsys):
    line = "sglang serve --speculative-algorithm EAGLE --speculative-accept-threshold-acc 0.5 --tp 2"
    assert main(["engines", "--command-line", line, "--json", "-"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["law"], result["rule"], result["passed_over"]) == ("lossy", "sglang", ["tp"])
    assert result["decided_by"] == [
        {"option": "speculative_accept_threshold_acc", "value": "0.5", "given": True}
    ]
    assert main(["engines", "--command-line", line, "--temperature", "0"]) == 0
    assert main(["engines", "--command-line", "ollama serve"]) == 3
    docker = "docker run --gpus all -v $v:/data img --speculate 2"
    assert main(["engines", "tgi", "--command-line", docker]) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ollama"], "no engine 'ollama'"),
        (["--law", "lossless"], "--law must be"),
        (["--temperature", "0"], "needs --config"),
        (["--config", "c.json"], "needs the engine"),
        (["vllm", "--law", "exact", "--command-line", "vllm serve m"], "is for the table"),
        (["vllm", "--command-line", "vllm serve m", "--temperature", "-1"], "--temperature must not"),
    ],
)
def test_usage_is_checked(arguments, words, capsys):
    assert main(["engines", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_table_and_its_filters(capsys):
    assert main(["engines", "sglang", "--law", "lossy", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert {row["engine"] for row in rows} == {"sglang"}
    assert {row["law"] for row in rows} == {"lossy"}
    assert main(["engines", "tgi", "--law", "lossy"]) == 0
    assert "no setting is lossy" in capsys.readouterr().out
