"""SGLang's penalties, bias and torch filters on rows of logits, on the CPU."""

import os

os.environ["TORCHDYNAMO_DISABLE"] = "1"

from importlib.metadata import version
from types import SimpleNamespace


import torch
from cases import V, record
from stubs import import_with_stubs

sampler, STUBS = import_with_stubs("sglang.srt.layers.sampler")
from sglang.srt.sampling import penaltylib  # noqa: E402 - after the stand-ins
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo  # noqa: E402

KNOWN = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias",
)  # fmt: skip


def penalised(logits, settings, output):
    """Logits after SamplingBatchInfo.apply_logits_bias, with a request's penalties."""
    names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    idle = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_new_tokens": 0}
    params = SimpleNamespace(**idle | {name: settings[name] for name in names if name in settings})
    params.stop_token_ids = None
    request = SimpleNamespace(sampling_params=params, tokenizer=SimpleNamespace(
        additional_stop_token_ids=None, eos_token_id=0))  # fmt: skip
    batch = SimpleNamespace(reqs=[request], device="cpu")
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(V, batch, [
        penaltylib.BatchedFrequencyPenalizer, penaltylib.BatchedMinNewTokensPenalizer,
        penaltylib.BatchedPresencePenalizer, penaltylib.BatchedRepetitionPenalizer,
    ])  # fmt: skip
    for token in output:
        if orchestrator.is_required:
            orchestrator.cumulate_output_tokens(torch.tensor([token]))
    bias = None
    if "logit_bias" in settings:
        bias = torch.zeros(1, V)
        for token, value in settings["logit_bias"].items():
            bias[0, int(token)] = value
    info = SimpleNamespace(
        acc_additive_penalties=None, acc_scaling_penalties=None, penalizer_orchestrator=orchestrator,
        grammar_mask=None, logit_bias=bias,
    )  # fmt: skip
    for name in ("_apply_pre_grammar_logits_transforms", "_apply_post_grammar_logits_transforms"):
        setattr(info, name, getattr(SamplingBatchInfo, name).__get__(info))
    SamplingBatchInfo.apply_logits_bias(info, logits)
    return logits


def law_of(logits, settings, prompt, output):
    """The filtered probabilities that the torch function samples from."""
    rows = penalised(torch.from_numpy(logits)[None], settings, output)
    probs = torch.softmax(rows / settings.get("temperature", 1.0), dim=-1)
    _, weights, tokens, _ = sampler.top_k_top_p_min_p_sampling_from_probs_torch(
        probs, torch.tensor([settings.get("top_k", V)]), torch.tensor([settings.get("top_p", 1.0)]),
        torch.tensor([settings.get("min_p", 0.0)]), "min_p" in settings, None, torch.zeros(1, dtype=torch.int64),
        return_filtered_probs=True,
    )  # fmt: skip
    law = torch.zeros(V)
    law[tokens[0].long()] = weights[0] / weights[0].sum()
    return law.numpy()


record("SGLang", "sglang", version("sglang"), KNOWN, law_of,
       "SamplingBatchInfo.apply_logits_bias and top_k_top_p_min_p_sampling_from_probs_torch, on the CPU; without its "
       f"packages {', '.join(STUBS)}")  # fmt: skip
