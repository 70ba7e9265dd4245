"""Models that are recorded from: a tiny Llama in a GGUF file, and the same through transformers."""

import sys

import numpy as np
import pytest
from record_helpers import CONTEXT, HEADS, INNER, KV_HEADS, LETTERS, TOKENS, WIDTH, write_gguf

torch = pytest.importorskip("torch", reason="models are computed with torch")
pytest.importorskip("gguf", reason="needs the package gguf")
pytest.importorskip("tokenizers", reason="needs the package tokenizers")

import resispec_verify.models  # noqa: E402
from resispec_verify.errors import InputError  # noqa: E402
from resispec_verify.models.gguf_file import load_llama, open_gguf  # noqa: E402
from resispec_verify.models.llama import LlamaModel, rounded  # noqa: E402
from resispec_verify.models.opening import Variant, open_models  # noqa: E402

SEQUENCE = [5, 9, 33, 2, 17, 8, 40, 21, 3, 3, 12]
SKIP1 = Variant(skip_layers=(1,))


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def llama(gguf_path):
    return load_llama(open_gguf(gguf_path), "tiny", torch.float64)


def full(llama, sequence=SEQUENCE, last=None):
    return llama.logits(torch.tensor(sequence), last or len(sequence)).numpy()


def test_the_kept_keys_and_values_change_nothing(llama):
    model, expected = LlamaModel(llama), full(llama)
    for end in range(1, len(SEQUENCE) + 1):
        assert np.allclose(model.logits(SEQUENCE[:end]), expected[end - 1 : end], atol=1e-12)
    for sequence, last in (
        (SEQUENCE, 4),
        (SEQUENCE[:6], 3),
        ([*SEQUENCE[:4], 50, 51], 1),
        ([7], 1),
        (SEQUENCE, 11),
    ):
        assert np.allclose(model.logits(sequence, last), full(llama, sequence, last), atol=1e-12)


def test_rows_depend_on_earlier_tokens_only(llama):
    changed = [*SEQUENCE[:6], 44, *SEQUENCE[7:]]
    assert np.allclose(full(llama)[:6], full(llama, changed)[:6], atol=1e-12)
    assert not np.allclose(full(llama)[6:], full(llama, changed)[6:], atol=1e-3)


def test_an_output_matrix_of_its_own_is_used(tmp_path):
    tied = load_llama(open_gguf(write_gguf(tmp_path / "a.gguf")), "a")
    untied = load_llama(open_gguf(write_gguf(tmp_path / "b.gguf", tied=False)), "b")
    assert torch.equal(tied.output, tied.weights["token_embd.weight"])
    assert not torch.equal(untied.output, untied.weights["token_embd.weight"])


def test_rounding_is_to_the_nearest_of_the_steps_between_the_extremes():
    weights = torch.randn(5, 70, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights[2, :32] = 1.25  # a group without extent
    got = rounded(weights, 3).numpy()
    for row, found in zip(weights.numpy(), got, strict=True):
        for start in (0, 32, 64):
            group, values = row[start : start + 32], found[start : start + 32]
            levels = np.linspace(group.min(), group.max(), 8)
            nearest = levels[np.abs(group[:, None] - levels).argmin(1)]
            assert np.allclose(values, nearest, atol=1e-12)


def test_drafts_made_of_the_target(gguf_path, llama):
    def draft(**options):
        return open_models(gguf_path, None, Variant(**options)).draft

    expected = full(llama.without([1]), last=3)
    assert np.allclose(draft(skip_layers=(1,)).logits(SEQUENCE, 3), expected, atol=1e-4)
    window = draft(window=4).logits(SEQUENCE, 3)
    for i, end in enumerate(range(len(SEQUENCE) - 2, len(SEQUENCE) + 1)):
        assert np.allclose(window[i], full(llama, SEQUENCE[end - 4 : end], 1)[0], atol=1e-4)
    assert np.allclose(draft(window=40).logits(SEQUENCE, 3), full(llama, last=3), atol=1e-4)
    coarse = draft(round_bits=2).logits(SEQUENCE, 3)
    fine = draft(round_bits=12).logits(SEQUENCE, 3)
    assert np.abs(fine - full(llama, last=3)).max() < 0.1 < np.abs(coarse - full(llama, last=3)).max()
    both = draft(skip_layers=(0, 2), window=4).logits(SEQUENCE, 1)
    assert np.allclose(both[0], full(llama.without([0, 2]), SEQUENCE[-4:], 1)[0], atol=1e-4)


def test_text_becomes_tokens(gguf_path, tmp_path):
    opened = open_models(gguf_path, None, SKIP1)
    assert [TOKENS[i] for i in opened.encode("the a cat")] == ["th", "e", "Ġa", "Ġ", "c", "a", "t"]
    assert opened.encode("<s>ab")[0] == 0
    with_bos = open_models(write_gguf(tmp_path / "bos.gguf", bos=True), None, SKIP1)
    assert with_bos.encode("ab") == [0, *opened.encode("ab")]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architecture": "qwen2"}, "only 'llama' is read"),
        ({"tensors": {"blk.0.attn_q.bias": np.zeros(WIDTH, np.float32)}}, "has blk.0.attn_q.bias"),
        ({"tensors": {"rope_freqs.weight": np.zeros(2, np.float32)}}, "has rope_freqs.weight"),
    ],
)
def test_models_that_would_be_computed_wrongly_are_refused(tmp_path, changes, word):
    path = write_gguf(tmp_path / "other.gguf", **changes)
    with pytest.raises(InputError, match=word):
        open_models(path, None, SKIP1)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tokenizer": False}, "has no tokenizer"),
        ({"pre": "llama-bpe"}, "pre-tokenizer 'llama-bpe' is not read"),
        ({"tokenizer_model": "llama"}, "tokenizer 'llama'"),
    ],
)
def test_tokenizers_that_are_not_read_are_named_with_the_way_out(tmp_path, changes, word):
    opened = open_models(write_gguf(tmp_path / "other.gguf", **changes), None, SKIP1)
    with pytest.raises(InputError, match=word) as caught:
        opened.encode("abc")
    assert '{"tokens": [1, 2, 3]}' in str(caught.value)


