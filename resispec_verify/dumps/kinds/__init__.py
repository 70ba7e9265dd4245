"""One kind of dump a module: which keys it has, and what they mean."""
