"""feifeibear/LLMSpeculativeSampling: both loops, with toy models of transformers' kind."""

from survey import Configuration, Engine
from toys import TEXT_SETTINGS, TEXTS, Causal, texts

NOTE = "tokens start at 1, because its `sample` raises on token 0"


def _loop(name, **options):
    def loop(target, draft, prompt, length):
        import sampling
        import torch

        given = torch.tensor([prompt])
        out = getattr(sampling, name)(given, Causal(draft), Causal(target), length, gamma=3, **options)
        return out[0, len(prompt) :].tolist()

    return texts(loop)


def _row(name, what, sampler):
    settings = {**TEXT_SETTINGS, "offset": 1}
    return Configuration(name, what, sampler, "text", settings, TEXTS, NOTE)


ENGINE = Engine(
    "LLMSpeculativeSampling",
    (
        _row("google", "speculative_sampling with its KV cache, gamma 3", _loop("speculative_sampling")),
        _row("deepmind", "speculative_sampling_v2, gamma 3", _loop("speculative_sampling_v2")),
        _row("seeded", "speculative_sampling, random_seed 1", _loop("speculative_sampling", random_seed=1)),
    ),
    repository="feifeibear/LLMSpeculativeSampling",
    commit="59a209d37b2e463459057a784f8bd31c1136a58b",
    needs=("torch==2.13.0", "transformers==4.57.6"),
    environment={"TQDM_DISABLE": "1"},
)
