"""Cases of `kl`, `compare` and `replay`: which demand, on what, met or not, and the numbers behind it.

A command ends with status 1 where one of its cases is not met. Those of `check` and `audit` are beside what
these print.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resispec_verify.report.cases import Case
from resispec_verify.report.table import number

__all__ = ["compare_cases", "kl_cases", "replay_cases"]

_KL = (
    "verdict", "tier", "positions", "tv_mean", "tv_mean_bounds", "tv_max", "tv_max_bounds", "kl_mean",
    "kl_mean_bounds", "acceptance_total_bounds", "acceptance_mean_bounds", "limit_mean", "limit_mean_bounds",
    "positions_above_limit", "positions_undecidable", "gap_max", "rounding_max",
)  # fmt: skip
_REPLAY = (
    "rounds", "decisions", "agree", "near_ties", "divergences", "repeated_uniforms", "undraftable_tokens",
    "output_differs_at",
)  # fmt: skip
_COMPARE = ("positions", "tv_mean", "tv_max", "kl_mean", "kl_max", "flips", "near_tie_flips", "best_unknown")


def kl_cases(
    results: Iterable[Mapping[str, Any]], over: Iterable[bool], *, require_exact: bool, max_tv: float | None
) -> list[Case]:
    """Of `kl`, also over top-k files; path identities, which demand nothing, have none.

    Parameters
    ----------
    results
        As ``kl --json`` has them.
    over
        Whether the total variation of each may exceed ``max_tv`` anywhere.
    """
    cases = []
    for result, exceeds in zip(results, over, strict=True):
        if result.get("marginal") == "path-identity":
            continue
        name = ", ".join(_setting(result))
        facts = _facts(result, _KL)
        asked: dict[str, str | None] = {}
        if require_exact:
            asked["exact"] = None if result["verdict"] == "exact" else _not_exact(result)
        if max_tv is not None:
            asked[f"TV at most {max_tv:g}"] = (
                f"the total variation may exceed {max_tv:g}: {_certified(result)}" if exceeds else None
            )
        cases += [Case(name, demand, why, facts=facts) for demand, why in asked.items()]
        cases += [] if asked else [Case(name, None, facts=facts)]
    return cases


def _setting(result: Mapping[str, Any]) -> list[str]:
    found = [result["label"]]
    found += [f"T = {result['temperature']:g}"] if "temperature" in result else []
    found.append(f"n = {result['candidates']}")
    return found if result.get("dataset") is None else [*found, str(result["dataset"])]


def _not_exact(result: Mapping[str, Any]) -> str:
    why = f"{result['verdict']}: {_certified(result)}"
    if above := result.get("positions_above_limit"):
        why += f"; accepts more than any exact rule can at {above} of {result['positions']} positions"
    return why


def _certified(result: Mapping[str, Any]) -> str:
    low, high = (number(float(end)) for end in result["tv_mean_bounds"])
    return f"mean total variation in [{low}, {high}] over {result['positions']} positions"


def replay_cases(results: Iterable[Mapping[str, Any]], *, require_agreement: bool) -> list[Case]:
    """Of `replay`, of rounds and of scalars: one a file and rule."""
    cases = []
    for result in results:
        facts = {"verdict": result["statistics"]["verdict"], **_facts(result, _REPLAY)}
        name = f"{result['path']}, {result.get('label', result['rule'])}"
        against = _against(result)
        demand = "agreement" if require_agreement else None
        cases.append(
            Case(name, demand, "; ".join(against) or None if require_agreement else None, facts=facts)
        )
    return cases


def _against(result: Mapping[str, Any]) -> list[str]:
    """What speaks against agreement."""
    found = []
    if result["divergences"]:
        found.append(f"{result['divergences']} divergences of {result['decisions']} decisions")
    if result["statistics"]["verdict"] == "rejected":
        found.append(f"the tests reject at alpha {result['statistics']['alpha']:g}")
    if result.get("output_differs_at") is not None:
        found.append(f"output_tokens differ from the rounds at {result['output_differs_at']}")
    reported = result["reported_logprobs"]
    if reported is not None and reported["verdict"] == "differs":
        found.append("reported log-probabilities are not the tokens' own")
    return found


def compare_cases(
    paths: Sequence[object], result: Mapping[str, Any], *, max_tv: float | None, require_same_top: bool
) -> list[Case]:
    """Of `compare`, of rows and of top-k files, where an unknown best token does not meet a demand."""
    name = " and ".join(map(str, paths))
    facts = _facts(result, _COMPARE)
    asked: dict[str, str | None] = {}
    if max_tv is not None:
        most = result["tv_max"] if "tv_max" in result else result["target"]["tv"]["max"][1]
        asked[f"TV at most {max_tv:g}"] = f"a total variation of {number(most)}" if most > max_tv else None
    if require_same_top:
        flips, unknown = result["flips"], result.get("best_unknown", 0)
        asked["same best tokens"] = (
            f"the best token flips at {flips} positions" + (f", unknown at {unknown}" if unknown else "")
            if flips or unknown
            else None
        )
    made = [Case(name, demand, why, facts=facts) for demand, why in asked.items()]
    return made or [Case(name, None, facts=facts)]


def _facts(result: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: result[name] for name in names if name in result}
