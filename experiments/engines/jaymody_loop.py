"""jaymody/speculative-sampling: the loop of its blog post, in NumPy."""

import sys
from types import SimpleNamespace

from survey import Configuration, Engine, Judgement
from toys import TEXT_SETTINGS, TEXTS, texts


def loop(target, draft, prompt, length):
    """Its models are functions from tokens to the laws after each of them."""
    import numpy as np

    # picoGPT, a submodule of which it imports the models that are replaced here.
    sys.modules.setdefault("gpt2", SimpleNamespace(gpt2=None, softmax=None))
    sys.modules.setdefault("utils", SimpleNamespace(load_encoder_hparams_and_params=None))
    from main import speculative_sampling

    models = [lambda x, laws=laws: laws[x] for laws in (draft, target)]
    return speculative_sampling(np.array(prompt), *models, N=length, K=3)[len(prompt) :]


ENGINE = Engine(
    "jaymody/speculative-sampling",
    (
        Configuration(
            "loop",
            "speculative_sampling, K 3",
            texts(loop),
            "text",
            TEXT_SETTINGS,
            TEXTS,
            "its GPT-2 is replaced by toy models",
            Judgement(
                "as claimed",
                "Not rejected; no impossible token at NumPy uniforms of 0 and 1 - 2^-53.",
            ),
        ),
    ),
    repository="jaymody/speculative-sampling",
    commit="03b4759da6e894bacdc2f396dc4fd88c913bf94d",
    needs=("torch==2.13.0", "tqdm==4.70.1"),
    environment={"TQDM_DISABLE": "1"},
)
