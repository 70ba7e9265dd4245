"""romsto's n-gram loop draws a token to compare with the drafted one, and on a mismatch draws once more.

    PYTHONPATH=experiments/engines:CLONE python experiments/engines/reproductions/romsto_ngrams.py

A drafted token x comes with probability p(x) + (1 - p(x)) p(x). After a token, bigrams draft the one that
was seen most, which is therefore seen more often.
"""

import numpy as np
import torch
from romsto_loops import ngrams

torch.manual_seed(0)
target = np.tile([0.5, 0.3, 0.2], (3, 1))
found = np.concatenate([ngrams(target, None, [0, 1], 40) for _ in range(150)])
print(f"{np.bincount(found, minlength=3) / len(found)}, should be {target[0]}")
