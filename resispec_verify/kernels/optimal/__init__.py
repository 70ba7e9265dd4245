"""Optimal rules and limits: what the best exact rule accepts, and how."""
