"""Commands that apply the temperature alone say what else a dump states."""

from __future__ import annotations

import torch
from cli_helpers import drawn


def test_what_is_stated_and_not_applied_is_said(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # so that names are not shortened
    logits = drawn(2, 5, seed=1)
    meta = {"sampling": {"temperature": 0.7, "order": "vllm", "presence_penalty": 1.0, "top_p": [0.9, None]}}
    path = "stated.pt"
    torch.save({"target_logits": logits, "draft_logits": logits, "meta": meta}, path)
    plain = "plain.pt"
    torch.save({"target_logits": logits, "meta": {"sampling": {"temperature": 0.7}}}, plain)
    result = cli("compare", path, plain, "--json", "-")
    assert result.status == 0
    said = "stated.pt: meta states top_p, presence_penalty, which this command does not apply"
    assert said in result.err
    assert "plain.pt: meta" not in result.err
    timed = cli("runtime", path, "--repeats", 1)
    assert "stated.pt: meta states temperature, top_p, presence_penalty, which" in timed.err
