"""LayerSkip: `SelfSpeculativeGenerationStrategy`, rounds of a text."""

from types import SimpleNamespace

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TEXT_SETTINGS, TEXTS, Causal, texts


def loop(target, draft, prompt, length):
    """Its forward passes of Llama, of which one ends early, are toys."""
    import torch
    from self_speculation import self_speculation_generator as theirs
    from self_speculation.generator_base import GenerationConfig

    early, late = Causal(draft).logits, Causal(target).logits

    def forward(logits):
        def forwarded(model, ids, past, *_):
            return SimpleNamespace(logits=logits[ids.long()], past_key_values=past, exit_query_cache=None)

        return forwarded

    theirs.forward_early, theirs.forward_remainder = forward(early), forward(late)
    theirs.crop_past_key_values = lambda past, _: past
    config = GenerationConfig(
        max_steps=length, exit_layer=1, num_speculations=3, sample=True, temperature=1.0, top_k=0, top_p=1.0
    )
    model = SimpleNamespace(device=torch.device("cpu"))
    strategy = theirs.SelfSpeculativeGenerationStrategy()
    return strategy.generate_token_ids(model, prompt, [], config).predicted_tokens


NOTE = "its forward passes are toys without a cache"
ENGINE = Engine(
    "LayerSkip",
    (
        Configuration(
            "loop", "3 drafted tokens, temperature 1, top_p 1", texts(loop), "text",
            TEXT_SETTINGS, TEXTS, NOTE,
            Judgement("as claimed", f"Not rejected; its test is rand < p / q. {MULTINOMIAL}"),
        ),
    ),
    repository="facebookresearch/LayerSkip",
    commit="f42c66965545747d42e27d4beab86b5c17956566",
    needs=("torch==2.13.0", "transformers==4.57.6", "colorama==0.4.6"),
)  # fmt: skip
