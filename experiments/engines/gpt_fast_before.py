"""gpt-fast at the last commit before batches came, with which its speculative decoding stopped working."""

from gpt_fast_loop import loop
from survey import Configuration, Engine, Judgement
from toys import TEXT_SETTINGS, TEXTS, texts

ENGINE = Engine(
    "gpt-fast",
    (
        Configuration(
            "drafted",
            "generate with a draft model, speculate_k 3",
            texts(loop),
            "text",
            TEXT_SETTINGS,
            TEXTS,
            "toy models; its tokenizer is not imported",
            judgement=Judgement(
                "as claimed",
                "Not rejected, but accepts at a float32 uniform of 0, once in 2^24: its test is "
                "rand > q / p, and a token of probability 0, of which its top-k makes many, comes "
                "out. Its draw, the largest of p / exponential, gives one at a float64 uniform of 0, "
                "once in 2^53.",
            ),
        ),
    ),
    repository="meta-pytorch/gpt-fast",
    commit="e2cfa34145e7f14f8390c8ab727f8d7451b26fec",
    needs=("torch==2.13.0",),
)
