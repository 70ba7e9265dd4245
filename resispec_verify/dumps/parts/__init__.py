"""Many files, or many chunks, as one dump."""
