"""dilab-zju/self-speculative-decoding ("Draft & Verify"): `self_speculative_sample`."""

from contextlib import contextmanager
from functools import partial

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TEXT_SETTINGS, TEXTS, Causal, texts


class Model(Causal):
    """One model that is its own draft while layers are skipped."""

    def __init__(self, target, draft):
        super().__init__(target)
        self._laws = self.logits, Causal(draft).logits

    @contextmanager
    def self_draft(self):
        """The draft."""
        self.logits = self._laws[1]
        yield
        self.logits = self._laws[0]

    def __call__(self, **given):
        """As a dictionary."""
        return vars(super().__call__(**given))


def text(target, draft, prompt, length, do_sample_draft):
    """At temperature 1."""
    import torch
    import transformers

    # Gone from transformers; at top_k 0 and top_p 1 it does nothing.
    transformers.top_k_top_p_filtering = lambda logits, **_: logits
    from decoding import self_speculative_sample

    found = self_speculative_sample(
        Model(target, draft), None, torch.tensor([prompt]), length, max_step_draft=3, top_k=0, top_p=1.0,
        temperature=1.0, do_sample=True, do_sample_draft=do_sample_draft,
    )  # fmt: skip
    return found["generate_ids"][0].tolist()


def _row(name, what, sampler, judgement):
    return Configuration(name, what, sampler, "text", TEXT_SETTINGS, TEXTS, NOTE, judgement)


NOTE = "transformers' top_k_top_p_filtering, which newer ones do not have, is the identity"
ENGINE = Engine(
    "self-speculative-decoding",
    (
        _row(
            "sampled",
            "self_speculative_sample, do_sample, do_sample_draft",
            texts(partial(text, do_sample_draft=True)),
            Judgement("as claimed", f"Not rejected; its test is r < p / q. {MULTINOMIAL}"),
        ),
        _row(
            "default-draft",
            "self_speculative_sample, do_sample, the default draft",
            texts(partial(text, do_sample_draft=False)),
            Judgement(
                "fault",
                "Unless do_sample_draft is given, the draft takes its best token and declares its "
                "whole law; with do_sample alone the result is not the target's.",
                "self_speculative_draft",
                "none found",
            ),
        ),
    ),
    repository="dilab-zju/self-speculative-decoding",
    commit="688db8b74a782af21777b7ad5aeb399d7eb26faf",
    needs=("torch==2.13.0", "transformers==4.57.6"),
)
