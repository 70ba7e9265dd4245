"""gpt-fast's `generate` with a draft model raises since the commit that added batches.

python gpt_fast_speculative.py CLONE/OF/GPT-FAST
"""

import numpy as np
from gpt_fast_loop import loop

laws = np.full((3, 3), 1 / 3)
try:
    loop(laws, laws, [0, 1], 8, batch_size=1)
except RuntimeError as error:
    print(error)
