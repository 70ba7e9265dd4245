"""Verdicts as continuous integration reads them: JUnit XML, and annotations of GitHub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from resispec_verify.report.table import printable

__all__ = ["Case", "github_lines", "junit_xml", "unusable"]

# What XML 1.0 cannot hold, even escaped. ElementTree writes it as it is.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One demand on one result.

    Attributes
    ----------
    name : str
        What was looked at.
    demand : str or None
        What was asked of it; None where nothing was: such a case is skipped, since it could not fail.
    unmet : str or None
        Why the demand is not met.
    unsaid : bool
        Whether it is unmet because nothing can be said: an error, not a failure.
    facts : mapping
        The numbers behind it, plain values; None is left out.
    file : str or None
        The source file that it is about, for annotations.
    notes : sequence of str
        What limits a demand that is met: a property of the case, and warnings among the annotations.
    """

    name: str
    demand: str | None
    unmet: str | None = None
    unsaid: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Name and demand."""
        return self.name if self.demand is None else f"{self.name}: {self.demand}"


def unusable(line: str) -> Case:
    """The case of an input that could not be used; the line says which and why."""
    return Case(line.partition(": ")[0], "usable input", line, unsaid=True)


def junit_xml(command: str, cases: Sequence[Case]) -> bytes:
    """One test suite, in the form that pytest writes and CI systems read; no clock is in it."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"resispec-verify {command}",
        tests=str(len(cases)),
        failures=str(sum(case.unmet is not None and not case.unsaid for case in cases)),
        errors=str(sum(case.unmet is not None and case.unsaid for case in cases)),
        skipped=str(sum(case.demand is None for case in cases)),
    )
    for case in cases:
        suite.append(_element(command, case))
    suites = ElementTree.Element("testsuites", name="resispec-verify")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"


def _element(command: str, case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=f"resispec-verify.{command}", name=_xml(case.title))
    facts = {name: value for name, value in case.facts.items() if value is not None}
    facts |= {"notes": "; ".join(case.notes)} if case.notes else {}
    if facts:
        properties = ElementTree.SubElement(element, "properties")
        for name, value in facts.items():
            shown = value if isinstance(value, str) else json.dumps(value)
            ElementTree.SubElement(properties, "property", name=name, value=_xml(shown))
    if case.unmet is not None:
        kind, told = ("error", "nothing can be said") if case.unsaid else ("failure", "unmet demand")
        found = ElementTree.SubElement(element, kind, type=told, message=_xml(case.unmet.partition("\n")[0]))
        found.text = _xml(case.unmet)
    elif case.demand is None:
        verdict = f"; verdict: {case.facts['verdict']}" if "verdict" in case.facts else ""
        ElementTree.SubElement(element, "skipped", message=f"nothing was demanded{verdict}")
    return element


def _xml(text: str) -> str:
    """Text that XML can hold; what it cannot is escaped as Python does."""
    return _NO_XML.sub(lambda found: printable(found.group(), None), text)


def github_lines(cases: Iterable[Case]) -> list[str]:
    """Workflow commands: ``::error ...`` for a demand that is not met, ``::warning ...`` for notes else."""
    lines = []
    for case in cases:
        words = {"title": f"resispec-verify: {case.title}"}
        if case.file is not None:
            words = {"file": case.file, **words}
        said = ",".join(f"{name}={_property(value)}" for name, value in words.items())
        if case.unmet is not None:
            lines.append(f"::error {said}::{_data(case.unmet)}")
        else:
            lines += [f"::warning {said}::{_data(note)}" for note in case.notes]
    return lines


def _data(text: str) -> str:
    """As GitHub's workflow commands have it: one line, whatever the text holds."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
