"""The pytest plugin: ``assert_lossless`` as a fixture, its seed and budget as options, and a summary of
what passed.

pytest loads it by its entry point ``resispec_verify``; ``-p no:resispec_verify`` leaves it out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["assert_lossless", "pytest_addoption", "pytest_terminal_summary"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for all uses of the fixture."""
    group = parser.getgroup("lossless", "samplers checked by resispec-verify")
    group.addoption("--lossless-seed", type=int, default=None, help="seed of all draws (0)")
    group.addoption("--lossless-draws", type=int, default=None, help="draws a pair at most (100000)")
    group.addoption("--lossless-alpha", type=float, default=None, help="error rate of each assertion (1e-9)")


@pytest.fixture
def assert_lossless(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`resispec_verify.testing.assert_lossless`, with the options of the command line as defaults."""
    from resispec_verify.testing import assertions

    names = {"seed": "--lossless-seed", "draws": "--lossless-draws", "alpha": "--lossless-alpha"}
    given = {name: request.config.getoption(option) for name, option in names.items()}
    given = {name: value for name, value in given.items() if value is not None}

    def check(sampler: Callable[..., Any], **settings: Any) -> Any:
        __tracebackhide__ = True
        return assertions.assert_lossless(sampler, **{**given, **settings})

    return check


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each sampler that was not rejected: what would have been found."""
    assertions = sys.modules.get("resispec_verify.testing.assertions")
    if assertions is None or not assertions.passed:
        return
    from resispec_verify.sampler_check import lines

    terminalreporter.section("samplers not rejected (no proof)")
    for name, result in assertions.passed:
        found = lines.bounds(result) or (
            "" if result.detectable_tv is None else f"{result.detectable_tv:.4f}"
        )
        bound = f", a TV of {found} would have been found" if found else ""
        if result.not_reached:
            bound += f", not reached: {', '.join(result.not_reached)}"
        if result.ends is not None and result.ends["verdict"] != "no-fault":
            bound += f", ends of the uniforms: {result.ends['verdict'].replace('-', ' ')}"
        terminalreporter.write_line(
            f"{name}: {result.draws} draws{bound} (power {result.power:g}); a lossless sampler fails with "
            f"probability at most {result.alpha:g}"
        )
