"""The options that commands share, each defined once: name, type, default and help.

A command takes groups of them, ``sampling: SamplingOptions = SamplingOptions()``, and cyclopts flattens each
into its options. Where a command means something of its own by an option, its docstring says so under
``sampling.top_k``, which wins; another default is a subclass with that one field. What a group's values mean
together is checked here as well, by its methods.

The modules here keep their annotations as values: cyclopts looks up those that are text where a subclass is.
"""

from resispec_verify.cli.options.group import (
    Options,
    refuse_beside,
    refuse_by_hand,
    refuse_without,
    values_of,
)
from resispec_verify.cli.options.outputs import JsonOption, OutputOptions, PlotOptions
from resispec_verify.cli.options.readings import (
    FilterOptions,
    InputOption,
    OneSamplingOptions,
    ProposalOptions,
    ProposedReadingOptions,
    RangeOptions,
    ReadingOptions,
    SamplingOptions,
    TemperatureOption,
    make_reading,
    make_sampling,
)
from resispec_verify.cli.options.sources import (
    DumpOptions,
    HandOptions,
    OpeningOptions,
    PadOption,
    ShardsOption,
    SourceOptions,
)
from resispec_verify.cli.options.work import (
    MOST_CANDIDATES,
    ArrayOptions,
    BackendOption,
    DemandOptions,
    MarginalOptions,
    RuleOptions,
    ShapedRuleOptions,
    VisitOptions,
    WorkOptions,
    check_candidates,
    check_gap,
    check_max_tv,
)

__all__ = [
    "MOST_CANDIDATES", "ArrayOptions", "BackendOption", "DemandOptions", "DumpOptions", "FilterOptions",
    "HandOptions", "InputOption", "JsonOption", "MarginalOptions", "OneSamplingOptions", "OpeningOptions",
    "Options", "OutputOptions", "PadOption", "PlotOptions", "ProposalOptions", "ProposedReadingOptions",
    "RangeOptions", "ReadingOptions", "RuleOptions", "SamplingOptions", "ShapedRuleOptions", "ShardsOption",
    "SourceOptions", "TemperatureOption", "VisitOptions", "WorkOptions", "check_candidates", "check_gap",
    "check_max_tv", "make_reading", "make_sampling", "refuse_beside", "refuse_by_hand", "refuse_without",
    "values_of",
]  # fmt: skip
