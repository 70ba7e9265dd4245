"""LLMSpeculativeSampling with a random_seed seeds torch before each uniform, so that all are the same one.

    PYTHONPATH=experiments/engines:CLONE python experiments/engines/reproductions/feifeibear_seeded.py

Target and draft differ; every text is written with a seed of its own.
"""

import numpy as np
import torch
from sampling import speculative_sampling
from toys import Causal

target, draft = (Causal(np.tile([0.0, *law], (4, 1))) for law in ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1]))
found = []
for seed in range(1, 801):
    torch.manual_seed(seed)
    text = speculative_sampling(torch.tensor([[1, 2]]), draft, target, 6, gamma=3, random_seed=seed)
    found.append(text[0, 2:8].numpy() - 1)
found = np.array(found)
for i in range(6):
    print(f"token {i + 1}: {np.bincount(found[:, i], minlength=3) / len(found)}, should be [0.5 0.3 0.2]")
