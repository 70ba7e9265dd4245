"""Runs over dumps: which positions are read as which pairs, batch by batch, here or on a cluster, resumed."""
