"""Rows, texts and settings that every engine's sampling is run on, and where its laws are written.

Only NumPy is needed, so that it imports in every engine's environment.
"""

import json
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
V = 13
PROMPT, OUTPUT = [1, 2, 3, 2], [5, 2, 5, 7, 5]
SETTINGS = [
    {"temperature": 0.7},
    {"top_k": 4},
    {"top_k": 4, "top_p": 0.82},
    {"top_p": 0.57, "temperature": 1.4},
    {"min_p": 0.2, "temperature": 1.5},
    {"min_p": 0.1, "top_k": 5, "top_p": 0.9, "temperature": 0.8},
    {"typical_p": 0.5},
    {"typical_p": 0.7, "top_k": 6, "temperature": 1.3},
    {"top_n_sigma": 1.0, "temperature": 1.5},
    {"xtc_probability": 1.0, "xtc_threshold": 0.1, "temperature": 1.5},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"repetition_penalty": 1.3, "logit_bias": {"2": 1.5, "4": -2.0}},
    {"presence_penalty": 0.4, "penalty_last_n": 2},
    {"bad_words": [2], "top_k": 3},
    {"repetition_penalty": 1.2, "temperature": 0.8, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
]


def rows():
    """Logits by name: random ones, one with equal values, and the law of docs/reference/sampling.md."""
    rng = np.random.default_rng(20261130)
    found = {f"random {i}": (rng.normal(size=V) * 2).astype(np.float32) for i in range(6)}
    found["tied"] = np.asarray([1, 2, 2, 0, 2, 1, -1, 3, 0, 1, 2, -1, 0], np.float32)
    law = np.asarray([0.35, 0.25, 0.2, 0.05, 0.03, *[0.015] * 8])
    found["nucleus"] = np.log(law).astype(np.float32)
    return found


def record(engine, order, version, known, law_of, note):
    """Run ``law_of(logits, settings, prompt, output)`` on all cases whose settings are ``known``."""
    laws = []
    for settings in SETTINGS:
        if settings.keys() - set(known):
            continue
        for name, logits in rows().items():
            law = np.asarray(law_of(logits.copy(), settings, PROMPT, OUTPUT), np.float64)
            assert law.shape == (V,)
            assert abs(law.sum() - 1) < 1e-5
            laws.append({"settings": settings, "row": name, "law": [float(f"{p:.8g}") for p in law]})
    held = {
        "engine": engine,
        "version": version, "order": order, "note": note, "prompt": PROMPT, "output": OUTPUT,
        "rows": {name: logits.tolist() for name, logits in rows().items()}, "laws": laws,
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{order}.json"
    path.write_text(json.dumps(held).replace('{"settings"', '\n{"settings"') + "\n")
    print(f"{engine} {version}: {len(laws)} laws in {path.name}")
