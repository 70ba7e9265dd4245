"""Adapters against the real packages, where they are installed; the faults of certain releases among them."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from resispec_verify.sampler_check.battery import chains
from resispec_verify.sampler_check.check import CheckSettings, check_sampler

BLOCK = CheckSettings(style="block", draws=2000, batches=(8,))
FEW = [chains()[0], chains()[2]]


def test_flashspec_is_not_rejected():
    adapter = pytest.importorskip("resispec_verify.adapters.flashspec", exc_type=ImportError)
    for sampler in (adapter.block_sampler, adapter.onehot_sampler):
        assert check_sampler(sampler, BLOCK, inputs=FEW).verdict == "not-rejected"
    ragged = CheckSettings(style="block", draws=2000, batches=(8,), ragged=True)
    assert check_sampler(adapter.onehot_sampler, ragged, inputs=FEW).verdict == "not-rejected"


@pytest.fixture(scope="module")
def adapter():
    return pytest.importorskip("resispec_verify.adapters.transformers", exc_type=ImportError)


def test_the_verification_of_transformers_is_not_rejected_and_its_ensemble_is(adapter):
    # 2,000 draws of each chain: TV below .2 may remain, as the result says.
    result = check_sampler(adapter.block_sampler, BLOCK, inputs=FEW)
    assert result.verdict == "not-rejected"
    if "assistant_ensemble_weight" in adapter.utils._speculative_sampling.__code__.co_varnames:
        lossy = check_sampler(adapter.ensemble_sampler(0.2), BLOCK, inputs=FEW)
        assert lossy.verdict == "rejected"


def test_the_verification_of_transformers_accepts_at_a_uniform_of_0(adapter):
    import transformers

    if release(transformers) != (5, 24, 0):
        pytest.skip(f"a comparison of transformers 5.24.0; {transformers.__version__} is installed")
    certain = [chains()[1]]  # its path has tokens that the target never emits
    result = check_sampler(adapter.block_sampler, BLOCK, inputs=certain)
    first = result.ends["faults"][0]
    assert (first["end"], first["dtype"], first["log2_probability"]) == ("lowest", "float32", -24)
    assert "exactly 0 (once in 2^24 draws at float32)" in result.reason
    settings = dataclasses.replace(BLOCK, fail_ends="none")
    assert check_sampler(adapter.block_sampler, settings, inputs=certain).verdict == "not-rejected"


def release(transformers):
    return tuple(int(part) for part in transformers.__version__.split(".")[:3])


VOCAB, WIDTH, LENGTH = 128, 16, 4


@pytest.fixture(scope="module")
def toy(adapter):
    """A model of one linear layer with fixed states: what is declared never changes."""
    import torch

    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCAB, bias=False)
    head.weight.data = torch.randn(VOCAB, WIDTH, generator=generator) / 4
    hidden = torch.randn(1, LENGTH, WIDTH, generator=generator)
    return types.SimpleNamespace(
        head=head,
        hidden=hidden,
        embeddings=torch.nn.Embedding(VOCAB, WIDTH),
        ids=torch.tensor([[1, 2, 3, 4]]),
        arguments={
            "model_kwargs": {
                "position_ids": torch.arange(4)[None],
                "attention_mask": torch.ones(1, 4).long(),
            },
            "model_outputs": types.SimpleNamespace(hidden_states=[hidden] * 2, shared_kv_states={}),
            "is_first_iteration": False,
            "n_last_matches": 0,
        },
    )


def dflash(adapter, toy):
    """The real DFlash generator over the toy, with top-k 50 among the request's processors."""
    import torch
    from transformers import GenerationConfig, LlamaConfig
    from transformers.generation import candidate_generator
    from transformers.generation.logits_process import LogitsProcessorList, TopKLogitsWarper

    if not hasattr(candidate_generator, "DFlashTokenCandidateGenerator"):
        pytest.skip("this release of transformers has no DFlash generator")

    class Assistant(torch.nn.Module):
        device = torch.device("cpu")
        config = LlamaConfig(
            hidden_size=WIDTH, num_attention_heads=2, num_hidden_layers=1, num_key_value_heads=2,
            intermediate_size=16, vocab_size=VOCAB,
        )  # fmt: skip

        def forward(self, **given):
            return types.SimpleNamespace(last_hidden_state=toy.hidden)

    Assistant.config.target_layer_ids, Assistant.config.block_size, Assistant.config.mask_token_id = (
        [0],
        LENGTH,
        0,
    )

    def make():
        return candidate_generator.DFlashTokenCandidateGenerator(
            Assistant(), toy.embeddings, toy.head, GenerationConfig(max_length=100, do_sample=True),
            logits_processor=LogitsProcessorList([TopKLogitsWarper(50)]),
        )  # fmt: skip

    return adapter.drafts_of(make, toy.ids, **toy.arguments)


def test_dflash_declares_what_it_draws_from_since_5_15_1(adapter, toy):
    import transformers

    from resispec_verify.sampler_check.draft import check_declared_draft

    result = check_declared_draft(dflash(adapter, toy), draws=1500)
    expected = "rejected" if release(transformers) == (5, 15, 0) else "not-rejected"
    assert result.verdict == expected


def test_the_single_position_generator_of_5_24_0_takes_the_argmax_and_declares_the_softmax(adapter, toy):
    import torch
    import transformers
    from transformers import GenerationConfig
    from transformers.generation import candidate_generator

    from resispec_verify.sampler_check.draft import check_declared_draft

    if release(transformers) != (5, 24, 0):
        pytest.skip(f"a fault of transformers 5.24.0; {transformers.__version__} is installed")

    class ToyGemma4Assistant(torch.nn.Module):
        device = torch.device("cpu")
        generation_config = GenerationConfig()

        def forward(self, **given):
            hidden = toy.hidden[:, :1]
            return types.SimpleNamespace(logits=toy.head(hidden), last_hidden_state=hidden)

    ToyGemma4Assistant.generation_config.num_assistant_tokens = 2

    def make():
        return candidate_generator.SinglePositionMultiTokenCandidateGenerator(
            ToyGemma4Assistant(), toy.embeddings, GenerationConfig(max_length=100, do_sample=True)
        )

    result = check_declared_draft(adapter.drafts_of(make, toy.ids, **toy.arguments), draws=1500)
    assert result.verdict == "rejected"
    declared = torch.softmax(toy.head(toy.hidden[:, 0]).detach(), -1)
    worst = result.witness["differences"][0]
    assert worst["seen"] == 1.0
    assert np.isclose(worst["target"], float(declared.max()))
