"""vLLM's first `Sampler` on rows of logits, on the CPU: its log-probabilities after all processing."""

import torch
import vllm
from cases import V, record
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.logits_processor.builtin import LogitBiasLogitsProcessor, MinPLogitsProcessor
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops import penalties
from vllm.v1.sample.sampler import Sampler

penalties.PIN_MEMORY = False  # there is no device to copy to
KNOWN = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias", "bad_words",
)  # fmt: skip


def processors(settings):
    """The built-in processors with the state that one request would give them."""
    found = []
    if "min_p" in settings:
        one = MinPLogitsProcessor.__new__(MinPLogitsProcessor)
        one.min_p, one.min_p_count = torch.tensor([[settings["min_p"]]]), 1
        found.append(one)
    if "logit_bias" in settings:
        one = LogitBiasLogitsProcessor.__new__(LogitBiasLogitsProcessor)
        tokens = [int(token) for token in settings["logit_bias"]]
        one.biases = {0: settings["logit_bias"]}
        one.bias_tensor = torch.tensor([*settings["logit_bias"].values()])
        one.logits_slice = (torch.zeros(len(tokens), dtype=torch.int64), torch.tensor(tokens))
        found.append(one)
    return LogitsProcessors(found)


def law_of(logits, settings, prompt, output):
    """The law that the sampler reports as processed log-probabilities."""

    def one(name, default, dtype=torch.float32):
        return torch.tensor([settings.get(name, default)], dtype=dtype)

    penalised = {"repetition_penalty", "presence_penalty", "frequency_penalty"}
    metadata = SamplingMetadata(
        temperature=one("temperature", 1.0), all_greedy=False, all_random=True,
        top_p=one("top_p", 1.0) if "top_p" in settings else None,
        top_k=one("top_k", V, torch.int32) if "top_k" in settings else None,
        generators={}, max_num_logprobs=V, no_penalties=not penalised & settings.keys(),
        prompt_token_ids=torch.tensor([prompt]), frequency_penalties=one("frequency_penalty", 0.0),
        presence_penalties=one("presence_penalty", 0.0), repetition_penalties=one("repetition_penalty", 1.0),
        output_token_ids=[list(output)], allowed_token_ids_mask=None,
        bad_words_token_ids={0: [[t] for t in settings["bad_words"]]} if "bad_words" in settings else {},
        logitsprocs=processors(settings),
    )  # fmt: skip
    found = Sampler(logprobs_mode="processed_logprobs")(torch.from_numpy(logits)[None], metadata)
    tokens, values = found.logprobs_tensors.logprob_token_ids[0], found.logprobs_tensors.logprobs[0]
    law = torch.zeros(V)
    law[tokens.long()] = values.exp()
    return law.numpy()


record("vLLM", "vllm", vllm.__version__, KNOWN, law_of,
       "v1/sample/sampler.py Sampler on the CPU, logprobs_mode processed_logprobs; built-in processors with "
       "their state set by hand")  # fmt: skip
