"""transformers: is a candidate drawn from the draft that its generator declares? Real classes.

`PromptLookupCandidateGenerator` declares no draft (its candidates are matched) and has no row.
"""

import functools

from survey import STYLE_OF_DRAFTS, Configuration, Engine, Judgement

VOCAB, WIDTH = 8, 8


def llama(layers):
    """A Llama of a few thousand weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=layers,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.6,
            bos_token_id=None, eos_token_id=None, pad_token_id=None,
        )
    ).eval()  # fmt: skip
    model.generation_config.num_assistant_tokens = 2
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@functools.cache
def drafts(name, layers, exit_layer):
    """A function of ``rng``: one draft, sampled at temperature 0.7 from the top 5, always after one text."""
    import torch
    from transformers import GenerationConfig
    from transformers.generation import candidate_generator, logits_process

    from resispec_verify.adapters.transformers import drafts_of

    config = GenerationConfig(max_length=60, do_sample=True, assistant_early_exit=exit_layer)
    config.update(temperature=0.7, top_k=5, min_length=0)
    warpers = [logits_process.TemperatureLogitsWarper(0.7), logits_process.TopKLogitsWarper(5)]
    ids, model, kind = torch.tensor([[1, 2, 3, 4]]), llama(layers), getattr(candidate_generator, name)
    processors = logits_process.LogitsProcessorList(warpers)
    return drafts_of(lambda: kind(ids, model, config, {}, logits_processor=processors), ids)


def row(name, what, kind, layers=1, exit_layer=None):
    """A configuration."""
    return Configuration(
        name, f"{kind}, {what}, temperature 0.7, top-k 5", lambda rng: drafts(kind, layers, exit_layer)(rng),
        STYLE_OF_DRAFTS, settings={"draws": 16_000, "call_seconds": 600},
        judgement=Judgement("not rejected", "It declares the law that it draws from, filters included."),
    )  # fmt: skip


ENGINE = Engine(
    "transformers",
    (
        row("assisted", "another model drafts", "AssistedCandidateGenerator"),
        row("early-exit", "the first layer drafts", "EarlyExitCandidateGenerator", 2, 1),
    ),
    package="transformers",
    needs=("transformers==5.24.0", "torch==2.13.0"),
)
