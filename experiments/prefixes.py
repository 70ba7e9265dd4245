"""All rules on the same prefixes: what compares rules.

A text of the target is sampled after each passage, and its places are the prefixes. Accepted lengths of exact
rules, and the bounds beside them, are known along the text without a candidate drawn; ResiSpec, which is not
exact, walks by itself from some of the places (`lengths`). Which places those are goes round from passage to
passage, also among those of one form, so that over many passages all places are walked from alike. The log
has one line a passage and temperature; a run that was ended goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import lengths
import numpy as np
from lengths import Along, Laws, Walk
from pairs import Job, ModelPair
from passages import passage
from tables import Mean, appended, line_logs, mean, ratio, read_log

from resispec_verify.decoding import TreeModel, tree_model
from resispec_verify.distributions import Sampling
from resispec_verify.models.opening import Opened
from resispec_verify.record.loops import check_prompts, draw
from resispec_verify.rules import make_rule

RULES = ("specinfer", "resispec", "optimal-sequential", "optimal-joint")
ROUND = 12  # passages: every form once


def log_of(job: Job, pair: str) -> Path:
    """Where the prefixes of a pair are."""
    return job.results / f"prefixes-{pair}.jsonl"


def measure(job: Job, pair: ModelPair) -> None:
    """Add lines to the log of a pair, in rounds of passages, until errors are small or its time is spent."""
    job = replace(job, config=job.config | {"prefixes": _settings(job, pair.name)})
    settings, seed = job.config["prefixes"], job.config["seed"]
    path = log_of(job, pair.name)
    _, lines = read_log(path)
    known = {(line["temperature"], line["prompt"]) for line in lines}
    opened = pair.open()
    models = tree_model(opened.target), tree_model(opened.draft)
    with appended(path, pair.describe() | {"seed": seed} | settings) as add:
        for number in range(settings["passages"]):
            if number % ROUND == 0 and _enough(settings, lines):
                break
            if all((temperature, number) in known for temperature in job.config["temperatures"]):
                continue
            for line in _passage(job, opened, models, number):
                if (line["temperature"], number) not in known:
                    lines.append(line)
                    add(line)


def _settings(job: Job, pair: str) -> dict[str, Any]:
    """The settings for a pair: those for all, but for what it has of its own."""
    settings = dict(job.config["prefixes"])
    own = settings.pop("pairs", {})
    return settings | own.get(pair, {})


def _enough(settings: dict[str, Any], lines: list[dict[str, Any]]) -> bool:
    if sum(line["seconds"] for line in lines) > settings["seconds"]:
        return True
    known = gathered([({"pair": ""}, lines)])
    errors = [m.length.error for key, m in known.items() if key[3] != "limit of any rule"]
    many = len({line["prompt"] for line in lines}) >= settings["least_passages"]
    return many and max(errors) <= settings["error"]


class Text(NamedTuple):
    """A text below a passage: the nodes before each of its tokens, the first the end of the passage."""

    temperature: float
    nodes: list[int]
    tokens: list[int]


def _passage(
    job: Job, opened: Opened, models: tuple[TreeModel, TreeModel], number: int
) -> list[dict[str, Any]]:
    """The lines of a passage: at every temperature a text of its own, all below the passage at once."""
    settings = job.config["prefixes"]
    begun = time.process_time()
    prompt = opened.encode(passage(number, job.config["seed"])[: job.config.get("prompt_characters")])
    levels = max(_shape(name)[0] for name in settings["rules"])
    check_prompts(opened.target, opened.draft, [prompt], settings["starts"] + 2 * levels)
    for model in models:
        model.open(prompt)
    grown = [0]

    def grow(tokens: Sequence[int], parents: Sequence[int]) -> range:
        for model in models:
            model.grow(tokens, parents)
        grown[0] += len(tokens)
        return range(grown[0] + 1 - len(tokens), grown[0] + 1)

    texts = _sampled(job, models[0], grow, number, settings["starts"] + levels - 2)
    shared, lines = time.process_time() - begun, []
    for text in texts:
        begun = time.process_time()
        line: dict[str, Any] = {"temperature": text.temperature, "prompt": number, "tokens": len(prompt)}
        line |= _measured(job, models, grow, number, text)
        line["seconds"] = round(time.process_time() - begun + shared / len(texts), 2)
        lines.append(line)
    return lines


def _shape(name: str) -> tuple[int, int]:
    """Levels and candidates of ``dLbN``."""
    levels, candidates = name[1:].split("b")
    return int(levels), int(candidates)


def _sampled(job: Job, target: TreeModel, grow: Any, number: int, tokens: int) -> list[Text]:
    """Texts of the target, one a temperature, each with a generator of its own."""
    texts = [Text(temperature, [0], []) for temperature in job.config["temperatures"]]
    chances = [np.random.default_rng((job.config["seed"] + number, _key(text))) for text in texts]
    for place in range(tokens):
        rows = target.logits([text.nodes[-1] for text in texts])
        drawn = [
            draw(Sampling(text.temperature).probabilities(row, dtype=np.float64), chance.random())
            for text, row, chance in zip(texts, rows, chances, strict=True)
        ]
        for text, token in zip(texts, drawn, strict=True):
            text.tokens.append(token)
        if place < tokens - 1:
            for text, child in zip(texts, grow(drawn, [text.nodes[-1] for text in texts]), strict=True):
                text.nodes.append(child)
    return texts


def _key(text: Text) -> int:
    return round(1000 * text.temperature)


def _measured(
    job: Job, models: tuple[TreeModel, TreeModel], grow: Any, number: int, text: Text
) -> dict[str, Any]:
    """What the log says of a text: by topology and rule P(level l is reached), mean over its starts."""
    settings, sampling = job.config["prefixes"], Sampling(text.temperature)

    def rows(nodes: Sequence[int]) -> list[np.ndarray]:
        return [sampling.probabilities(model.logits(nodes), dtype=np.float64) for model in models]

    def laws(nodes: Sequence[int]) -> Mapping[int, Laws]:
        return dict(zip(nodes, zip(*rows(nodes), strict=True), strict=True))

    apart, starts = settings["apart"], settings["starts"]
    places = list(range((number + number // ROUND) % apart, starts, apart))
    p, q = rows(text.nodes)
    found, acceptances = along_text(settings, p, q, np.asarray(text.tokens))
    walked = _walked(job, number, text, [text.nodes[place] for place in places], laws, grow)
    for name, at in walked.items():
        found[name]["resispec"] = at
    return {
        "starts": starts, "nodes": acceptances[places].round(5).tolist(),
        **{name: {rule: at.round(5).tolist() for rule, at in entry.items()} for name, entry in found.items()},
    }  # fmt: skip


def _walked(
    job: Job, number: int, text: Text, nodes: Sequence[int], laws: Any, grow: Any
) -> dict[str, np.ndarray]:
    """P(level l is reached) by ResiSpec on every topology, mean over its walks from these nodes.

    Walks with as many candidates serve all such topologies: their first levels are the same.
    """
    settings = job.config["prefixes"]
    wanted = {name: _shape(name) for name, rules in settings["rules"].items() if "resispec" in rules}
    wanted = {name: shape for name, shape in wanted.items() if shape[1] > 1}
    deepest = {n: max(levels for levels, m in wanted.values() if m == n) for _, n in wanted.values()}
    roads = [Walk(node, n, levels) for node in nodes for n, levels in deepest.items()]
    generator = np.random.default_rng((job.config["seed"] + number, _key(text), 1))
    ways = lengths.walks(make_rule("resispec"), roads, laws, grow, settings["draws"], generator)
    return {
        name: np.mean([w[: levels - 1] for w, r in zip(ways, roads, strict=True) if r.n == n], axis=0)
        for name, (levels, n) in wanted.items()
    }


def along_text(
    settings: dict[str, Any], p: np.ndarray, q: np.ndarray, tokens: np.ndarray
) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
    """P(level l is reached) by topology and rule or bound; acceptance of SpecInfer and OT with three."""
    shapes = {name: _shape(name) for name in settings["rules"]}
    plain = lengths.specinfer(p, q, tokens, max(3, *(n for _, n in shapes.values())))
    bounds = {n: lengths.limit(p, q, tokens, n) for n in {3, *(n for _, n in shapes.values())}}
    known: dict[tuple[str, int], Along] = {}

    def rule_along(rule: str, n: int) -> Along:
        if rule == "specinfer" or n == 1:  # with one candidate all are speculative sampling, ResiSpec too
            return plain[n - 1]
        make = {"optimal-sequential": lengths.optimal_sequential, "optimal-joint": lengths.optimal_joint}[
            rule
        ]
        if (rule, n) not in known:
            known[rule, n] = make(p, q, tokens, n)
        return known[rule, n]

    found: dict[str, dict[str, np.ndarray]] = {}
    for name, (levels, n) in shapes.items():
        entry = {
            rule: rule_along(rule, n).reached(settings["starts"], levels)
            for rule in settings["rules"][name]
            if rule != "resispec" or n == 1
        }
        entry["limit"] = bounds[n].reached(settings["starts"], levels)
        entry["limit of any rule"] = lengths.limit_of_any_rule(p, q, tokens, n, settings["starts"], levels)
        found[name] = entry
    return found, np.stack([plain[2].accepted, bounds[3].accepted], axis=-1)


class Measured(NamedTuple):
    """What a rule, or a bound, gives on a tree, over the texts of a pair at a temperature.

    Attributes
    ----------
    lengths : array (texts,)
        Expected accepted length, mean over the starts of a text.
    prompts : array (texts,)
        After which passage each text stands.
    """

    lengths: np.ndarray
    prompts: np.ndarray

    @property
    def length(self) -> Mean:
        """Mean accepted length; each text is a cluster, and the forms of the passages are strata."""
        return mean(self.lengths, self.prompts, self.prompts % ROUND)

    def ratio(self, other: Measured) -> Mean:
        """How often as long as another on the same texts."""
        return ratio(self.lengths, other.lengths, self.prompts, self.prompts % ROUND)

    def above(self, other: Measured) -> Mean:
        """By how much longer than another on the same texts."""
        return mean(self.lengths - other.lengths, self.prompts, self.prompts % ROUND)


def found(job: Job) -> dict[tuple[str, float, str, str], Measured]:
    """By pair, temperature, topology and rule; "limit" and "limit of any rule" stand beside the rules."""
    return gathered(line_logs(job, "prefixes"))


def gathered(logs: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]]) -> dict[Any, Measured]:
    """The same of heads and lines of logs."""
    values: dict[tuple[str, float, str, str], list[tuple[float, int]]] = {}
    for head, log in logs:
        for line in log:
            for topology, entry in line.items():
                if isinstance(entry, dict):
                    for rule, at in entry.items():
                        key = head["pair"], line["temperature"], topology, rule
                        values.setdefault(key, []).append((1.0 + math.fsum(at), line["prompt"]))
    return {key: Measured(*map(np.asarray, zip(*rows, strict=True))) for key, rows in values.items()}


def compared(job: Job, topologies: Sequence[str]) -> tuple[list[str], list[list[Any]], list[dict[str, Any]]]:
    """Head and rows of a table of some trees, and its records for a CSV file.

    Lengths with their errors, the bound, and on the same texts: ratios to SpecInfer, and ResiSpec's distance
    from the bound.
    """
    same, rows, records = found(job), [], []
    for pair, temperature in dict.fromkeys((key[0], key[1]) for key in same):
        for topology in topologies:
            mine = {key[3]: m for key, m in same.items() if key[:3] == (pair, temperature, topology)}
            if not mine:
                continue
            base, bound = mine["specinfer"], mine["limit"]
            means = [mine[name].length if name in mine else "" for name in (*RULES, "limit")]
            gains = [mine[name].ratio(base) if name in mine else "" for name in RULES[1:]]
            above = mine["resispec"].above(bound) if "resispec" in mine else ""
            rows.append([pair, f"{temperature:g}", topology, len(base.lengths), *means, *gains, above])
            records += [
                {
                    "pair": pair, "temperature": temperature, "tree": topology, "rule": name,
                    "accepted_length": m.length.value, "standard_error": m.length.error,
                    "over_specinfer": m.ratio(base).value, "over_specinfer_error": m.ratio(base).error,
                    "above_limit": m.above(bound).value, "above_limit_error": m.above(bound).error,
                    "texts": len(m.lengths),
                }
                for name, m in mine.items()
            ]  # fmt: skip
    ratios = (f"{name} / specinfer" for name in RULES[1:])
    return ["pair", "T", "tree", "texts", *RULES, "limit", *ratios, "resispec - limit"], rows, records
