"""What an installed package must do in a bare environment: no torch, no checkout around it, no network."""

import importlib.resources
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import resispec_verify as rv

HERE = pathlib.Path(__file__).resolve().parents[1]
HAND = ["--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", "--candidates", "1"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed program."""
    program = pathlib.Path(sys.executable).with_name("resispec-verify")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def main() -> None:
    """All of it; raises on the first thing that is wrong."""
    assert HERE not in pathlib.Path(rv.__file__).parents or "site-packages" in rv.__file__, rv.__file__
    assert run("--version").stdout.strip() == rv.__version__
    by_hand = json.loads(run("kl", *HAND, "--json", "-").stdout)
    found = {r["rule"]: r["tv_mean"] for r in by_hand["results"] if r["marginal"] == "operational"}
    assert abs(found["resispec"] - 5 / 58) < 1e-12, found  # the README's counterexample
    assert found["specinfer"] < 1e-12, found
    with tempfile.TemporaryDirectory() as folder:  # a dump of 2 positions, through the compiled kernels
        dump = pathlib.Path(folder) / "dump.npz"
        rows = np.random.default_rng(0).normal(size=(2, 2, 500))
        np.savez(dump, target_logits=rows[0], draft_logits=rows[1])
        done = run("kl", str(dump), "--rule", "specinfer", "--require-exact")
        assert done.returncode == 0, done
        assert run("kl", str(dump), "--rule", "resispec", "--require-exact").returncode == 1
        assert run("kl", str(dump) + "x").returncode == 2
    schemas = [file.name for file in (importlib.resources.files(rv) / "schemas").iterdir()]
    assert "kl-1.json" in schemas, schemas


main()
