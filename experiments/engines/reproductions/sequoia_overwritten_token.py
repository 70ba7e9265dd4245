"""Sequoia's and SpecHub's `verify` writes the new token over an accepted one before it collects those.

    PYTHONPATH=experiments/engines:CLONE python experiments/engines/reproductions/sequoia_overwritten_token.py

CLONE is Sequoia, or the folder Sequoia of SpecHub. The tree has two children of the root and a child of each;
target and draft are equal, so that the first child is accepted, and its child. With a prompt of n tokens its
nodes lie in slots n to n + 3, by depth; the new token goes to slot n + 2, where that second one is.
"""

import numpy as np
import torch
from sequoia_toys import BRANCHES
from sequoia_tree import sequoia_tree

torch.manual_seed(0)
laws, wrong = np.full((6, 6), 1 / 6), 0
for _ in range(1000):
    tree = sequoia_tree(BRANCHES, laws, laws, [3, 4])
    tree.construct_grow_map()
    drafted = tree.tokens[2:6].tolist()
    emitted = tree.verify()[0].tolist()[2:]
    paths = [drafted[0::2][:2], drafted[1::2][:2]]
    wrong += len(emitted) == 3 and emitted[:2] not in paths
print(f"{wrong} of 1000 rounds emit two accepted tokens that were not drafted one after the other")
