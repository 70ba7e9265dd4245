"""`resispec-verify tree`: trees of candidates, what they cost and how long a step over them is.

Three commands. Their earlier spelling, one command whose options say which is meant, goes on working.
"""

from typing import Annotated

from cyclopts import App, Parameter

from resispec_verify.cli.options.group import check_range, refuse_without
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.parameters import Count, Names, Texts
from resispec_verify.cli.tree.cost import cost
from resispec_verify.cli.tree.grow import MOST_NODES, GrowthOptions, grow
from resispec_verify.cli.tree.length import length
from resispec_verify.cli.tree.recorded import DrawnOptions
from resispec_verify.errors import InputError

tree = App(name="tree")
for _command in (cost, length, grow):
    tree.command(_command)
_HIDDEN = Parameter(show=False)


@tree.default
def _earlier(
    *,
    dumps: Annotated[DumpOptions, _HIDDEN] = DumpOptions(),
    rule: Annotated[Names | None, _HIDDEN] = None,
    topology: Annotated[Texts | None, _HIDDEN] = None,
    grow_to: Annotated[Count | None, Parameter(name="--grow", show=False)] = None,
    growth: Annotated[GrowthOptions, _HIDDEN] = GrowthOptions(),
    drawn: Annotated[DrawnOptions, _HIDDEN] = DrawnOptions(),
    output: Annotated[OutputOptions, _HIDDEN] = OutputOptions(),
) -> int:
    """Trees of candidates: cost, accepted length, and the best one of a budget."""
    # The earlier spelling: --grow, --logits or neither says which command is meant.
    if grow_to is not None:
        if topology:
            raise InputError("--grow finds a tree: leave --topology out")
        check_range(1, MOST_NODES, grow=grow_to)
        return grow(dumps=dumps, nodes=grow_to, growth=growth, rule=rule, drawn=drawn, output=output)
    refuse_without("--grow", growth)
    if dumps.logits:
        return length(dumps=dumps, rule=rule, topology=topology, drawn=drawn, output=output)
    if not topology:
        raise InputError(
            "nothing to do: write tree cost TREE..., tree length FILE..., or tree grow --nodes N"
        )
    refuse_without("a dump", drawn, rule=rule)
    return cost(topology, output=output)
