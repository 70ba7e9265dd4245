"""Logs of one line a decision: probabilities, uniforms and outcomes, without rows."""
