"""Sampling as engines have it: what can be set, in which order each engine applies it, and to which text."""
