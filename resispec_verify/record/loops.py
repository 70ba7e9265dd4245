"""Recording from models: text sampled from the target, speculative rounds, and trees of candidates.

Everything is decided on the logits as they are stored: they are rounded to the type of the dump first, then
turned into probabilities in float64. So a reader of the dump can recompute each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps.opening import PathLike
from resispec_verify.errors import InputError
from resispec_verify.models.interface import Model, check_prompts
from resispec_verify.record.arrays import DTYPES, logits
from resispec_verify.record.recorder import Recorder
from resispec_verify.record.structured import RoundsRecorder, TreeRecorder
from resispec_verify.rules.proposals import Greedy, Iid, Pairs, Proposal, WithoutReplacement
from resispec_verify.topology import Topology

__all__ = [
    "SIBLINGS",
    "Model",
    "Settings",
    "check_prompts",
    "draw",
    "draw_candidates",
    "record_flat",
    "record_rounds",
    "record_trees",
]

Advance = Callable[[int], Any]

#: How the children of a node can be drawn, by the name that `meta["siblings"]` keeps.
SIBLINGS: dict[str, Proposal] = {
    proposal.name: proposal for proposal in (Iid(), WithoutReplacement(), Greedy(), Pairs())
}
SIBLINGS_IN_WORDS = {
    "iid": "drawn independently from the draft and may repeat",
    "without-replacement": "drawn from the draft one after the other, none twice, in the order of drawing",
    "fixed": "the draft's best tokens, the best first",
    "pairs": "the draft's best token and another one, in either order, as SpecHub draws them",
}


@dataclass(frozen=True)
class Settings:
    """What the three kinds of recording share.

    Attributes
    ----------
    temperature : float
        Of target and draft; the logits are recorded before it.
    seed : int
        Prompt i uses seed ``seed + i``.
    dtype : str
        Type of the logits in the file.
    meta : mapping
        Kept with the dump, with the sampling added.
    """

    temperature: float = 1.0
    seed: int = 0
    dtype: str = "float16"
    meta: Mapping[str, Any] | None = None

    def law(self, row: np.ndarray) -> np.ndarray:
        """Probabilities ``[..., V]`` of stored logits, float64."""
        return Sampling(self.temperature).probabilities(row, dtype=np.float64)

    def rows(self, name: str, model: Model, tokens: Sequence[int], last: int = 1) -> np.ndarray:
        """Logits ``[last, V]`` of a model as they are stored, checked."""
        first = len(tokens) - last
        return logits(name, model.logits(tokens, last), DTYPES[self.dtype], first, row="token")

    def described(self, rows: str) -> dict[str, Any]:
        """The meta of a dump."""
        sampling = {"temperature": self.temperature}
        return {**(self.meta or {}), "sampling": sampling, "seed": self.seed, "rows": rows}


def draw(weights: np.ndarray, u: float) -> int:
    """The token that a uniform number selects: the first whose cumulative weight exceeds ``u`` times the sum.

    The sum is in float64 and in the order of the tokens.
    """
    cumulative = np.cumsum(weights, dtype=np.float64)
    return int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))


def draw_candidates(
    proposal: Proposal, law: np.ndarray, count: int, generator: np.random.Generator
) -> list[int]:
    """Up to `count` candidates from a law ``(V,)`` in the order drawn; fewer where it has no more."""
    drawn: list[int] = []
    for _ in range(count):
        weights = proposal.next(law, tuple(np.asarray(token) for token in drawn))
        if not weights.any():
            break
        drawn.append(draw(weights, generator.random()))
    return drawn


def record_flat(
    path: PathLike,
    target: Model,
    draft: Model,
    prompts: Sequence[Sequence[int]],
    *,
    positions: int,
    top_k: int | None = None,
    settings: Settings = Settings(),
    advance: Advance = lambda done: None,
) -> None:
    """Record target and draft logits along text sampled from the target.

    Parameters
    ----------
    path : path
        The `.pt` file.
    target, draft : Model
        Of one vocabulary.
    prompts : sequence of sequences of int
        Token ids.
    positions : int
        Rows a prompt. With one prompt the logits are ``[positions, V]``, with several ``[prompts, positions,
        V]``.
    top_k : int, optional
        Keep so many of the most probable tokens of each law and the mass of the others, as `Recorder` does.
    settings : Settings
        Temperature, seed, type and meta.
    advance : callable
        Called with the number of rows done.

    Raises
    ------
    InputError
        Vocabularies that differ, a prompt that is empty, too long or of other tokens.
    """
    check_prompts(target, draft, prompts, positions - 1)
    meta = settings.described("row i follows context_tokens + tokens[:i+1] and predicts tokens[i+1]")
    emitted = []
    with Recorder(path, settings.dtype, meta, top_k=top_k) as recorder:
        for number, prompt in enumerate(prompts):
            generator = np.random.default_rng(settings.seed + number)
            sequence = list(prompt)
            for _ in range(positions):
                row = settings.rows("target_logits", target, sequence)
                recorder.add(target_logits=row, draft_logits=settings.rows("draft_logits", draft, sequence))
                sequence.append(draw(settings.law(row[0]), generator.random()))
                advance(1)
            emitted.append(sequence[len(prompt) - 1 :])
        contexts = [np.asarray(prompt[:-1], np.int64) for prompt in prompts]
        single = len(prompts) == 1
        if top_k is not None:
            recorder.note(next_tokens=np.asarray([row[1:] for row in emitted], np.int64).reshape(-1))
        recorder.note(
            tokens=np.asarray(emitted[0] if single else emitted, np.int64),
            context_tokens=contexts[0] if single else contexts,
        )
        if not single:
            recorder.shape_as(len(prompts), positions)


def record_rounds(
    path: PathLike,
    target: Model,
    draft: Model,
    prompts: Sequence[Sequence[int]],
    *,
    rounds: int,
    gamma: int,
    settings: Settings = Settings(),
    advance: Advance = lambda done: None,
) -> None:
    """Record rounds of speculative sampling with the uniform numbers that decided them.

    Token j of the draft is accepted iff ``u[j] * q < p``. After a rejection the next token is drawn from
    ``(p - q)_+``, after none from the last row of the target; `u_next` is the uniform number given to `draw`.

    Parameters
    ----------
    rounds, gamma : int
        Rounds a prompt, and draft tokens a round.

    The others are those of `record_flat`.
    """
    check_prompts(target, draft, prompts, rounds * (gamma + 1))
    meta = settings.described(
        "draft row j follows context and draft_tokens[:j]; accept draft_tokens[j] iff u[j] * q < p; context "
        "of a round = context_tokens of its prompt + what its rounds emitted so far"
    )
    meta["gamma"] = gamma
    output: list[int] = []
    with RoundsRecorder(path, settings.dtype, meta) as recorder:
        for number, prompt in enumerate(prompts):
            generator = np.random.default_rng(settings.seed + number)
            context = list(prompt)
            for _ in range(rounds):
                entry = _round(target, draft, context, gamma, settings, generator)
                extra = {"prompt": number} if len(prompts) > 1 else {}
                recorder.add(**entry, context_len=len(context), **extra)
                new = [*entry["draft_tokens"][: entry["accepted"]], entry["next_token"]]
                context += new
                output += new
                advance(1)
        contexts = [np.asarray(prompt, np.int64) for prompt in prompts]
        recorder.note(
            context_tokens=contexts[0] if len(prompts) == 1 else contexts,
            output_tokens=np.asarray(output, np.int64),
        )


def _round(
    target: Model,
    draft: Model,
    context: list[int],
    gamma: int,
    settings: Settings,
    generator: np.random.Generator,
) -> dict[str, Any]:
    tokens: list[int] = []
    rows = []
    for _ in range(gamma):
        rows.append(settings.rows("draft_logits", draft, context + tokens)[0])
        tokens.append(draw(settings.law(rows[-1]), generator.random()))
    verified = settings.rows("target_logits", target, context + tokens, gamma + 1)
    uniforms = generator.random(gamma)
    accepted, weights = gamma, settings.law(verified[gamma])
    for j, token in enumerate(tokens):
        p, q = settings.law(verified[j]), settings.law(rows[j])
        if not uniforms[j] * q[token] < p[token]:
            accepted, weights = j, np.maximum(p - q, 0)
            break
    u_next = generator.random()
    return {
        "draft_tokens": tokens,
        "draft_logits": np.stack(rows),
        "target_logits": verified,
        "u": uniforms,
        "accepted": accepted,
        "next_token": draw(weights, u_next),
        "u_next": u_next,
    }


# Nine parameters, as the other two have: models, texts, and what is recorded; the latter by name only.
def record_trees(
    path: PathLike,
    target: Model,
    draft: Model,
    prompts: Sequence[Sequence[int]],
    *,
    topology: Topology,
    siblings: str = "iid",
    positions: int = 1,
    settings: Settings = Settings(),
    advance: Advance = lambda done: None,
) -> None:
    """Record trees of candidates, the children of a node drawn from the draft at that node.

    Parameters
    ----------
    topology : Topology
        With a child at least.
    siblings : str
        How the children of a node are drawn, a key of `SIBLINGS`.
    positions : int
        Prefixes a prompt: the prompt itself, then the prompt with one, two, ... tokens sampled from the
        target.

    The others are those of `record_flat`.

    Raises
    ------
    InputError
        As `record_flat`; or at some node the draft has fewer tokens to draw than the node has children.
    """
    check_prompts(target, draft, prompts, positions + topology.levels - 3)
    meta = settings.described(
        "one row a node with children, in the order of the nodes; it follows the prefix and the path to that "
        f"node; tokens[n] is on the edge into n; siblings are {SIBLINGS_IN_WORDS[siblings]}"
    )
    meta["siblings"] = siblings
    with TreeRecorder(path, topology.parents, settings.dtype, meta) as recorder:
        for number, prompt in enumerate(prompts):
            generator = np.random.default_rng(settings.seed + number)
            prefix = list(prompt)
            for _ in range(positions):
                where = f"prompt {number}, prefix of {len(prefix)} tokens"
                entry = _tree(target, draft, prefix, topology, siblings, settings, generator, where)
                recorder.add(**entry, prefix=prefix)
                law = settings.law(entry["target_logits"][0])
                prefix = [*prefix, draw(law, generator.random())]
                advance(1)


def _tree(
    target: Model,
    draft: Model,
    prefix: list[int],
    topology: Topology,
    siblings: str,
    settings: Settings,
    generator: np.random.Generator,
    where: str,
) -> dict[str, Any]:
    proposal = SIBLINGS[siblings]
    paths: list[list[int]] = [prefix] + [[]] * (topology.nodes - 1)
    rows: dict[str, list[np.ndarray]] = {"target_logits": [], "draft_logits": []}
    for node, children in enumerate(topology.children):
        if not children:
            continue
        for key, model in (("target_logits", target), ("draft_logits", draft)):
            rows[key].append(settings.rows(key, model, paths[node])[0])
        row = rows["draft_logits"][-1]
        # The best tokens in turn are those of the logits, also where only the first has any probability.
        law = Sampling().probabilities(row, dtype=np.float64) if siblings == "fixed" else settings.law(row)
        drawn = draw_candidates(proposal, law, len(children), generator)
        if len(drawn) < len(children):
            raise InputError(
                f"{where}: node {node} needs {len(children)} candidates drawn {siblings}, and there are "
                f"only {len(drawn)}; raise --temperature, take fewer branches or other --siblings"
            )
        for child, token in zip(children, drawn, strict=True):
            paths[child] = [*paths[node], token]
    return {key: np.stack(found) for key, found in rows.items()} | {"tokens": [path[-1] for path in paths]}
