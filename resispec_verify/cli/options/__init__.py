"""The options that commands share, each defined once: name, type, default and help.

A command takes groups of them, ``sampling: SamplingOptions = SamplingOptions()``, and cyclopts flattens each
into its options. Where a command means something of its own by an option, its docstring says so under
``sampling.top_k``, which wins; another default is a subclass with that one field. What a group's values mean
together is checked here as well, by its methods.

The help of an option stands under its field; where one of a group takes several lines, all of them are in
the group's docstring. No module of `cli` keeps its annotations as text: cyclopts would look it up where a
subclass is.
"""
