"""TriForce's `Middle_Spec` replaces a rejected token by a draw of the whole law, not of the residual.

    PYTHONPATH=experiments/engines:CLONE python experiments/engines/reproductions/triforce_middle.py

Its tokens then do not have the law that is handed on for them, by which the target accepts them.
"""

import numpy as np
import torch
from triforce_loop import Graphs
from utils.decoding import Middle_Spec

torch.manual_seed(0)
middle = np.tile([0.3, 0.4, 0.3], (3, 1))
given = Graphs(middle, middle)
found = [Middle_Spec(torch.tensor([[0]]), given, 2, False, None)[0][1] for _ in range(20_000)]
print(f"{np.bincount(found, minlength=3) / len(found)}, declared {middle[0]}")
