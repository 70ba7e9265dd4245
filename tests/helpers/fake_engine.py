"""A fake inference engine with speculative decoding and planted faults, for the tests of audits.

The engine speculates as engines do: the first token after a prompt is drawn from the target, then rounds of
k draft tokens are verified, and a completion that is long enough is cut. `FAULTS` says what can be wrong
with it. `engines` and `callables` make the engine with a fault and its reference.

NumPy and the standard library only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from fake_models import VOCAB, Sampling, ToyModel, draw, nucleus, pair, shaped, softmax

NOISE_SD = 0.05
TAIL_CUT = 0.95
PLAIN = Sampling()


@dataclass(frozen=True)
class Fault:
    """What is wrong, and how far it moves the law of a token.

    Attributes
    ----------
    what : str
    tv : float
        Total variation between what a token after the first is drawn from, given the tokens before it and its
        place in a round, and the target's law: the mean over the completions of `fake_tv.average_tv`,
        which computes it, rounded. 0 where the law of each token is right.
    sampling : Sampling
        What ``tv`` was computed at.
    """

    what: str
    tv: float
    sampling: Sampling = PLAIN


FAULTS = {
    "temperature-ignored": Fault("verifies at temperature 1 whatever was asked", 0.159, Sampling(0.7)),
    "too-cold": Fault("verifies at 0.9 times the temperature asked", 0.054),
    "greedy-drafts-ratio": Fault("drafts are argmax q, accepted with min(1, p/q), else (p - q)+", 0.214),
    "correction-from-target": Fault("draws from p where it rejects, not from the residual", 0.093),
    "correction-from-next-row": Fault("draws from the law after the draft token that it rejects", 0.239),
    "greedy-bonus": Fault("the bonus token is argmax p", 0.060),
    "equal-seeds": Fault("every request uses seed 0", 0.0),
    "shared-noise": Fault("after the first token all requests use the same uniforms", 0.0),
    "tail-cut": Fault("tokens beyond a cumulated mass of 0.95 never come", 0.042),
    "top-p-twice": Fault("top-p is applied to what top-p left", 0.053, Sampling(top_p=0.9)),
    "draft-law": Fault("accepts every draft token", 0.208),
    "stale-cache": Fault("a rejected draft token stays in the context for one token", 0.057),
    "reports-zero": Fault("clean; log-probabilities of speculative tokens are 0.0 with an empty list", 0.0),
    "noisy": Fault("clean; logits carry noise of 0.05 that differs from call to call", 0.012),
    "never-accepts": Fault("clean; the draft is wrong and almost nothing is accepted", 0.0),
    "no-drafts": Fault("clean; speculation is silently off", 0.0),
}


@dataclass
class Drawn:
    """A completion.

    Attributes
    ----------
    tokens : list of int
    starts : list of int
        Where each round began; the first is 0 and has the one token that was not speculative.
    rejected : list of (int or None)
        The draft token that each round rejected.
    drafted, accepted : int
        Draft tokens verified and accepted, with those that were cut off at the end.
    laws : list of (float64 (V,) or None)
        The engine's own law of each token, at temperature 1 and without filters; None where it reports none.
    """

    tokens: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    rejected: list[int | None] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    laws: list[np.ndarray | None] = field(default_factory=list)


class Engine:
    """A target that speculates with a draft; k = 0 decodes plainly. May be used by several threads at once.

    Attributes
    ----------
    rounds, drafted, accepted : int
        Rounds with drafts, draft tokens verified, and draft tokens accepted, of all requests.
    """

    def __init__(self, target: ToyModel, draft: ToyModel, k: int = 3, fault: str | None = None):
        if fault is not None and fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}; got {fault!r}")
        self.target, self.draft, self.fault = target, draft, fault
        self.k = 0 if fault == "no-drafts" else k
        self.rounds = self.drafted = self.accepted = 0
        self._lock = threading.Lock()
        self._noise = np.random.default_rng(20260129)

    def raw(self, prefix: Sequence[int]) -> np.ndarray:
        """The target's law after ``prefix`` as this engine computes it now, temperature 1, no filters."""
        law = self.target.law(prefix)
        if self.fault == "noisy":
            with self._lock:
                noise = self._noise.standard_normal(VOCAB)
            law = softmax(np.log(law) + NOISE_SD * noise)
        return law

    def drafts_from(self, prefix: Sequence[int], sampling) -> np.ndarray:
        """What a draft token after ``prefix`` is drawn from."""
        if self.fault == "never-accepts":
            law = self.target.law(prefix)
            law = (law < np.median(law)).astype(np.float64)
            return law / law.sum()
        return self.draft.shaped(prefix, sampling)

    def verified(self, prefix: Sequence[int], raw: np.ndarray, sampling) -> np.ndarray:
        """What verification takes for the target's law, of the raw law of its row."""
        if self.fault == "noisy":
            return shaped(raw, sampling)
        if self.fault in ("temperature-ignored", "too-cold"):
            wrong = 1.0 if self.fault == "temperature-ignored" else 0.9 * sampling.temperature
            sampling = replace(sampling, temperature=wrong)
        law = self.target.shaped(prefix, sampling)
        if self.fault == "tail-cut":
            law = nucleus(law, TAIL_CUT)
        if self.fault == "top-p-twice" and sampling.top_p < 1.0:
            law = nucleus(law, sampling.top_p)
        return law

    def complete(self, prompt: Sequence[int], count: int, seed: int, sampling=PLAIN) -> Drawn:
        """``count`` tokens after ``prompt``: the same for the same request, but for noise."""
        rng = np.random.default_rng(0 if self.fault == "equal-seeds" else seed)
        prefix, out = list(prompt), Drawn()
        raw = self.raw(prefix)
        first = shaped(raw, sampling) if self.fault == "noisy" else self.target.shaped(prefix, sampling)
        self._add(out, [draw(first, rng)], [raw], None)
        if self.fault == "shared-noise":
            rng = np.random.default_rng(0)
        rounds = 0
        while len(out.tokens) < count:
            accepted = self._round(prefix + out.tokens, out, rng, sampling)
            rounds, out.drafted, out.accepted = rounds + 1, out.drafted + self.k, out.accepted + accepted
        del out.tokens[count:], out.laws[count:]
        with self._lock:
            self.rounds += rounds if self.k else 0
            self.drafted += out.drafted
            self.accepted += out.accepted
        return out

    @staticmethod
    def _add(out: Drawn, tokens: list[int], laws: list, rejected: int | None) -> None:
        out.starts.append(len(out.tokens))
        out.tokens += tokens
        out.laws += laws
        out.rejected.append(rejected)

    def row(self, prefix: list[int], place: int, rejected: int | None) -> list[int]:
        """The context of the law at ``place`` of a round; ``rejected`` is of the round before."""
        if self.fault == "stale-cache" and place == 0 and rejected is not None:
            return [*prefix[:-1], rejected, prefix[-1]]
        return prefix

    def _round(self, prefix: list[int], out: Drawn, rng: np.random.Generator, sampling) -> int:
        """One round after ``prefix``, added to ``out``; how many draft tokens it accepted."""
        drafts, qs = [], []
        for _ in range(self.k):
            q = self.drafts_from(prefix + drafts, sampling)
            drafts.append(int(q.argmax()) if self.fault == "greedy-drafts-ratio" else draw(q, rng))
            qs.append(q)
        tokens, laws, rejected = [], [], None
        for place in range(self.k + 1):
            context = self.row(prefix + drafts[:place], place, out.rejected[-1])
            raw = self.raw(context)
            p = self.verified(context, raw, sampling)
            laws.append(None if self.fault == "reports-zero" else raw)
            if place == self.k:
                greedy = self.fault == "greedy-bonus" and self.k > 0
                tokens.append(int(p.argmax()) if greedy else draw(p, rng))
                break
            y, q = drafts[place], qs[place]
            if self.fault == "draft-law" or rng.random() * q[y] < p[y]:
                tokens.append(y)
                continue
            rejected = y
            tokens.append(draw(self._correction(p, q, [*context, y], sampling), rng))
            break
        self._add(out, tokens, laws, rejected)
        return len(tokens) - 1

    def _correction(self, p: np.ndarray, q: np.ndarray, after: list[int], sampling) -> np.ndarray:
        """What a token is drawn from where the last of ``after`` was rejected."""
        if self.fault == "correction-from-target":
            return p
        if self.fault == "correction-from-next-row":
            return self.verified(after, self.raw(after), sampling)
        return np.maximum(p - q, 0.0)


def engines(fault: str | None = None, k: int = 3, seed: int = 0) -> tuple[Engine, Engine]:
    """An engine with a fault, and its reference: the same without speculation, and with its noise."""
    target, draft = pair(seed)
    return Engine(target, draft, k, fault), Engine(target, draft, 0, "noisy" if fault == "noisy" else None)


def callables(fault: str | None = None, sampling=PLAIN):
    """``generate`` and ``plain``: functions of prompt ids, count and seed that return token ids."""
    one, reference = engines(fault)

    def generate(prompt_ids: Sequence[int], count: int, seed: int) -> list[int]:
        return one.complete(prompt_ids, count, seed, sampling).tokens

    def plain(prompt_ids: Sequence[int], count: int, seed: int) -> list[int]:
        return reference.complete(prompt_ids, count, seed, sampling).tokens

    return generate, plain


generate, plain = callables()
