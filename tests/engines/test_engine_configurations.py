"""Configurations as the engines' documentation shows them, and what must be unknown or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resispec_verify.cli import main
from resispec_verify.engines import decide, engine_named, engine_of, read_command_line, read_config
from resispec_verify.engines.answers import Answer
from resispec_verify.errors import InputError

# What starts an engine: the engine, the command, the law, the setting (None: no speculation, or it cannot be told).
COMMANDS = [
    ("vllm", """python -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --port 8000 --model facebook/opt-6.7b \\
     --seed 42 -tp 1 --gpu_memory_utilization 0.8 \\
     --speculative_config '{"model": "facebook/opt-125m", "num_speculative_tokens": 5}'""", "exact", "greedy draft"),
    ("vllm", """vllm serve Qwen/Qwen3-8B -tp 1 --speculative-config '{"model": "RedHatAI/Qwen3-8B-speculator.eagle3",
     "num_speculative_tokens": 3, "method": "eagle3"}'""", "exact", "greedy draft"),
    ("vllm", """vllm serve Qwen/Qwen3-8B -sc '{"method": "draft_model", "model": "Qwen/Qwen3-0.6B",
     "num_speculative_tokens": 8, "rejection_sample_method": "fly", "fly_window_size": 6,
     "fly_entropy_threshold": 0.3, "fly_entropy_top_k": 3}'""", "lossy", "fly"),
    ("vllm", "vllm serve m --speculative-config.method ngram --speculative-config.rejection_sample_method=synthetic",
     "lossy", "synthetic"),
    ("vllm", "vllm serve m --spec-method mtp --spec-tokens 2 -sc.draft-sample-method probabilistic",
     "exact", "probabilistic draft"),
    ("vllm", """vllm serve m -sc '{"method": "mtp", "rejection_sample_method": "block"}'""", "exact", "block"),
    ("vllm", """vllm serve m --speculative-config '{"method": "custom_class", "model": "a.b.C"}'""",
     "unknown", "drafts of the user's code"),
    ("vllm", "vllm serve facebook/opt-6.7b --max-model-len 4096", "exact", None),
    ("sglang", """python3 -m sglang.launch_server --model meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE
     --speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B --speculative-num-steps 3 --speculative-eagle-topk 4
     --speculative-num-draft-tokens 16 --mem-fraction-static 0.7 --cuda-graph-max-bs 8 --log-level warning""",
     "exact", "target-only tree"),
    ("sglang", """python3 -m sglang.launch_server --model meta-llama/Meta-Llama-3.1-8B-Instruct
     --speculative-algorithm EAGLE3 --speculative-draft-model-path jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B
     --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32 --mem-fraction 0.6
     --cuda-graph-max-bs 2 --dtype float16""", "exact", "target-only tree"),
    ("sglang", """sglang serve --model-path m --speculative-algorithm NGRAM --speculative-num-draft-tokens 16""",
     "exact", "target-only tree"),
    ("sglang", "python -m sglang.launch_server --speculative-algorithm EAGLE --speculative-accept-threshold-single 0.9",
     "lossy", "threshold for one token"),
    ("sglang", "sglang serve --speculative-algorithm NEXTN --speculative-use-rejection-sampling "
     "--speculative-eagle-topk 1", "exact", "rejection sampling"),
    ("sglang", "sglang serve --speculative-algorithm EAGLE3 --speculative-use-block-verification",
     "exact", "block verification"),
    ("sglang", "sglang serve --speculative-algorithm STANDALONE --device cpu", "lossy", "without CUDA"),
    ("sglang", "SGLANG_SIMULATE_ACC_LEN=3 sglang serve --speculative-algorithm EAGLE", "lossy", "simulated acceptance"),
    ("sglang", "sglang serve --speculative-algorithm DSPARK", "unknown", "block drafts and UNO"),
    ("tensorrt-llm", "trtllm-serve nvidia/DeepSeek-R1-FP4 --tp_size 8 --ep_size 8", "exact", None),
    ("tensorrt-llm", """trtllm-bench --model nvidia/DeepSeek-R1-FP4 throughput --dataset d --backend pytorch --tp 8
     --extra_llm_api_options ./extra-llm-api-config.yml""", "unknown", None),
    ("tensorrt-llm", "trtllm-serve m --config config.yaml", "unknown", None),
    ("llama.cpp", "llama-server -m Qwen3-4B.gguf -md Qwen3-4B-eagle3.gguf --spec-type draft-eagle3", "exact", "match"),
    ("llama.cpp", """llama-server -m Qwen3-4B.gguf -md Qwen3-4B-DFlash.gguf \\
    --spec-type draft-dflash --spec-draft-n-max 15 -fa on --jinja""", "exact", "match"),
    ("llama.cpp", "llama-server -m m.gguf --spec-type ngram-map-k4v --spec-ngram-map-k4v-size-n 8 "
     "--spec-ngram-map-k4v-size-m 8 --spec-ngram-map-k4v-min-hits 2 --spec-draft-n-max 64", "exact", "match"),
    ("llama.cpp", "llama-cli -m m.gguf -md d.gguf --spec-synth-len 3.5", "lossy", "synthetic by length"),
    ("llama.cpp", "./build/bin/llama-speculative -m m.gguf -md d.gguf --temp 0.8", "lossy", "the example speculative"),
    ("llama.cpp", "llama-speculative -m m.gguf -md d.gguf --temp 0", "exact", "the example speculative"),
    ("llama.cpp", "llama-server -m m.gguf --spec-type draft-mtp --spec-draft-sampling probabilistic",
     "unknown", "probabilistic draft"),
    ("llama.cpp", "llama-server -m m.gguf -c 4096", "exact", None),
    ("mlx-lm", "mlx_lm.generate --model mlx-community/Qwen2.5-7B --draft-model mlx-community/Qwen2.5-0.5B --prompt hello "
     "--temp 0.7", "exact", "match"),
    ("mlx-lm", "mlx_lm.server --model m --draft-model d --num-draft-tokens 4", "exact", "match"),
    ("mlx-lm", "python -m mlx_lm.generate --model m --prompt 'a b'", "exact", None),
    ("mistral.rs", """mistralrs run -m google/gemma-4-E4B-it --quant 8 \\
  --mtp-model google/gemma-4-E4B-it-assistant \\
  --mtp-n-predict 6""", "unknown", "assistant checkpoint"),
    ("mistral.rs", "mistralrs serve -m Qwen/Qwen3.8-27B --quant 4 --mtp", "exact", "built-in head"),
    ("mistral.rs", "mistralrs serve -m Qwen/Qwen3.8-27B --quant 4 --mtp-model incoai/Qwen3.8-27B-DFlash2",
     "unknown", "assistant checkpoint"),
    ("lmdeploy", """lmdeploy serve api_server meta-llama/Llama-3.1-8B-Instruct --backend pytorch --server-port 24545
     --speculative-draft-model yuhuili/EAGLE3-LLaMA3.1-Instruct-8B --speculative-algorithm eagle3
     --speculative-num-draft-tokens 3 --max-batch-size 128 --enable-metrics""", "exact", "greedy draft"),
    ("lmdeploy", "lmdeploy serve api_server deepseek-ai/DeepSeek-V3 --backend pytorch --speculative-algorithm "
     "deepseek_mtp --speculative-num-draft-tokens 3", "exact", "greedy draft"),
    ("lmdeploy", "lmdeploy serve api_server m --backend pytorch", "exact", None),
    ("tgi", "text-generation-launcher --model-id text-generation-inference/gemma-7b-it-medusa --speculate 3",
     "exact", "match"),
    ("tgi", "text-generation-launcher --model-id m --speculate=2 --max-input-tokens 2048", "exact", "match"),
    ("tgi", "text-generation-launcher --model-id m", "exact", None),
]  # fmt: skip

