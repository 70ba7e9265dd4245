"""The public names are typed: a user's script passes pyright in strict mode."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("user_script.py")


def checked(folder, text):
    (folder / "script.py").write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found]


@pytest.mark.skipif(
    shutil.which("pyright", path=str(Path(sys.executable).parent)) is None, reason="no pyright"
)
def test_a_users_script_passes_in_strict_mode(tmp_path):
    text = SCRIPT.read_text()
    assert checked(tmp_path, text) == []
    wrong = checked(tmp_path, text.replace("rv.verify(", "rv.verfy(", 1) + "\nbad: int = report.acceptance\n")
    assert len(wrong) >= 2


def test_the_package_says_that_it_is_typed():
    import resispec_verify

    assert Path(resispec_verify.__file__).with_name("py.typed").exists()
