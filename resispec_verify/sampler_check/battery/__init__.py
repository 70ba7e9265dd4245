"""Inputs on which samplers fail: pairs of laws, chains of pairs over several positions, trees, models."""

from resispec_verify.sampler_check.battery.chains import Chain, chains
from resispec_verify.sampler_check.battery.pairs import Input, battery, battery_names, named
from resispec_verify.sampler_check.battery.texts import Models
from resispec_verify.sampler_check.battery.trees import Tree

__all__ = ["Chain", "Input", "Models", "Tree", "battery", "battery_names", "chains", "named"]
