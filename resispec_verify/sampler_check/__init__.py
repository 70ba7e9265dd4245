"""Somebody's sampler, judged by its draws: where they come from, and the tests of them."""
