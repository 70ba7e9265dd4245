"""The door: one call a question, and a `Report` that prints as a table and turns into the command's JSON."""

from resispec_verify.api.check import CheckReport, check
from resispec_verify.api.limits import LimitsReport, limits
from resispec_verify.api.replay import ReplayReport, replay
from resispec_verify.api.report import Report
from resispec_verify.api.top import TopReport, verify_top
from resispec_verify.api.verify import VerifyReport, verify
from resispec_verify.api.weights import WeightsReport, weights

__all__ = [
    "CheckReport",
    "LimitsReport",
    "ReplayReport",
    "Report",
    "TopReport",
    "VerifyReport",
    "WeightsReport",
    "check",
    "limits",
    "replay",
    "verify",
    "verify_top",
    "weights",
]
