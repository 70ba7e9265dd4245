"""Apple's recurrent drafter verifies the best beam as if it had been drawn from the draft.

python recurrent_drafter_beam.py CLONE/OF/ML-RECURRENT-DRAFTER
"""

import numpy as np
from recurrent_drafter import ENGINE

target, draft = (np.tile(law, (100_000, 1)) for law in ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1]))
for row in ENGINE.configurations:
    found = np.asarray(row.sampler(target, draft, np.random.default_rng(0)))
    print(f"{row.what}: {np.bincount(found, minlength=3) / len(found)}, should be {target[0]}")
