"""Uniforms at their ends: whatever comes out must be possible."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from resispec_verify.sampler_check.calls import Caller, SamplerError
from resispec_verify.sampler_check.generators import BoundaryGenerator, boundary_words
from resispec_verify.sampler_check.probes import Finding, Probe, seed_of

__all__ = ["at_the_ends", "on"]

AT_THE_ENDS = "when a uniform is 0 or 1 - 2**-53"


@contextlib.contextmanager
def on(what: str) -> Iterator[None]:
    """Say on which input a sampler failed."""
    try:
        yield
    except SamplerError as error:
        raise SamplerError(f"{error} (on {what})") from None


def at_the_ends(caller: Caller, probe: Probe) -> tuple[Finding | None, int]:
    """What comes out of a probe's source when uniforms are at their ends, and how many draws it took.

    The source must have ``draw(caller, rng, rows, theirs)`` and a ``law``.
    """
    source, seed = probe.source, probe.seed
    words = [
        (rows, boundary_words(seed, pattern, position))
        for rows in (1, 4)
        for pattern in range(16)
        for position in (0, 1, 2)
    ]
    often = [(32, BoundaryGenerator(seed_of(seed, "boundary", source.name, i))) for i in range(16)]
    left = iter(words + often)

    def draw() -> np.ndarray:
        rows, theirs = next(left)
        return source.draw(caller, probe.rng, rows, theirs).index

    with on(f"{source.name}, {AT_THE_ENDS}"):
        index = np.concatenate(caller.some(draw, len(words) + len(often)))
    probe.fit.update(index)
    token = probe.fit.impossible
    if token is None:
        return None, len(index)
    reason = f"{source.describe(token)} is emitted {AT_THE_ENDS}, although its target probability is 0"
    return Finding("boundary", reason, token), len(index)
