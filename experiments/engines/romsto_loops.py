"""romsto/Speculative-Decoding: its loop with a draft model, and the one with n-grams."""

from survey import Configuration, Engine
from toys import TEXT_SETTINGS, TEXTS, Causal, texts


def _given(length):
    from utils.logits_processor import MultinomialProcessor

    return {"logits_processor": MultinomialProcessor(1.0), "max_gen_len": length, "eos_tokens_id": -1}


def _drafted(**options):
    def loop(target, draft, prompt, length):
        from sampling import speculative_generate

        models = Causal(draft), Causal(target)
        return speculative_generate(prompt, *models, gamma=3, **_given(length), **options)[0]

    return texts(loop)


def ngrams(target, draft, prompt, length):
    """Bigrams of the text and of the target's three best tokens at each place, which are its defaults."""
    from ngram_assisted import OneLevelNGramStorage, ngram_assisted_speculative_generate

    storage = OneLevelNGramStorage(2, len(target))
    return ngram_assisted_speculative_generate(prompt, storage, Causal(target), gamma=3, **_given(length))[0]


def _row(name, what, sampler):
    return Configuration(name, what, sampler, "text", TEXT_SETTINGS, TEXTS)


ENGINE = Engine(
    "romsto/Speculative-Decoding",
    (
        _row("drafted", "speculative_generate, gamma 3, no cache", _drafted()),
        _row("unadjusted", "the same, skip_sample_adjustment", _drafted(skip_sample_adjustment=True)),
        _row("ngrams", "ngram_assisted_speculative_generate, bigrams, gamma 3", texts(ngrams)),
    ),
    repository="romsto/Speculative-Decoding",
    commit="db7db67604359d0380c330c240c276ec1f85ba65",
    needs=("torch==2.13.0", "transformers==4.57.6", "termcolor==3.3.0"),
)
