"""`compare --pad-vocab`: what is printed where vocabularies differ, and what is refused."""

from __future__ import annotations

import numpy as np


def test_padding_is_named_with_its_mass(cli, tmp_path):
    rows = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]], np.float32)
    wide = np.concatenate([rows, np.array([[-9.0], [0.0]], np.float32)], axis=-1)
    np.savez(tmp_path / "narrow.npz", target_logits=rows)
    np.savez(tmp_path / "wide.npz", target_logits=wide)
    both = ("compare", tmp_path / "wide.npz", tmp_path / "narrow.npz")
    refused = cli(*both)
    assert refused.status == 2
    assert "pass --pad-vocab" in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    shown = cli(*both, "--pad-vocab")
    assert shown.status == 0
    assert "vocabularies 4 and 3" in shown.out
    assert "tokens only in A: 1; mass on them: mean" in shown.out
    assert "(position 1)" in shown.out
    assert "tokens only in B" not in shown.out
    mass = 1 / (np.exp(2) + 3)
    report = cli(*both, "--pad-vocab", "--json", "-", "--max-tv", f"{mass * 0.99:.6f}")
    assert report.status == 1
    assert abs(report.json["results"][0]["only_in_a"]["mass_max"] - mass) < 1e-12
