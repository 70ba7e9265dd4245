"""Pairs of laws of which only the most probable tokens are known: their extreme completions, and bounds."""
