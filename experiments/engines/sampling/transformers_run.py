"""The logits processors that transformers itself puts in order, on rows of logits."""

import torch
import transformers
from cases import V, record
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

MODEL = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_layer=1, n_head=1, n_embd=4, n_positions=32))
KNOWN = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "logit_bias",
    "bad_words",
)


def law_of(logits, settings, prompt, output):
    """The law after all processors of one configuration."""
    given = {"top_k": 0} | {k: v for k, v in settings.items() if k not in ("logit_bias", "bad_words")}
    if "bad_words" in settings:
        given["bad_words_ids"] = [[token] for token in settings["bad_words"]]
    if "logit_bias" in settings:
        given["sequence_bias"] = [[[int(t)], bias] for t, bias in settings["logit_bias"].items()]
    config = GenerationConfig(do_sample=True, num_beams=1, **given)
    MODEL._prepare_special_tokens(config, kwargs_has_attention_mask=True, device="cpu")
    text = torch.tensor([[*prompt, *output]])
    processors = MODEL._get_logits_processor(generation_config=config, input_ids_seq_length=text.shape[1])
    return torch.softmax(processors(text, torch.from_numpy(logits)[None]), dim=-1)[0].numpy()


record("transformers", "transformers", transformers.__version__, KNOWN, law_of,
       "GenerationMixin._get_logits_processor of a model with random weights, float32")  # fmt: skip
