"""Medusa's slow typical acceptance cannot be called: it hands six arguments to a function of five.

python medusa_slow_typical.py CLONE/OF/MEDUSA
"""

import torch
from medusa.model.utils import evaluate_posterior

candidates = torch.tensor([[0, 1]])
try:
    evaluate_posterior(torch.zeros(1, 2, 3), candidates, temperature=1.0, sampling="typical", fast=False)
except TypeError as error:
    print(error)
