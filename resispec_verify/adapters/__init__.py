"""The samplers of other projects in the styles of `check`. Each is imported only when its module is."""