# Configuration files as the documentation of TensorRT-LLM, transformers and OpenVINO GenAI has them, and others.
FILES = [
    ("tensorrt-llm", "c.yml", "cuda_graph_config: {}\nmoe_config:\n  backend: TRTLLM\nspeculative_config:\n"
     "    decoding_type: MTP\n    num_nextn_predict_layers: 3\n", "exact", "exact match"),
    ("tensorrt-llm", "c.yml", "speculative_config:\n    decoding_type: MTP\n    num_nextn_predict_layers: 3\n"
     "    use_relaxed_acceptance_for_thinking: true\n    relaxed_topk: 10\n    relaxed_delta: 0.6\n",
     "lossy", "relaxed acceptance"),
    ("tensorrt-llm", "c.yaml", "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 3\n"
     "  speculative_model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B\n  use_rejection_sampling: true\n",
     "exact", "rejection sampling"),
    ("tensorrt-llm", "c.json", '{"speculative_config": {"decoding_type": "Eagle3", "use_dynamic_tree": true, '
     '"dynamic_tree_max_topK": 4}}', "unknown", "dynamic tree"),
    ("transformers", "generation_config.json", '{"do_sample": true, "temperature": 0.5, "assistant_model": '
     '"HuggingFaceTB/SmolLM-135M"}', "exact", "assistant model"),
    ("transformers", "generation_config.json", '{"prompt_lookup_num_tokens": 3, "do_sample": true, "top_k": 50}',
     "exact", "prompt lookup"),
    ("transformers", "generation_config.json", '{"assistant_early_exit": 4, "do_sample": false, "max_new_tokens": 20}',
     "exact", "early exit"),
    ("transformers", "c.json", '{"assistant_model": "d", "do_sample": true, "assistant_ensemble_weight": 0.9}',
     "lossy", "ensemble weight"),
    ("transformers", "c.json", '{"assistant_model": "google/gemma-4-E4B-it-assistant", "do_sample": true}',
     "unknown", "assistant that may be Gemma's"),
    ("transformers", "c.json", '{"assistant_model": "google/gemma-4-E4B-it-assistant"}',
     "exact", "assistant that may be Gemma's"),
    ("openvino-genai", "generation_config.json", '{"num_assistant_tokens": 5, "max_new_tokens": 100}',
     "exact", "draft model"),
    ("openvino-genai", "generation_config.json", '{"num_assistant_tokens": 5, "do_sample": true, "top_p": 0.9}',
     "lossy", "draft model"),
    ("openvino-genai", "generation_config.json", '{"assistant_confidence_threshold": 0.4, "do_sample": true}',
     "lossy", "draft model"),
    ("openvino-genai", "generation_config.json", '{"num_assistant_tokens": 5, "max_ngram_size": 3, "do_sample": true}',
     "exact", "prompt lookup"),
    ("vllm", "c.yaml", "model: facebook/opt-6.7b\nport: 8000\nspeculative-config:\n  method: ngram\n"
     "  num-speculative-tokens: 5\n  prompt_lookup_max: 4\n", "exact", "greedy draft"),
    ("vllm", "c.yaml", "speculative-config: '{\"method\": \"eagle\", \"rejection_sample_method\": \"synthetic\"}'\n",
     "lossy", "synthetic"),
    ("vllm", "c.json", '{"speculative_config": null}', "exact", None),
    ("llama.cpp", "c.json", '{"spec_type": "none"}', "exact", None),
]  # fmt: skip

