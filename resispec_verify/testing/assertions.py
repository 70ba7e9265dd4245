"""The assertions for samplers and for drafts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.inputs import shown
from resispec_verify.sampler_check.check import CheckResult, CheckSettings, check_sampler
from resispec_verify.sampler_check.draft import check_declared_draft
from resispec_verify.sampler_check.lines import at_an_end_only, lines
from resispec_verify.sampler_check.pairs import given_check
from resispec_verify.sampler_check.sources.styles import inputs_of_witness

__all__ = ["assert_draft_as_declared", "assert_lossless"]

# Said anyway, or without influence on the draws that were rejected.
_NOT_REPEATED = ("draws", "seed", "search", "seconds", "call_seconds", "power")
#: Results of the assertions that passed, for the summary of the pytest plugin.
passed: list[tuple[str, CheckResult]] = []


def assert_lossless(
    sampler: Callable[..., Any],
    *,
    pairs: Sequence[Any] | None = None,
    style: str = "tokens",
    draws: int = 100_000,
    seconds: float = 120.0,
    **settings: Any,
) -> CheckResult:
    """Fail if a sampler emits something other than the target.

    Parameters
    ----------
    sampler : callable
        Called by ``style``, as ``sampler(target, draft, rng)`` by default; see
        `resispec_verify.sampler_check.check.check_sampler`.
    pairs : sequence, optional
        What it is checked on: names of the fixed battery, or ``(target, draft)`` probabilities ``(V,)``.
        Default: the battery and a search for the worst pair; with pairs, there is no search unless
        ``search=True``.
    style : {"tokens", "candidates", "uniforms", "block", "tree", "text"}
        How it is called.
    draws : int
        Most draws a pair; the battery gives wide pairs fewer.
    seconds : float
        Stop after this long, and say what was found so far.
    **settings
        Of `resispec_verify.sampler_check.settings.CheckSettings`: alpha, seed, candidates, proposal, ...

    Returns
    -------
    CheckResult
        Not rejected, which is no proof: `CheckResult.detectable_tv` says what would have been found.

    Raises
    ------
    AssertionError
        Rejected, or the sampler failed. The last line of the message repeats it.
    InputError
        Settings or pairs that make no sense.
    """
    __tracebackhide__ = True
    settings = {"style": style, "draws": draws, "seconds": seconds, **settings}
    try:
        name, chosen, inputs = given_check(sampler, pairs, settings)
        result = check_sampler(sampler, chosen, inputs=inputs)
    except InputError as error:  # of the caller's, and not a page of frames in here
        raise error.with_traceback(None) from None
    if result.verdict != "not-rejected":
        raise AssertionError("\n".join(_failure(name, result, chosen, pairs)))
    passed.append((name, result))
    return result


def assert_draft_as_declared(draw: Callable[..., Any], *, draws: int = 5000, **settings: Any) -> CheckResult:
    """Fail if candidates are not drawn from the draft that is declared to the verifier.

    Parameters
    ----------
    draw : callable (numpy.random.Generator) -> tokens (L,), logits (L, V)
        One draft: candidates and the logits they are said to be drawn from. It is called with the same
        state each time, so that the law of the first candidate is always the same; only that one is tested.
    draws : int
    **settings
        alpha, power, seed, call_seconds.

    Raises
    ------
    AssertionError
        They are not, or ``draw`` failed.
    """
    __tracebackhide__ = True
    if not callable(draw) or isinstance(draw, type):
        raise InputError(f"draw must be a function, or an instance that can be called; got {shown(draw)}")
    known = ("alpha", "power", "seed", "call_seconds")
    if unknown := [name for name in settings if name not in known]:
        near = did_you_mean(unknown[0], known) or f" (there are: {', '.join(known)})"
        raise InputError(f"assert_draft_as_declared has no setting {unknown[0]!r}{near}")
    try:
        result = check_declared_draft(draw, draws=draws, **settings)
    except InputError as error:
        raise error.with_traceback(None) from None
    name = getattr(draw, "__qualname__", type(draw).__qualname__)
    if result.verdict != "not-rejected":
        again = f"assert_draft_as_declared({name}, draws={draws}, seed={result.seed})"
        raise AssertionError("\n".join([f"{name}: {result.verdict}", *lines(result), f"reproduce: {again}"]))
    passed.append((name, result))
    return result


def _failure(name: str, result: CheckResult, settings: CheckSettings, pairs: Any) -> list[str]:
    verdict = "is not lossless" if result.verdict == "rejected" else "cannot be checked"
    return [
        f"{name} {verdict}{at_an_end_only(result)}",
        *lines(result),
        f"reproduce: {_again(name, result, settings, pairs)}",
    ]


def _again(name: str, result: CheckResult, settings: CheckSettings, pairs: Any) -> str:
    witness = result.witness or {}
    words = []
    if "target" in witness:
        words.append(f"pairs=[({witness['target']!r}, {witness['draft']!r})]")
    elif (alone := inputs_of_witness(witness, settings.style)) is not None:
        words.append(f"pairs={alone!r}")
    elif pairs is not None:
        words.append("pairs=...")
    elif not settings.search:
        words.append("search=False")
    words += [
        f"{field.name}={getattr(settings, field.name)!r}"
        for field in dataclasses.fields(settings)
        if field.name not in _NOT_REPEATED and getattr(settings, field.name) != field.default
    ]
    again = f"assert_lossless({', '.join([name, *words])}, draws={settings.draws}, seed={settings.seed})"
    return f"{again}  # the whole run" if "pairs=..." in words else again
