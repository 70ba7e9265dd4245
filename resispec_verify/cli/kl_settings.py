"""Options of `resispec-verify kl` to what the analysis takes, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from resispec_verify.cli.user_rules import choose_rules
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.distributions import Pair, Sampling
    from resispec_verify.tables.marginals import Evaluation
    from resispec_verify.tables.reading import Reading

__all__ = [
    "check_demands",
    "check_tokens",
    "make_evaluation",
    "make_reading",
    "pair_by_hand",
    "refuse_by_hand",
    "refuse_without",
]

MOST_CANDIDATES = 1000  # far beyond any engine; more is a slip of the keyboard


def check_demands(marginal: str, require_exact: bool, max_tv: float | None) -> None:
    """Refuse a demand on a check that cannot fail."""
    if max_tv is not None and not 0 <= max_tv <= 1:
        raise InputError(f"--max-tv must be in [0, 1], got {max_tv:g}")
    if marginal == "path-identity" and (require_exact or max_tv is not None):
        raise InputError(
            "the path identity cannot fail, so it meets no demand: --require-exact and --max-tv need "
            "--marginal operational or both"
        )


def make_evaluation(
    names: list[str] | None,
    candidates: int,
    marginal: str,
    gap: float | None,
    max_expansions: float | None,
    seed: int | None,
    candidate_list: str | None,
    **options: str | None,
) -> Evaluation:
    """What to compute, from the options; raises on the first that is out of range."""
    from resispec_verify.evidence.enumeration import Budget
    from resispec_verify.tables.marginals import Evaluation

    if not 1 <= candidates <= MOST_CANDIDATES:
        raise InputError(f"--candidates must be in 1..{MOST_CANDIDATES}, got {candidates}")
    if gap is not None and not 0 <= gap <= 1:
        raise InputError(f"--gap must be in [0, 1], got {gap:g}")
    if max_expansions is not None and not max_expansions >= 1:
        raise InputError(f"--max-expansions must be at least 1, got {max_expansions:g}")
    if seed is not None and seed < 0:
        raise InputError(f"--seed must not be negative, got {seed}")
    identity = {"candidate_list": candidate_list, "seed": seed}
    _refuse_idle("--marginal operational", identity if marginal == "operational" else {})
    operational = {"gap": gap, "max_expansions": max_expansions}
    _refuse_idle("--marginal path-identity", operational if marginal == "path-identity" else {})
    _refuse_idle("--candidate-list", {} if candidate_list is None else {"seed": seed})
    limits = Budget()
    work = limits if max_expansions is None else Budget(most_paths=max_expansions, most_states=max_expansions)
    if gap is not None:
        work = Budget(gap, work.most_paths, work.most_states, until_decided=False)
    return Evaluation(
        rules=choose_rules(names or ["resispec", "specinfer"], candidates, **options),
        candidates=candidates,
        operational=marginal != "path-identity",
        identity=marginal != "operational",
        budget=work,
        seed=seed or 0,
        candidate_list=_candidate_list(candidate_list, candidates),
    )


def _candidate_list(text: str | None, candidates: int) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        tokens = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--candidate-list must be token ids such as 5,17,3; got {text!r}") from None
    if len(tokens) < candidates or min(tokens) < 0:
        raise InputError(
            f"--candidate-list has {len(tokens)} tokens; give at least {candidates}, none of them negative"
        )
    return tokens


def make_reading(
    temperatures: list[float] | None,
    filters: tuple[int | None, float | None, float | None],
    proposal: tuple[float | None, int | None, float | None],
    kind: str | None,
    precision: str,
    positions: str | None,
    batch: int | None,
) -> Reading:
    """How rows become pairs, from the options; raises on the first that is out of range."""
    from resispec_verify.tables.reading import Reading

    if batch is not None and batch < 1:
        raise InputError(f"--batch must be at least 1, got {batch}")
    samplings = None
    if temperatures or any(value is not None for value in filters):
        samplings = tuple(_sampling("--", t, *filters) for t in dict.fromkeys(temperatures or [1.0]))
    top_k, top_p = proposal[1:]
    _sampling("--proposal-", 1.0 if proposal[0] is None else proposal[0], top_k, top_p, None)
    start, stop = _positions(positions)
    return Reading(
        samplings,
        proposal_sampling=lambda sampling: sampling.overridden(*proposal),
        kind=kind,
        precision=precision,
        start=start,
        stop=stop,
        batch=batch,
    )


def _sampling(
    option: str, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> Sampling:
    from resispec_verify.distributions import Sampling

    try:
        return Sampling(temperature, top_k, top_p, min_p)
    except InputError as error:  # its message begins with the field, spelled as in the option
        raise InputError(f"{option}{error}") from None


def _positions(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    try:
        start, stop = text.split(":")
        return (int(start) if start else None), (int(stop) if stop else None)
    except ValueError:
        raise InputError(f"--positions must be a range A:B such as 0:16; got {text!r}") from None


def check_tokens(evaluation: Evaluation, vocab: int, where: str) -> None:
    """Refuse tokens outside the vocabulary, and more different candidates than it has tokens."""
    from resispec_verify.tables.distinct import check_vocabulary

    check_vocabulary(evaluation.rules, evaluation.candidates, vocab, where)
    worst = max(evaluation.candidate_list or (0,))
    if worst >= vocab:
        raise InputError(
            f"--candidate-list: token {worst} is outside the vocabulary 0..{vocab - 1} of {where}"
        )


def pair_by_hand(target: str | None, draft: str | None) -> Pair:
    """The pair of `--target` and `--draft`, both ``(V,)``."""
    from resispec_verify.distributions import pair_from_probabilities

    if target is None or draft is None:
        raise InputError(f"--{'draft' if target else 'target'} is missing: give both --target and --draft")
    values = []
    for name, text in (("--target", target), ("--draft", draft)):
        try:
            values.append([float(part) for part in text.split(",")])
        except ValueError:
            raise InputError(f"{name} must be numbers such as 0.3,0.4,0.3; got {text!r}") from None
    return pair_from_probabilities(*values)


def refuse_without(needed: str, **options: object) -> None:
    """Refuse options that were given, and would do nothing, without the option `needed`."""
    given = _given(options)
    if given:
        raise InputError(f"{given} needs {needed}, which is not given; leave it out")


def refuse_by_hand(**options: object) -> None:
    """Hand-given values are used as they are: an option that would change them is a mistake."""
    given = _given(options)
    if given:
        raise InputError(f"{given} needs --logits: the values of --target and --draft are used as they are")


def _refuse_idle(beside: str, options: Mapping[str, object]) -> None:
    given = _given(options)
    if given:
        raise InputError(f"{given} would do nothing beside {beside}; leave it out")


def _given(options: Mapping[str, object]) -> str:
    return ", ".join(
        f"--{name.replace('_', '-')}"
        for name, value in options.items()
        if value is not None and value is not False
    )
