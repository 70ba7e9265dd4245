"""`resispec-verify tree cost`: nodes and levels of trees; no dump is read."""

from typing import Any

from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.parameters import Trees
from resispec_verify.cli.tree.recorded import parsed, shortened
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_records
from resispec_verify.schema import envelope
from resispec_verify.topology import Topology


def cost(topology: Trees | None = None, *, output: OutputOptions = OutputOptions()) -> int:
    """What trees cost: one verification is a pass of the target over so many nodes.

    Parameters
    ----------
    output.csv
        Write one line a tree here.
    """
    output.check()
    if not topology:
        raise InputError("nothing to do: give one or more trees, such as d5b3")
    results = [_shape(tree) for tree in parsed(topology)]
    console = output.write(
        envelope("tree", results),
        lambda: [{k: v for k, v in r.items() if k != "nodes_by_level"} for r in results],
    )
    records = [
        {
            "tree": shortened(r["topology"]),
            "cost": str(r["cost"]),
            "levels": str(r["levels"]),
            "leaves": str(r["leaves"]),
            "nodes by level": " ".join(map(str, r["nodes_by_level"])),
        }
        for r in results
    ]
    print_records(console, "trees: one verification costs a target pass over so many nodes", records)
    return 0


def _shape(tree: Topology) -> dict[str, Any]:
    return {
        "topology": str(tree),
        "cost": tree.nodes,
        "levels": tree.levels,
        "leaves": sum(not children for children in tree.children),
        "nodes_by_level": [tree.depths.count(d) for d in range(tree.levels)],
    }
