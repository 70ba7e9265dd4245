"""EAGLE 1 draws the token after a path that was accepted in full without temperature, top-k and top-p.

python eagle_1_last_token.py CLONE/OF/SPEC-BENCH
"""

import torch
from model.eagle.utils import evaluate_posterior, prepare_logits_processor

logits, draft = torch.tensor([[0.0, 1.0, 2.0]]).expand(1, 2, 3), torch.softmax(torch.zeros(1, 3), -1)
processor = prepare_logits_processor(temperature=0.5)
given = (
    torch.tensor([[0, 2]]),
    processor,
    torch.tensor([[1.0, 1 / 3]]),
    [draft] * 2,
    [[0, 0]],
    None,
    [[[], []]],
)
_, accepted, law = evaluate_posterior(logits, *given)
print(f"{accepted} accepted; then the law {law.tolist()}")
print(f"at temperature 0.5 it is {torch.softmax(logits[0, 1] / 0.5, -1).tolist()}")
