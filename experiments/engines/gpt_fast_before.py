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
                "Not rejected. Its test is rand > q / p: a token of probability 0, of which its "
                "top-k makes many, is accepted at a float32 uniform of 0.",
            ),
        ),
    ),
    repository="meta-pytorch/gpt-fast",
    commit="e2cfa34145e7f14f8390c8ab727f8d7451b26fec",
    needs=("torch==2.13.0",),
)
