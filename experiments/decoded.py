"""Rules on their own text: each decodes every prompt by itself, as an engine would.

The text of an exact rule is distributed as the target's; that of another is not, and drifts from it. So the
numbers here say what a rule does where it has led itself; `prefixes` compares rules at the same places. The
log has one line a prompt and run; a run that was ended goes on where it was.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from pairs import Job, ModelPair
from tables import Mean, appended, line_logs, ratio, read_log

from resispec_verify.decoding import decode_steps, tree_model
from resispec_verify.distributions import Sampling
from resispec_verify.rules import make_rule
from resispec_verify.topology import Topology


class Run(NamedTuple):
    """A rule on a tree at a temperature."""

    tree: str
    rule: str
    temperature: float


def log_of(job: Job, pair: str) -> Path:
    """Where the decoded prompts of a pair are."""
    return job.results / f"decoded-{pair}.jsonl"


def runs(job: Job, pair: str) -> list[Run]:
    """The runs of a pair: rules by tree, each at its temperatures."""
    return [
        Run(tree, rule, temperature)
        for tree, entry in job.config["decoded"]["trees"].items()
        if pair in entry.get("pairs", [pair]) or pair not in job.config["pairs"]
        for rule in entry["rules"]
        for temperature in entry["temperatures"]
    ]


def topology_of(job: Job, tree: str) -> Topology:
    """A tree of the configuration: under its own name, or as its parents."""
    return Topology.parse(job.config["decoded"]["trees"][tree].get("parents", tree))


def measure(job: Job, pair: ModelPair) -> None:
    """Decode prompt after prompt with every run that still needs steps.

    A run ends when the standard error of its accepted length is small enough or its seconds are spent. Before
    the first prompt each run decodes one step that is not counted, so that kernels are compiled.
    """
    settings, seed = job.config["decoded"], job.config["seed"]
    path = log_of(job, pair.name)
    _, lines = read_log(path)
    opened = pair.open()
    models = tree_model(opened.target), tree_model(opened.draft)
    prompts = [opened.encode(text) for text in job.prompts(settings["prompts"])]

    def steps(run: Run, number: int, tokens: int) -> Any:
        return decode_steps(
            *models, prompts[number], rule=make_rule(run.rule), topology=topology_of(job, run.tree),
            tokens=tokens, sampling=Sampling(run.temperature), seed=seed + number, expected=True,
        )  # fmt: skip

    with appended(path, pair.describe() | {"seed": seed} | settings) as add:
        for run in runs(job, pair.name):
            list(steps(run, 0, 1))
        for number in range(len(prompts)):
            for run in runs(job, pair.name):
                mine = [line for line in lines if Run(*line["run"]) == run]
                if any(line["prompt"] == number for line in mine) or _enough(settings, mine):
                    continue
                begun = time.process_time()
                taken = list(steps(run, number, settings["tokens"]))
                line = {
                    "run": run, "prompt": number, "seed": seed + number,
                    "tokens": [token for step in taken for token in step.tokens],
                    "accepted": [step.accepted_length for step in taken],
                    "expected": [round(step.expected_length, 4) for step in taken],
                    "nodes": [step.nodes for step in taken],
                    "step_seconds": round(
                        sum(s.draft_seconds + s.target_seconds + s.verify_seconds for s in taken), 4
                    ),
                    "seconds": round(time.process_time() - begun, 2),
                }  # fmt: skip
                lines.append(line)
                add(line)


def _enough(settings: dict[str, Any], lines: list[dict[str, Any]]) -> bool:
    if sum(line["seconds"] for line in lines) > settings["seconds"]:
        return True
    return len(lines) >= settings["least_prompts"] and expected(lines).error <= settings["error"]


def expected(lines: list[dict[str, Any]]) -> Mean:
    """Mean over steps of the accepted length expected given the tree of the step; errors by prompt."""
    return ratio(
        [sum(line["expected"]) for line in lines], [len(line["expected"]) for line in lines],
        [line["prompt"] for line in lines],
    )  # fmt: skip


def realised(lines: list[dict[str, Any]]) -> Mean:
    """Tokens per target pass as they were emitted; errors by prompt."""
    return ratio(
        [sum(line["accepted"]) for line in lines], [len(line["accepted"]) for line in lines],
        [line["prompt"] for line in lines],
    )  # fmt: skip


def found(job: Job) -> dict[tuple[str, Run], list[dict[str, Any]]]:
    """The lines of all logs by pair and run."""
    lines: dict[tuple[str, Run], list[dict[str, Any]]] = {}
    for head, log in line_logs(job, "decoded"):
        for line in log:
            line["device"] = head.get("device", "cpu")
            lines.setdefault((head["pair"], Run(*line["run"])), []).append(line)
    return lines


def count(lines: list[dict[str, Any]]) -> int:
    """Number of steps."""
    return sum(len(line["accepted"]) for line in lines)


def throughput(lines: list[dict[str, Any]]) -> str:
    """Tokens per second of wall-clock time on a GPU; on a CPU nothing that would mean anything."""
    if lines[0]["device"] == "cpu":
        return ""
    return f"{sum(len(line['tokens']) for line in lines) / sum(line['step_seconds'] for line in lines):.2f}"
