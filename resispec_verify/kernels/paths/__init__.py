"""Sums over rejection paths at full vocabulary."""
