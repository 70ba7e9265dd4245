"""transformers 5.24.0: `_speculative_sampling` accepts where `r <= p / q`, so that a uniform of exactly 0,
once in 2^24 draws of float32, accepts a token of target probability 0. Here `rand_like` is made to return it.
"""

import torch
from transformers.generation.utils import _speculative_sampling

target, draft = torch.tensor([[[0.0, 0.7, 0.3]] * 2]), torch.tensor([[[0.4, 0.3, 0.3]]])
torch.rand_like = torch.zeros_like
tokens, accepted = _speculative_sampling(torch.tensor([[0]]), draft.log(), 1, target.log())
print("target", target[0, 0].tolist(), "emitted", tokens[0].tolist(), "accepted", int(accepted))
