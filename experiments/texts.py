"""Text of the target after the prompts: the prefixes on which rules are compared."""

from __future__ import annotations

import json

import numpy as np
from pairs import Job, ModelPair

from resispec_verify.decoding import tree_model
from resispec_verify.distributions import Sampling
from resispec_verify.record.loops import check_prompts, draw

MOST_LEVELS = 8  # of a tree after a text


def sampled_prefixes(job: Job, pair: ModelPair) -> dict[tuple[int, int, float], list[int]]:
    """Prefixes by (tokens after the prompt, prompt, temperature); the shortest of all texts come first."""
    settings, found = job.config["texts"], {}
    sampled = texts(job, pair)
    for offset in range(settings["distance"], settings["tokens"] + 1, settings["distance"]):
        for number in range(settings["prompts"]):
            for temperature in job.config["temperatures"]:
                row = sampled[f"{temperature:g}"][number]
                found[offset, number, temperature] = row[: len(row) - settings["tokens"] + offset]
    return found


def texts(job: Job, pair: ModelPair) -> dict[str, list[list[int]]]:
    """By temperature: each prompt's token ids and those sampled after it, once for all pairs of a target.

    Prompt i uses seed s + i, like every decoding here. A text does not stop at an end-of-text token.
    """
    path = job.results / f"texts-{pair.target.name}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    settings, opened = job.config["texts"], pair.open()
    target = tree_model(opened.target)
    prompts = [opened.encode(text) for text in job.prompts(settings["prompts"])]
    check_prompts(opened.target, opened.draft, prompts, settings["tokens"] + MOST_LEVELS)
    found: dict[str, list[list[int]]] = {}
    for temperature in job.config["temperatures"]:
        rows = found.setdefault(f"{temperature:g}", [])
        for number, prompt in enumerate(prompts):
            generator = np.random.default_rng(job.config["seed"] + number)
            row = list(prompt)
            target.open(row)
            for _ in range(settings["tokens"]):
                law = Sampling(temperature).probabilities(target.logits([0])[0], dtype=np.float64)
                row.append(draw(law, generator.random()))
                target.advance([], row[-1:])
            rows.append(row)
    lines = (f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in found.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return found
