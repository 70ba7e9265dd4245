"""SGLang's penalties, bias and torch filters on rows of logits, on the CPU.

Its modules import the whole server; so the definitions that are needed are taken from its installed files as
they are, and run with torch alone.
"""

import abc
import ast
import weakref
from importlib.metadata import distribution, version
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import torch
from cases import V, record

SOURCE = Path(str(distribution("sglang").locate_file("sglang/srt")))


def defined(file, *names, **given):
    """Definitions of one of its files, without the imports; ``given`` are names that they use."""
    space = dict(given, torch=torch, abc=abc, weakref=weakref, Optional=Optional)
    for node in ast.parse((SOURCE / file).read_text()).body:
        if getattr(node, "name", None) in names:
            exec(compile(ast.Module([node], []), str(file), "exec", dont_inherit=True, flags=_LATER), space)
    return SimpleNamespace(**{name: space[name] for name in names})


_LATER = __import__("__future__").annotations.compiler_flag
FOLDER = "sampling/penaltylib"
HELPERS = {
    "get_compiler_backend": lambda: "eager", "_is_npu": True, "is_pin_memory_available": lambda device: False,
}  # fmt: skip
ORCHESTRATOR = defined(f"{FOLDER}/orchestrator.py", "BatchedPenalizerOrchestrator", "_BatchedPenalizer")
BASE = HELPERS | {"_BatchedPenalizer": ORCHESTRATOR._BatchedPenalizer}
PENALIZERS = [
    getattr(defined(f"{FOLDER}/{file}.py", *names, **BASE), names[-1])
    for file, names in (
        ("frequency_penalty", ["BatchedFrequencyPenalizer"]),
        ("presence_penalty", ["BatchedPresencePenalizer"]),
        ("repetition_penalty", ["apply_scaling_penalties", "BatchedRepetitionPenalizer"]),
    )
]
SAMPLER = defined("layers/sampler.py", "top_k_top_p_min_p_sampling_from_probs_torch")
KNOWN = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias",
)  # fmt: skip


class Batch:
    """A batch of one request; the orchestrator holds it by a weak reference."""

    def __init__(self, reqs):
        self.reqs, self.device = reqs, "cpu"


def penalised(logits, settings, output):
    """Logits after its penalties, in the order of apply_logits_bias; the bias is added here."""
    names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    idle = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    params = SimpleNamespace(**idle | {name: settings[name] for name in names if name in settings})
    batch = Batch([SimpleNamespace(sampling_params=params)])
    orchestrator = ORCHESTRATOR.BatchedPenalizerOrchestrator(V, batch, PENALIZERS)
    for token in output:
        if orchestrator.is_required:
            orchestrator.cumulate_output_tokens(torch.tensor([token]))
    if orchestrator.is_required:
        orchestrator.apply(logits)
    for token, value in settings.get("logit_bias", {}).items():  # as _apply_post_grammar_logits_transforms
        logits[0, int(token)] += value
    return logits


def law_of(logits, settings, prompt, output):
    """The filtered probabilities that the torch function samples from."""
    rows = penalised(torch.from_numpy(logits)[None], settings, output)
    probs = torch.softmax(rows / settings.get("temperature", 1.0), dim=-1)
    _, weights, tokens, _ = SAMPLER.top_k_top_p_min_p_sampling_from_probs_torch(
        probs, torch.tensor([settings.get("top_k", V)]), torch.tensor([settings.get("top_p", 1.0)]),
        torch.tensor([settings.get("min_p", 0.0)]), "min_p" in settings, None, torch.zeros(1).long(),
        return_filtered_probs=True,
    )  # fmt: skip
    law = torch.zeros(V)
    law[tokens[0].long()] = weights[0] / weights[0].sum()
    return law.numpy()


record("SGLang", "sglang", version("sglang"), KNOWN, law_of,
       "penaltylib's classes and top_k_top_p_min_p_sampling_from_probs_torch as installed, on the CPU; "
       "temperature, softmax and bias are added by the script")  # fmt: skip
