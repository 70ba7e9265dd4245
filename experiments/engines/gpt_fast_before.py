"""gpt-fast at the last commit before batches came, with which its speculative decoding stopped working."""

from gpt_fast_loop import loop
from survey import Configuration, Engine
from toys import TEXT_SETTINGS, TEXTS, texts

ENGINE = Engine(
    "gpt-fast",
    (
        Configuration(
            "drafted", "generate with a draft model, speculate_k 3", texts(loop), "text",
            TEXT_SETTINGS, TEXTS, "toy models; its tokenizer is not imported",
        ),
    ),
    repository="meta-pytorch/gpt-fast",
    commit="e2cfa34145e7f14f8390c8ab727f8d7451b26fec",
    needs=("torch==2.13.0",),
)  # fmt: skip
