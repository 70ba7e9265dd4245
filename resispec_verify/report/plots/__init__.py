"""Figures: data in, matplotlib Figure out; no global state, no window, no file."""
