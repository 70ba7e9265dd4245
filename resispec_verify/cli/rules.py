"""`resispec-verify rules`: the rules, what is claimed of them, and what is so."""

from __future__ import annotations

from typing import Any

from resispec_verify.cli.output import check_writable, print_lines, table_console, write_json
from resispec_verify.cli.parameters import File

__all__ = ["rules"]


def rules(*, json: File | None = None) -> int:
    """The rules: source, claimed exactness, and exactness measured by the rational oracle.

    Parameters
    ----------
    json
        Write the report here ("-": standard output).
    """
    from resispec_verify.analysis.rules_table import rules_table

    check_writable(json)
    results = rules_table()
    write_json(json, {"schema": 1, "command": "rules", "results": results})
    _print(results, table_console(json))
    return 0


def _print(results: list[dict[str, Any]], console: Any) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        title="measured: exact marginals in rational arithmetic on a fixed family of pairs (V = 4, n = 1..3)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("rule", "claimed", "measured", "TV max", "source"):
        table.add_column(heading, overflow="fold")
    for r in results:
        claimed = "exact" if r["claims_exact"] else "lossy"
        style = "bold red" if r["measured"] == "inexact" else "green"
        table.add_row(r["rule"], claimed, f"[{style}]{r['measured']}[/]", f"{r['tv_max']:.4f}", r["source"])
    console.print(table)
    for r in results:
        if w := r["witness"]:
            print_lines(
                console,
                [
                    f"{r['rule']}: target ({', '.join(w['target'])}), draft ({', '.join(w['draft'])}), "
                    f"n = {w['candidates']} emits ({', '.join(w['marginal'])})"
                ],
            )
