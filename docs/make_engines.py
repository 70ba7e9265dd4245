"""Write the table of docs/reference/engines.md from resispec_verify/engines/known.

    python docs/make_engines.py [--check]

Only what stands between the two marks is written. ``--check`` changes nothing and exits with 1 where it
is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from written import write_or_check

PAGE = Path(__file__).parent / "reference" / "engines.md"
BEGIN = "<!-- begin: python docs/make_engines.py -->\n"
END = "<!-- end: python docs/make_engines.py -->\n"


def _options(setting: Any) -> str:
    if setting.when is None:
        return "the options do not tell"
    if not setting.when:
        return "the default"
    parts = []
    for name, wanted in setting.when.items():
        words = wanted if isinstance(wanted, str) else " or ".join(f"`{value}`" for value in wanted)
        parts.append(f"`{name}` {words}")
    return ", ".join(parts)


def _rule(setting: Any) -> str:
    options = ", ".join(f"{key}={value}" for key, value in setting.options.items())
    return "" if setting.rule is None else f"`{setting.rule}{f'[{options}]' if options else ''}`: "


def _section(engine: Any) -> list[str]:
    lines = [
        f"### {engine.engine}",
        "",
        f"{engine.version}; read: {engine.read}. Note: {engine.limits}.",
        "",
        "| setting | where | rule | law | T = 0 | measured | says of itself | upstream |",
        "|---|---|---|---|---|---|---|---|",
    ]
    speculative = "resispec-verify kl --rule speculative --target 0.1,0.2,0.3,0.4 --draft 0,0,0,1"
    for s in engine.settings:
        upstream = ", ".join(f"`{part}`" if "/" in part else part for part in s.upstream.split(", "))
        cells = [
            s.name, _options(s), _rule(s) + s.in_words, s.law, s.greedy,
            s.measured.replace(speculative, f"`{speculative}`")
            .replace("resispec-verify rules", "`resispec-verify rules`"),
            s.says, upstream,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def with_table(text: str) -> str:
    """The page with the table as it should be."""
    from resispec_verify.engines import known_engines

    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [line for engine in known_engines().values() for line in _section(engine)]
    return before + BEGIN + "\n".join(["", *lines]) + END + after


def main() -> int:
    """Write, or check."""
    return write_or_check(PAGE, with_table(PAGE.read_text(encoding="utf-8")), "python docs/make_engines.py")


if __name__ == "__main__":
    sys.exit(main())
