"""Sequoia's `SpecTree` draws all its random numbers when it is made, and its test bed makes one for a text.

    PYTHONPATH=experiments/engines:CLONE python experiments/engines/reproductions/sequoia_coins_once.py

Tokens are independent here, each with the law (.5, .3, .2): two of them are equal with probability .38.
"""

import numpy as np
import torch
from sequoia_toys import RESERVED
from sequoia_tree import one_chain

torch.manual_seed(0)
target, draft = (np.tile([0.0] * RESERVED + law, (6, 1)) for law in ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1]))
texts = np.array([one_chain(target, draft, [3, 4], 8)[:8] for _ in range(500)])
for apart in (1, 2, 3, 4):
    print(f"{apart} apart: equal {np.mean(texts[:, apart:] == texts[:, :-apart]):.3f}, should be .380")
