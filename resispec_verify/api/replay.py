"""``replay``: logged rounds of a real decoder, recomputed; the command ``replay`` from Python."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from resispec_verify.api.report import Report
from resispec_verify.api.sources import KINDS, PathLike
from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.inputs import real, shown, whole
from resispec_verify.logged.other_history import with_other_history
from resispec_verify.logged.replay import replayable
from resispec_verify.logged.replay_summary import ALPHA, summarize_replay
from resispec_verify.logged.seeded import SCHEMES, with_seeded_uniforms
from resispec_verify.logged.tree_input import read_any_rounds
from resispec_verify.logged.tree_replay import replay_any
from resispec_verify.report.answers import print_replay
from resispec_verify.rules import Block, Rule
from resispec_verify.rules.given import given_rule
from resispec_verify.rules.spec import parse_any_rule
from resispec_verify.schema import envelope

__all__ = ["ReplayReport", "replay"]


@dataclass(frozen=True, repr=False)
class ReplayReport(Report):
    """What logged rounds show of a rule."""

    result: dict[str, Any]

    @property
    def verdict(self) -> str:
        """``"diverges"``, ``"rejected"`` (by a statistical test) or ``"not-rejected"``, which is no proof."""
        if self.result["divergences"] or self.result["output_differs_at"] is not None:
            return "diverges"
        return self.result["statistics"]["verdict"]

    @property
    def first_divergence(self) -> dict[str, Any] | None:
        """The first logged decision that is not what the rule does, with its numbers."""
        return self.result["first_divergence"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``replay``."""
        return envelope("replay", [self.result])

    def _print(self, console: Any) -> None:
        print_replay(self.result, console)


def replay(
    path: PathLike,
    *,
    rule: str | Rule | Block = "speculative",
    sampling: Sampling | None = None,
    input: str | None = None,
    eos: Collection[int] = (),
    uniforms: bool | str = True,
    alpha: float = ALPHA,
) -> ReplayReport:
    """Recompute every logged accept or reject decision of real rounds, and test what was drawn.

    Parameters
    ----------
    path : path
        A dump of rounds.
    rule : str, Rule or Block
        The rule that the engine should follow: one draft token a position, or block verification.
    sampling : Sampling, optional
        Temperature and filters. Default: what the dump states, or else temperature 1.
    input : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows are. Default: logits, refused where they look like probabilities.
    eos : collection of int
        Tokens that end a text, beside those that the dump states.
    uniforms : bool or str
        Whether to recompute decisions with the logged uniforms; "vllm" or "sglang" recomputes those that were
        not logged, as that engine draws them from seed and position.
    alpha : float
        Level of all statistical tests together.

    Returns
    -------
    ReplayReport

    Raises
    ------
    InputError
        A dump that cannot be read, or a rule that cannot be replayed.
    """
    if not 0 < real("alpha", alpha) < 1:
        raise InputError(f"alpha must be in (0, 1), got {alpha:g}")
    if input not in (None, *KINDS):
        raise InputError(f"input must be one of {', '.join(KINDS)}, got {shown(input)}")
    if not isinstance(uniforms, bool) and uniforms not in SCHEMES:
        raise InputError(
            f"uniforms must be True, False, or one of {', '.join(SCHEMES)}; got {shown(uniforms)}"
        )
    if isinstance(eos, str) or not isinstance(eos, Collection):
        raise InputError(f"eos must be token ids such as (2,), got {shown(eos)}")
    for token in eos:
        whole("eos", token)
    if sampling is not None and not isinstance(sampling, Sampling):
        raise InputError(f"sampling must be a Sampling, such as Sampling(0.7); got {shown(sampling)}")
    named = parse_any_rule(rule) if isinstance(rule, str) else rule
    checked = named if isinstance(named, Block) else given_rule(named)
    followed = replayable(checked, f"rule {checked.name!r}")
    options = {} if sampling is None else vars(sampling)
    rounds = read_any_rounds(path, kind=input, stops=eos, options=options)
    if isinstance(uniforms, str):
        rounds, uniforms = with_seeded_uniforms(rounds, followed, uniforms), True
    result = replay_any(rounds, followed, options, uniforms=uniforms)
    result = with_other_history(result, options, uniforms=uniforms, alpha=alpha)
    return ReplayReport(summarize_replay(result, alpha))
