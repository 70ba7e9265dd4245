"""For commands that have not moved yet."""

from resispec_verify.cli.table import print_records
from resispec_verify.cli.verdict_table import remarks

__all__ = ["print_records", "remarks"]
