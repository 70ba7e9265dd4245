"""The table of live audits in docs/reference/engines.md is what its results say."""

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "experiments" / "engines" / "live" / "page.py"


def test_the_table_is_current():
    assert subprocess.run([sys.executable, str(PAGE), "--check"], check=False).returncode == 0


def test_a_result_of_no_row_is_refused(tmp_path):
    found = subprocess.run(
        [sys.executable, str(PAGE), "--keep", "unheard-of", str(tmp_path)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 1
    assert found.stderr.startswith("unheard-of: no row of that name")