def test_what_is_no_model_is_refused(tmp_path, gguf_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(20))
    (tmp_path / "cut.gguf").write_bytes(gguf_path.read_bytes()[:3000])
    for name, word in (
        ("missing.gguf", "no such model"),
        ("notes.txt", "neither a .gguf file nor a folder"),
        ("bad.gguf", "not a readable GGUF file"),
        ("cut.gguf", "not a readable GGUF file"),
    ):
        with pytest.raises(InputError, match=word):
            open_models(tmp_path / name, None, SKIP1)
    for variant, word in ((Variant((3,)), "layer 3 is not one"), (Variant((0, 1, 2)), "every layer")):
        with pytest.raises(InputError, match=word):
            open_models(gguf_path, None, variant)
    with pytest.raises(InputError, match="leave --device out"):
        open_models(gguf_path, None, SKIP1, "cuda")


def test_another_model_as_draft_needs_the_same_vocabulary(tmp_path, gguf_path):
    other = write_gguf(tmp_path / "other.gguf", seed=7, blocks=1)
    opened = open_models(gguf_path, other, Variant())
    assert not np.allclose(opened.target.logits(SEQUENCE), opened.draft.logits(SEQUENCE))
    short = write_gguf(tmp_path / "short.gguf", tokens=TOKENS[:-1])
    with pytest.raises(InputError, match="vocabularies of 62 and 61"):
        open_models(gguf_path, short, Variant())
    swapped = [*TOKENS[:2], *TOKENS[3:1:-1], *TOKENS[4:]]
    with pytest.raises(InputError, match=f"differ on 2 tokens, such as '{LETTERS[0]}'"):
        open_models(gguf_path, write_gguf(tmp_path / "swapped.gguf", tokens=swapped), Variant())


@pytest.mark.parametrize("package", ["torch", "gguf"])
def test_a_missing_package_is_named_with_the_command(gguf_path, monkeypatch, package):
    for name in ("gguf_file", "llama"):
        monkeypatch.delitem(sys.modules, f"resispec_verify.models.{name}")
        monkeypatch.delattr(resispec_verify.models, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"needs the package {package}.*pip install torch gguf tokenizers"):
        open_models(gguf_path, None, SKIP1)


@pytest.fixture(scope="module")
def folder(gguf_path, llama, tmp_path_factory):
    """The tiny Llama as a Hugging Face folder."""
    transformers = pytest.importorskip("transformers", reason="needs the package transformers")
    config = transformers.LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=3,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5, rope_theta=1000.0, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    names = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    state = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    state |= {
        f"model.layers.{b}.{k}.weight": f"blk.{b}.{v}.weight" for b in range(3) for k, v in names.items()
    }
    state = {key: llama.weights[name].float() for key, name in state.items()}
    for key, value in state.items():  # GGUF interleaves the halves that the rotary embedding pairs
        if "q_proj" in key or "k_proj" in key:
            width = WIDTH // HEADS
            state[key] = value.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)
    model.load_state_dict(state, strict=False)
    path = tmp_path_factory.mktemp("folder")
    model.save_pretrained(path)
    return path


def test_both_loaders_compute_the_same(folder, llama):
    opened = open_models(folder, None, SKIP1)
    assert np.allclose(opened.target.logits(SEQUENCE, 5), full(llama, last=5), atol=1e-4)
    for end in (3, 4, 8, 11, 6, 11):
        assert np.allclose(opened.target.logits(SEQUENCE[:end]), full(llama)[end - 1], atol=1e-4)
        assert np.allclose(opened.draft.logits(SEQUENCE[:end]), full(llama.without([1]))[end - 1], atol=1e-4)
    assert opened.target.context == CONTEXT
    coarse = open_models(folder, None, Variant(round_bits=3)).draft.logits(SEQUENCE, 2)
    assert np.allclose(coarse, full(llama.rounded(3), last=2), atol=1e-4)
    assert np.allclose(opened.target.logits(SEQUENCE, 5), full(llama, last=5), atol=1e-4)


def test_folders_without_what_is_needed_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"no config\.json"):
        open_models(tmp_path, None, SKIP1)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be loaded"):
        open_models(tmp_path, None, SKIP1)
    with pytest.raises(InputError, match="has no tokenizer"):
        open_models(folder, None, SKIP1).encode("abc")
