"""One file format a module: bytes to plain containers and arrays, and never code."""