# Nothing can be said of these, and nothing is: the option that stands in the way is named.
UNKNOWN = [
    ("vllm", """vllm serve m -sc '{"method": "ngram", "speculate_harder": true}'""", "speculate_harder"),
    ("vllm", """vllm serve m -sc '{"rejection_sample_method": "blok"}'""", "rejection_sample_method"),
    ("vllm", 'vllm serve m --speculative-config "$SPEC"', "speculative_config"),
    ("vllm", "vllm serve m --config c.yaml", "config"),
    ("sglang", "sglang serve --speculative-algorithm HYDRA", "speculative_algorithm"),
    ("sglang", "sglang serve --speculative-algorithm EAGLE --speculative-accept-threshold-acc nan", "threshold_acc"),
    ("sglang", "sglang serve --speculative-algorithm EAGLE --speculative-accept-threshold-acc $T", "threshold_acc"),
    ("sglang", "SGLANG_SIMULATE_ACC_METHOD=x sglang serve --speculative-algorithm EAGLE", "SGLANG_SIMULATE_ACC_METHOD"),
    ("sglang", "sglang serve --speculative-algorithm EAGLE --device npu", "device"),
    ("llama.cpp", "llama-server -md d.gguf --spec-draft-wonder 3", "spec_draft_wonder"),
    ("lmdeploy", "lmdeploy serve api_server m --speculative-algorithm medusa", "speculative_algorithm"),
    ("tgi", "text-generation-launcher --speculate many", "speculate"),
]

