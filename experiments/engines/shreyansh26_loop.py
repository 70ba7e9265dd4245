"""shreyansh26/Speculative-Sampling: its loop, with toy models of transformers' kind."""

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TEXT_SETTINGS, TEXTS, Causal, texts


def loop(target, draft, prompt, length):
    """At temperature 1."""
    import torch
    from speculative_sampling import speculative_sampling

    given, until = torch.tensor([prompt]), len(prompt) + length
    models = Causal(target), Causal(draft)
    out = speculative_sampling(*models, given, until, tokenizer=None, lookahead=3, debug=False)
    return out[0, len(prompt) :].tolist()


ENGINE = Engine(
    "shreyansh26/Speculative-Sampling",
    (
        Configuration(
            "loop",
            "lookahead 3, temperature 1",
            texts(loop),
            "text",
            TEXT_SETTINGS,
            TEXTS,
            judgement=Judgement("as claimed", f"Not rejected; its test is r < p / q. {MULTINOMIAL}"),
        ),
    ),
    repository="shreyansh26/Speculative-Sampling",
    commit="81fb3b2720dfc0725ac688f485da9dfbc3c02e22",
    needs=("torch==2.13.0", "transformers==4.57.6"),
)
