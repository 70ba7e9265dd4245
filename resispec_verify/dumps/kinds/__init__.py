"""One kind of dump a module: which keys it has, and what they mean.

`flat` and `target` (which share `positions`), `rounds`, `tree`. `keys` tells which kind a file is, `labels`
reads what lies beside the logits of a position, and `values` the small numbers of rounds and trees.
"""
