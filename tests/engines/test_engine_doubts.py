"""Words of command lines and keys of files that are not understood: unknown, and the word is named."""

from __future__ import annotations

import pytest

from resispec_verify.cli import main
from resispec_verify.engines import decide, engine_named, read_command_line, read_config
from resispec_verify.engines.answers import Answer

SG = "python -m sglang.launch_server --speculative-algorithm EAGLE"
# Words that may stand for others, wrappers, variables, short forms: the word is named.
DOUBTED = [
    ("vllm", "vllm serve m $SPEC_ARGS", "$SPEC_ARGS"),
    ("vllm", 'vllm serve m "${ARGS[@]}"', "${ARGS[@]}"),
    ("vllm", "vllm serve m $(cat args.txt)", "$(cat"),
    ("vllm", "vllm serve m `cat args.txt`", "`cat"),
    ("vllm", "vllm serve m @args.txt", "@args.txt"),
    ("vllm", "vllm serve m {--spec,x}", "{--spec,x}"),
    ("vllm", "vllm serve m --x $SPEC_ARGS", "x"),
    ("vllm", "vllm serve m --trust-remote-code @args.txt", "trust_remote_code"),
    ("sglang", f"{SG} --speculative-num-steps {{3,--device,cpu}}", "speculative_num_steps"),
    ("tensorrt-llm", "trtllm-serve m --config a.yaml --extra_llm_api_options b.yaml", "config"),
    ("vllm", "vllm serve m # later", "#"),
    ("sglang", f"{SG} $EXTRA", "$EXTRA"),
    ("sglang", f"{SG} --", "--"),
    ("sglang", f"{SG} SGLANG_SIMULATE_ACC_LEN=3", "SGLANG_SIMULATE_ACC_LEN=3"),
    ("llama.cpp", "LLAMA_ARG_SPEC_SYNTH_LEN=3 llama-server -m t -md d", "LLAMA_ARG_SPEC_SYNTH_LEN"),
    ("tgi", "SPECULATE=3 text-generation-launcher", "SPECULATE"),
    ("sglang", f"CUDA_VISIBLE_DEVICES= {SG}", "CUDA_VISIBLE_DEVICES"),
    ("sglang", f"CUDA_VISIBLE_DEVICES=-1 {SG}", "CUDA_VISIBLE_DEVICES"),
    ("sglang", f"env SGLANG_SIMULATE_ACC_LEN=3 {SG}", "env"),
    ("sglang", f"docker run -e SGLANG_SIMULATE_ACC_LEN=3 img {SG}", "docker"),
    ("sglang", f"docker run --env=SGLANG_SIMULATE_ACC_LEN=3 img {SG}", "docker"),
    ("sglang", f'bash -c "{SG} --speculative-accept-threshold-acc 0.3"', "bash"),
    ("sglang", "docker compose up", "docker"),
    ("sglang", "./serve.sh --speculative-algorithm EAGLE", "serve.sh"),
    ("sglang", f"export SGLANG_SIMULATE_ACC_LEN=3\n{SG}", "export"),
    ("sglang", f"{SG}\ntrue", "line"),
    ("tgi", "text-generation-launcher\n--speculate 2", "line"),
    ("sglang", f"{SG} --dev cpu", "dev"),
    ("sglang", f"{SG} --conf c.yaml", "conf"),
    ("vllm", """vllm serve m --spec '{"rejection_sample_method": "fly"}'""", "spec"),
    ("vllm", """vllm serve m --s '{"rejection_sample_method": "fly"}'""", "s"),
    ("vllm", """vllm serve m '-sc{"rejection_sample_method":"fly"}'""", "-sc"),
    ("vllm", "vllm serve m --speculative-config", "speculative_config"),
    ("vllm", "vllm serve RedHatAI/Qwen3-8B-speculator.eagle3", "eagle3"),
    ("llama.cpp", "llama-server -m t --draft-max 16", "draft_max"),
]

