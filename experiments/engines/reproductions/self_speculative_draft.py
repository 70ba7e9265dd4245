"""Draft & Verify's `self_speculative_sample` drafts the best token by default, verified as a draw.

python self_speculative_draft.py CLONE/OF/SELF-SPECULATIVE-DECODING
"""

import numpy as np
import torch
from self_speculative_loop import text

torch.manual_seed(0)
target, draft = (np.tile(law, (3, 1)) for law in ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1]))
for drawn in (True, False):
    found = np.concatenate([text(target, draft, [0, 1], 8, do_sample_draft=drawn) for _ in range(300)])
    print(f"do_sample_draft {drawn}: {np.bincount(found, minlength=3) / len(found)}, should be {target[0]}")
