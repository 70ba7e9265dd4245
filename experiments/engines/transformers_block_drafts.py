"""transformers: declared drafts of generators that read the target's hidden states, which are fixed here."""

import functools
import types

from survey import STYLE_OF_DRAFTS, Configuration, Engine, Judgement

VOCAB, WIDTH, LENGTH = 8, 8, 4


@functools.cache
def drafts(name):
    """A function of ``rng``: one draft by a head of random weights, with top-k 5 among the processors."""
    import torch
    from transformers import GenerationConfig, LlamaConfig
    from transformers.generation import candidate_generator, logits_process

    from resispec_verify.adapters.transformers import drafts_of

    torch.manual_seed(0)
    head, embeddings = torch.nn.Linear(WIDTH, VOCAB, bias=False), torch.nn.Embedding(VOCAB, WIDTH)
    hidden, ids = 3 * torch.randn(1, LENGTH, WIDTH), torch.tensor([[1, 2, 3, 4]])

    class ToyGemma4Assistant(torch.nn.Module):
        device = torch.device("cpu")
        generation_config = GenerationConfig()
        config = LlamaConfig(hidden_size=WIDTH, num_attention_heads=2, num_hidden_layers=1, vocab_size=VOCAB)

        def forward(self, **given):
            one = hidden if "noise_embeds" in given else hidden[:, :1]
            return types.SimpleNamespace(logits=head(one), last_hidden_state=one)

    toy = ToyGemma4Assistant
    toy.generation_config.num_assistant_tokens = 2
    toy.config.target_layer_ids, toy.config.block_size, toy.config.mask_token_id = [0], LENGTH, 0
    config = GenerationConfig(max_length=100, do_sample=True)
    processors = logits_process.LogitsProcessorList([logits_process.TopKLogitsWarper(5)])
    kind = getattr(candidate_generator, name)
    extra = {"logits_processor": processors, "generation_config": config}
    if "DFlash" in name:
        make = functools.partial(kind, toy(), embeddings, head, **extra)
    else:
        make = functools.partial(kind, toy(), embeddings, **extra)
    outputs = types.SimpleNamespace(hidden_states=[hidden] * 2, shared_kv_states={})
    given = {"position_ids": torch.arange(4)[None], "attention_mask": torch.ones(1, 4).long()}
    return drafts_of(
        make, ids, model_kwargs=given, model_outputs=outputs, is_first_iteration=False, n_last_matches=0
    )


def row(name, kind, judgement):
    """A configuration."""
    return Configuration(
        name, f"{kind}, sampling, top-k 5", lambda rng: drafts(kind)(rng), STYLE_OF_DRAFTS,
        settings={"draws": 16_000, "call_seconds": 600}, judgement=judgement,
    )  # fmt: skip


ENGINE = Engine(
    "transformers",
    (
        row("dflash", "DFlashTokenCandidateGenerator", Judgement(
            "not rejected", "It declares what it draws from; release 5.15.0 did not.")),
        row("single-position", "SinglePositionMultiTokenCandidateGenerator", Judgement(
            "fault", "Also when sampling it takes the most probable token and declares the whole softmax, by "
            "which the step divides: with draft and target equal, always the most probable token comes out.",
            "transformers_single_position", "huggingface/transformers#47932")),
    ),
    package="transformers",
    needs=("transformers==5.24.0", "torch==2.13.0"),
)  # fmt: skip