REFUSED = [
    ("vllm", "", "empty"),
    ("vllm", "A=1", "empty"),
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
]


def answered(name: str, text: str, **options: object) -> Answer:
    engine = engine_named(name)
    return decide(engine, read_command_line(engine, text), **options)


@pytest.mark.parametrize(("name", "text", "law", "setting"), COMMANDS, ids=range(len(COMMANDS)))
def test_command_lines_of_the_documentation(name, text, law, setting):
    text = text if "\\\n" in text else " ".join(text.split())
    found = engine_of(text)
    assert found is engine_named(name)
    answer = answered(name, text)
    assert (answer.law, answer.setting and answer.setting.name) == (law, setting), answer.why
    if setting is not None:
        assert answer.decided_by or not any(s.when for s in found.settings)


@pytest.mark.parametrize(("name", "file", "text", "law", "setting"), FILES, ids=range(len(FILES)))
def test_configuration_files(name, file, text, law, setting, tmp_path):
    if file.endswith(("yml", "yaml")):
        pytest.importorskip("yaml")
    path = tmp_path / file
    path.write_text(text)
    engine = engine_named(name)
    answer = decide(engine, read_config(engine, path), whole=True)
    assert (answer.law, answer.setting and answer.setting.name) == (law, setting), answer.why


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers", "mlx-lm",
                                    "openvino-genai", "mistral.rs", "lmdeploy", "tgi"])  # fmt: skip
def test_three_examples_an_engine(engine):
    assert sum(row[0] == engine for row in COMMANDS + FILES) >= 3


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
    path.write_text(json.dumps({"speculative_config": {"decoding_type": "MTP", "use_rejection_sampling": True}}))
    line = f"trtllm-serve m --config {path}"
    assert main(["engines", "--command-line", line]) == 3
    assert main(["engines", "tensorrt-llm", "--config", str(path), "--command-line", line]) == 0
    assert "rejection sampling" in capsys.readouterr().out


def test_status_and_json(capsys):
    line = "sglang serve --speculative-algorithm EAGLE --speculative-accept-threshold-acc 0.5 --tp 2"
    assert main(["engines", "--command-line", line, "--json", "-"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["law"], result["rule"], result["passed_over"]) == ("lossy", "sglang", ["tp"])
    assert result["decided_by"] == [{"option": "speculative_accept_threshold_acc", "value": "0.5", "given": True}]
    assert main(["engines", "--command-line", line, "--temperature", "0"]) == 0
    assert main(["engines", "--command-line", "ollama serve"]) == 3
    assert main(["engines", "tgi", "--command-line", "docker run --gpus all -v $v:/data img --speculate 2"]) == 0


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
