"""feifeibear/LLMSpeculativeSampling: both loops, with toy models of transformers' kind."""

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TEXT_SETTINGS, TEXTS, Causal, texts

NOTE = "tokens start at 1, because its `sample` raises on token 0"


REFUSED = f"{MULTINOMIAL} Here it is token 0, and `sample` raises."


def _loop(name, **options):
    def loop(target, draft, prompt, length):
        import sampling
        import torch

        given = torch.tensor([prompt])
        out = getattr(sampling, name)(given, Causal(draft), Causal(target), length, gamma=3, **options)
        return out[0, len(prompt) :].tolist()

    return texts(loop)


def _row(name, what, sampler, judgement):
    settings = {**TEXT_SETTINGS, "offset": 1}
    return Configuration(name, what, sampler, "text", settings, TEXTS, NOTE, judgement)


ENGINE = Engine(
    "LLMSpeculativeSampling",
    (
        _row(
            "google",
            "speculative_sampling with its KV cache, gamma 3",
            _loop("speculative_sampling"),
            Judgement(
                "as claimed",
                "Not rejected, but accepts at a float32 uniform of 0, once in 2^24: its test is "
                f"r > p / q, and a token of probability 0 comes out. {REFUSED}",
            ),
        ),
        _row(
            "deepmind",
            "speculative_sampling_v2, gamma 3",
            _loop("speculative_sampling_v2"),
            Judgement("as claimed", f"Not rejected; its test r < p / q has no such end. {REFUSED}"),
        ),
        _row(
            "seeded",
            "speculative_sampling, random_seed 1",
            _loop("speculative_sampling", random_seed=1),
            Judgement(
                "fault",
                "Torch is seeded before each uniform of a round: all are the same one, and the "
                "draw that follows comes from that seed too. Texts of different calls are alike, "
                "and the law is wrong over seeds as well.",
                "feifeibear_seeded",
                "none found",
            ),
        ),
    ),
    repository="feifeibear/LLMSpeculativeSampling",
    commit="59a209d37b2e463459057a784f8bd31c1136a58b",
    needs=("torch==2.13.0", "transformers==4.57.6"),
    environment={"TQDM_DISABLE": "1"},
)
