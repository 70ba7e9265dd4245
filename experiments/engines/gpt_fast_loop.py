"""gpt-fast: `generate` with a draft model, at the newest commit and at the last one before batches came.

Two clones are wanted for the two rows; the second is at the commit of `gpt_fast_before.py`.
"""

import sys
from types import SimpleNamespace

from survey import Configuration, Engine, Judgement
from toys import TEXT_SETTINGS, TEXTS, texts


class Model:
    """Called with tokens and positions; keeps no cache, since the last token says all."""

    config = SimpleNamespace(block_size=1 << 20)

    def __init__(self, laws):
        import torch

        self.logits = torch.from_numpy(laws).log().float()

    def __call__(self, x, input_pos):
        """Logits after each token."""
        return self.logits[x]

    def setup_caches(self, max_batch_size, max_seq_length):
        """Nothing to set up."""


def loop(target, draft, prompt, length, **options):
    """`generate` at temperature 1."""
    import torch

    sys.modules.setdefault("tokenizer", SimpleNamespace(get_tokenizer=None))  # not used, and needs more
    import generate

    models = Model(target), Model(draft)
    given = torch.tensor(prompt, dtype=torch.int)
    out, _ = generate.generate(
        models[0], given, length, interactive=False, draft_model=models[1], speculate_k=3, **options
    )
    return out.flatten()[len(prompt) :].tolist()


def _newest(*given):
    return loop(*given, batch_size=1)


ENGINE = Engine(
    "gpt-fast",
    (
        Configuration(
            "newest",
            "generate with a draft model, speculate_k 3",
            texts(_newest),
            "text",
            TEXT_SETTINGS,
            TEXTS,
            "toy models; its tokenizer is not imported",
            judgement=Judgement(
                "fault",
                "Raises in the first round since batches came (61c193d): shapes do not fit.",
                "gpt_fast_speculative",
                "meta-pytorch/gpt-fast#209",
            ),
        ),
    ),
    repository="meta-pytorch/gpt-fast",
    commit="32971d3129541c5bfb4f715abc33d1c5f408d204",
    needs=("torch==2.13.0",),
)
