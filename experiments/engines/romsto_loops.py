"""romsto/Speculative-Decoding: its loop with a draft model, and the one with n-grams."""

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TEXT_SETTINGS, TEXTS, Causal, texts


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


def _row(name, what, sampler, judgement):
    return Configuration(name, what, sampler, "text", TEXT_SETTINGS, TEXTS, judgement=judgement)


ENGINE = Engine(
    "romsto/Speculative-Decoding",
    (
        _row(
            "drafted",
            "speculative_generate, gamma 3, no cache",
            _drafted(),
            Judgement(
                "as claimed",
                "Not rejected, but accepts at a float32 uniform of 0, once in 2^24: its test is "
                f"r > p / q, and a token of probability 0 comes out. {MULTINOMIAL}",
            ),
        ),
        _row(
            "unadjusted",
            "the same, skip_sample_adjustment",
            _drafted(skip_sample_adjustment=True),
            Judgement("lossy by design", "The option leaves out the residual; and r > p / q as above."),
        ),
        _row(
            "ngrams",
            "ngram_assisted_speculative_generate, bigrams, gamma 3",
            texts(ngrams),
            Judgement(
                "fault",
                "A token is drawn to compare with the drafted one; on a mismatch it is thrown "
                "away and another one drawn, so that the drafted token comes too often.",
                "romsto_ngrams",
                "none found",
            ),
        ),
    ),
    repository="romsto/Speculative-Decoding",
    commit="db7db67604359d0380c330c240c276ec1f85ba65",
    needs=("torch==2.13.0", "transformers==4.57.6", "termcolor==3.3.0"),
)