# Keys of files that may be of speculation, in another place or another spelling.
DOUBTED_FILES = [
    (
        "tensorrt-llm",
        "wrap.yaml",
        "llm_args: {speculative_config: {decoding_type: MTP, use_relaxed_acceptance_for_thinking: true}}",
        "llm_args.speculative_config",
    ),
    ("tensorrt-llm", "c.yaml", "Speculative_Config: {decoding_type: MTP}", "Speculative_Config"),
    (
        "sglang",
        "c.json",
        '{"server": {"speculative-algorithm": "EAGLE", "speculative-accept-threshold-acc": 0.3}}',
        "server.speculative_algorithm",
    ),
    ("sglang", "c.json", '{"env": {"SGLANG_SIMULATE_ACC_LEN": 3}}', "env.SGLANG"),
    ("sglang", "c.json", '{"env": [{"name": "A", "value": 3}]}', "env"),
    ("sglang", "c.json", '{"server": {"device": "cpu"}, "speculative-algorithm": "EAGLE"}', "server.device"),
    ("sglang", "c.json", '{"Device": "cpu", "speculative-algorithm": "EAGLE"}', "Device"),
    ("sglang", "c.json", '{"dev": "cpu", "speculative-algorithm": "EAGLE"}', "dev"),
    ("sglang", "c.json", '{"run": "x --device cpu", "speculative-algorithm": "EAGLE"}', "run"),
    (
        "vllm",
        "pod.yaml",
        "kind: Pod\nspec: {containers: [{args: [serve, m, --speculative-config, '{\"a\": 1}']}]}",
        "spec",
    ),
    ("vllm", "c.yaml", "containers: [{start: [serve, m, --x, '1']}]", "containers"),
    ("vllm", "c.json", '{"config": "more.yaml"}', "config"),
    ("vllm", "c.json", '{"more": ["rejection_sample_method=fly"]}', "more"),
    ("vllm", "c.json", '{"speculative_config": ["fly"]}', "speculative_config"),
]


def answered(name: str, text: str) -> Answer:
    engine = engine_named(name)
    return decide(engine, read_command_line(engine, text))


@pytest.mark.parametrize(("name", "text", "word"), DOUBTED, ids=range(len(DOUBTED)))
def test_a_word_that_is_not_understood_is_unknown_and_named(name, text, word, capsys):
    answer = answered(name, text)
    assert (answer.law, answer.setting) == ("unknown", None)
    assert [word in decider.option for decider in answer.decided_by] == [True]
    assert main(["engines", name, "--command-line", text]) == 3
    assert f"{word}" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "file", "text", "key"), DOUBTED_FILES, ids=range(len(DOUBTED_FILES)))
def test_a_key_that_is_not_understood_is_unknown_and_named(name, file, text, key, tmp_path):
    if file.endswith("yaml"):
        pytest.importorskip("yaml")
    path = tmp_path / file
    path.write_text(text)
    engine = engine_named(name)
    answer = decide(engine, read_config(engine, path), whole=True)
    assert (answer.law, answer.setting) == ("unknown", None)
    assert [key in decider.option for decider in answer.decided_by] == [True]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama.cpp", "llama-server --model t.gguf -md d.gguf -c 4096 -t 8 -ngl 99 -hf org/m:Q4_K_M"),
        (
            "vllm",
            "CUDA_VISIBLE_DEVICES=0,1 HF_TOKEN=hf_x vllm serve org/m --tensor-parallel-size 2 --port=80",
        ),
        ("vllm", """vllm serve m -sc '{\n"method": "ngram"\n}'"""),
        ("vllm", "vllm serve m --skip-special-tokens --served-model-name 'a b'"),
        ("sglang", f"{SG} \\\n --special-token x --host 0.0.0.0\n"),
    ],
)
def test_ordinary_words_raise_no_doubt(name, text):
    assert answered(name, text).law == "exact"


def from_options(name: str, **options: object) -> Answer:
    return decide(engine_named(name), options)


@pytest.mark.parametrize(
    ("model", "law"),
    [
        ("./my-assistant", "unknown"),
        ("me/helper", "unknown"),
        ("./llama", "unknown"),
        ("me/llama-draft", "unknown"),
        ("google/gemma-4-assistant", "unknown"),
        ("HuggingFaceTB/SmolLM-135M", "exact"),
    ],
)
def test_an_assistant_whose_class_is_not_told(model, law):
    """Gemma 4's assistants are verified with a rule that is lossy: the class decides."""
    answer = from_options("transformers", do_sample=True, assistant_model=model)
    assert answer.law == law
    assert ("assistant_model", model.lower()) in [(d.option, d.value) for d in answer.decided_by]


@pytest.mark.parametrize("model", ["./my-assistant", "google/gemma-4-assistant"])
def test_do_sample_decides_where_only_temperature_0_is_exact(model):
    answer = from_options("transformers", assistant_model=model)
    assert (answer.law, answer.greedy) == ("exact", True)
    assert ("do_sample", "false", False) in [(d.option, d.value, d.given) for d in answer.decided_by]


@pytest.mark.parametrize("sampled", [True, False])
def test_a_draft_model_beside_prompt_lookup_is_unknown(sampled):
    answer = from_options(
        "openvino-genai", do_sample=sampled, draft_model="x", max_ngram_size=3, num_assistant_tokens=5
    )
    assert answer.law == "unknown"
    assert [d.option for d in answer.decided_by] == ["draft_model", "max_ngram_size"]
