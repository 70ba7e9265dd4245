"""The map of docs/architecture.md, held against the imports: data flows one way."""

import ast
import functools
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "resispec_verify"

# What each room may import from the package, besides itself. A new room needs a line here.
MAY_IMPORT = {
    "errors": set(),
    "arrays": set(),
    "threads": set(),
    "schema": set(),
    "verdict": set(),
    "backends": {"errors"},
    "inputs": {"backends", "errors"},
    "topology": {"errors"},
    "kernels": {"arrays", "backends", "errors", "threads"},
    "oracle": set(),
    "proofs": {"errors", "oracle"},
    "sampling": {"arrays", "errors", "kernels"},
    "dumps": {"errors", "sampling"},
    "distributions": {"arrays", "backends", "errors", "inputs", "kernels", "sampling"},
    "samplers": {"arrays", "backends", "errors", "inputs", "kernels"},
    "device": {"arrays", "backends", "dumps", "errors", "kernels"},
    "rules": {"arrays", "backends", "device", "errors", "inputs", "kernels"},
    "evidence": {"arrays", "backends", "errors", "inputs", "kernels", "rules", "threads", "verdict"},
    "catalogue": {"errors", "oracle", "rules"},
    "tables": {
        "arrays", "backends", "distributions", "dumps", "errors", "evidence", "kernels", "rules", "sampling",
        "schema", "threads", "topk", "topology", "verdict",
    },
    "runs": {"arrays", "backends", "dumps", "errors", "tables", "threads"},
    "logged": {
        "arrays", "distributions", "dumps", "errors", "evidence", "kernels", "rules", "sampling", "schema",
        "tables", "topk",
    },
    "topk": {"dumps", "errors", "kernels", "rules", "verdict"},
    "engines": {"errors"},
    "sampler_check": {"backends", "distributions", "errors", "evidence", "inputs", "rules", "schema"},
    "audit": {"errors", "evidence", "inputs", "runs", "schema"},
    "report": {"audit", "dumps", "errors", "rules", "sampler_check", "schema", "tables"},
    "record": {"distributions", "dumps", "errors", "models", "rules", "topology"},
    "models": {"errors"},
    "decoding": {"distributions", "errors", "evidence", "models", "record", "rules", "topology"},
    "cli": {
        "audit", "backends", "catalogue", "distributions", "dumps", "engines", "errors", "evidence", "inputs",
        "kernels", "logged", "models", "proofs", "record", "report", "rules", "runs", "sampler_check",
        "sampling", "schema", "tables", "threads", "topk", "topology",
    },
    "testing": {"errors", "inputs", "rules", "sampler_check"},
    "api": {
        "arrays", "audit", "backends", "distributions", "dumps", "errors", "evidence", "inputs", "logged",
        "report", "rules", "runs", "sampler_check", "schema", "tables", "threads", "verdict",
    },
    "adapters": {"errors", "testing"},
    "__main__": {"cli"},
    "__init__": {
        "api", "arrays", "distributions", "dumps", "errors", "evidence", "moved", "record", "rules",
        "verdict",
    },
    "moved": set(),
}  # fmt: skip


def room(path: Path) -> str:
    """The top-level module or folder a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def imports(path: Path) -> set[str]:
    """Rooms of the package that a file imports."""
    inside = path.relative_to(PACKAGE.parent).parent.parts
    return rooms_in(path.read_text(encoding="utf-8"), inside)


def rooms_in(source: str, inside: tuple[str, ...]) -> set[str]:
    """Rooms that the text of a module of the package ``inside`` imports, also in functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) + 1 - node.level] if node.level else ()
            names = [".".join([*above, *([node.module] if node.module else [])])]
            if names == ["resispec_verify"]:
                found |= {alias.name for alias in node.names} & MAY_IMPORT.keys()
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("resispec_verify.")}
    return found


def offences(may_import: dict[str, set[str]]) -> list[str]:
    """Every file that imports what its room may not, or that is in no room of the map."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        here, name = room(path), str(path.relative_to(PACKAGE))
        if here not in may_import:
            found.append(f"{name}: {here} has no line in MAY_IMPORT")
        elif more := imports(path) - {here} - may_import[here]:
            found.append(f"{name} imports {', '.join(sorted(more))}")
    return found


def test_every_import_follows_the_map():
    assert offences(MAY_IMPORT) == []


def test_the_page_names_every_room():
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms == MAY_IMPORT.keys() - {"__init__", "__main__"}
    assert [name for name in sorted(rooms) if not re.search(rf"`{name}(/|\.py)`", page)] == []
    folders = {path.name for path in PACKAGE.parent.joinpath("tests").iterdir() if path.is_dir()}
    inside = {name for name in rooms if (PACKAGE / name).is_dir()} - {"adapters", "decoding"}
    assert inside <= folders


def test_a_map_with_a_line_less_is_noticed():
    assert any("kernels" in line for line in offences(MAY_IMPORT | {"rules": set()}))
    assert any("verdict has no line" in line for line in offences({"errors": set()}))


def test_a_relative_import_is_of_the_room_that_it_reaches():
    inside = ("resispec_verify", "oracle", "shipped")
    assert rooms_in("from ...kernels.elementwise import residuals", inside) == {"kernels"}
    assert rooms_in("def f():\n    from ... import kernels, errors", inside) == {"kernels", "errors"}
    assert rooms_in("from ..laws import Law\nfrom . import steps", inside) == {"oracle"}


def test_oracle_and_rules_stand_on_their_own_feet():
    for here, there in (
        ("oracle", "rules"),
        ("oracle", "kernels"),
        ("oracle", "evidence"),
        ("rules", "oracle"),
    ):
        assert all(there not in imports(path) for path in (PACKAGE / here).rglob("*.py"))


def test_only_the_command_line_prints():
    for path in PACKAGE.rglob("*.py"):
        if room(path) in ("cli", "__main__"):
            continue
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.Call)}  # fmt: skip
        warns = set() if room(path) == "moved" else {"warnings.warn"}
        assert not calls & ({"print", "sys.stdout.write", "sys.stderr.write"} | warns), path
