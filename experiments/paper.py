"""What the ResiSpec paper reports (arXiv 2608.24411), number by number.

Accepted lengths count the final token, so a tree of d levels (root included) gives at most d.
"""

from __future__ import annotations

from typing import NamedTuple


class Lengths(NamedTuple):
    """A row of Table 6, or of Table 1 where the tree is d5b3: accepted lengths and tokens per second."""

    target: str
    draft: str
    temperature: float
    data: str
    tree: str
    resispec: float
    resispec_throughput: float
    specinfer: float
    specinfer_throughput: float


def _llama(temperature: float, data: str, *numbers: float) -> Lengths:
    return Lengths("Llama-2-7B", "JF68M", temperature, data, "d5b3", *numbers)


TABLE_1 = (
    _llama(1.0, "CNN/DM", 4.68, 96.43, 2.51, 57.29),
    _llama(1.0, "OpenWebText", 4.69, 96.06, 2.51, 56.76),
    _llama(1.0, "C4", 4.67, 96.90, 2.64, 61.02),
    _llama(0.6, "CNN/DM", 4.14, 85.03, 2.59, 59.41),
    _llama(0.6, "OpenWebText", 4.16, 85.62, 2.49, 56.48),
    _llama(0.6, "C4", 4.13, 85.91, 2.66, 61.69),
)

#: Method: accepted length, tokens per second; T = 1.
TABLE_2 = {
    "Sequoia": (3.07, 88.14),
    "Sequoia+ResiSpec": (4.32, 115.32),
    "EAGLE": (3.12, 61.82),
    "EAGLE+ResiSpec": (3.85, 71.17),
}

#: Tree: verification cost, tokens per second of ResiSpec and of SpecInfer, speed-up.
TABLE_3 = {
    "d7b2": (127, 101.01, 52.69, 1.92),
    "d5b3": (121, 94.25, 56.92, 1.66),
    "d4b5": (156, 60.83, 42.46, 1.43),
    "d3b11": (133, 44.21, 37.89, 1.17),
}

#: Rule and data: KL divergence at T = 1 and T = 0.6.
TABLE_4 = {
    ("resispec", "CNN/DM"): (2.64e-10, 4.38e-10),
    ("resispec", "OpenWebText"): (7.15e-10, 4.37e-10),
    ("resispec", "C4"): (1.02e-9, 1.39e-10),
    ("specinfer", "CNN/DM"): (1.04e-9, 3.55e-10),
    ("specinfer", "OpenWebText"): (1.63e-9, 3.89e-10),
    ("specinfer", "C4"): (9.10e-10, 1.09e-10),
}

#: Candidates: accepted length at depth 4 with SpecInfer, and efficiency (gain for each candidate added).
TABLE_5 = {1: (1.89, None), 2: (2.17, 0.280), 4: (2.48, 0.155), 8: (2.76, 0.070)}

TABLE_6 = tuple(
    Lengths(*row)
    for row in (
        ("Sheared-2.7B", "Sheared-1.3B", 1.0, "CNN/DM", "d5b3", 4.88, 78.309, 3.88, 66.313),
        ("Sheared-2.7B", "Sheared-1.3B", 1.0, "CNN/DM", "d4b4", 3.94, 82.988, 3.42, 76.695),
        ("Sheared-2.7B", "Sheared-1.3B", 1.0, "OpenWebText", "d5b3", 4.86, 78.447, 3.92, 67.66),
        ("Sheared-2.7B", "Sheared-1.3B", 1.0, "OpenWebText", "d4b4", 3.95, 83.06, 3.45, 76.864),
        ("Sheared-2.7B", "Sheared-1.3B", 1.0, "C4", "d5b3", 4.84, 78.362, 3.98, 68.679),
        ("Sheared-2.7B", "Sheared-1.3B", 1.0, "C4", "d4b4", 3.95, 82.85, 3.44, 77.34),
        ("Sheared-2.7B", "Sheared-1.3B", 0.6, "CNN/DM", "d5b3", 4.88, 78.927, 4.12, 71.174),
        ("Sheared-2.7B", "Sheared-1.3B", 0.6, "CNN/DM", "d4b4", 3.96, 83.11, 3.55, 79.681),
        ("Sheared-2.7B", "Sheared-1.3B", 0.6, "OpenWebText", "d5b3", 4.89, 78.998, 4.1, 70.922),
        ("Sheared-2.7B", "Sheared-1.3B", 0.6, "OpenWebText", "d4b4", 3.97, 81.833, 3.54, 78.424),
        ("Sheared-2.7B", "Sheared-1.3B", 0.6, "C4", "d5b3", 4.88, 77.939, 4.13, 70.685),
        ("Sheared-2.7B", "Sheared-1.3B", 0.6, "C4", "d4b4", 3.97, 82.559, 3.51, 78.083),
        ("Sheared-2.7B", "TinyLlama-1.1B", 1.0, "CNN/DM", "d5b3", 4.79, 82.17, 3.71, 68.587),
        ("Sheared-2.7B", "TinyLlama-1.1B", 1.0, "CNN/DM", "d4b4", 3.92, 86.656, 3.3, 78.432),
        ("Sheared-2.7B", "TinyLlama-1.1B", 1.0, "OpenWebText", "d5b3", 4.83, 82.798, 3.69, 68.074),
        ("Sheared-2.7B", "TinyLlama-1.1B", 1.0, "OpenWebText", "d4b4", 3.92, 86.496, 3.3, 78.125),
        ("Sheared-2.7B", "TinyLlama-1.1B", 1.0, "C4", "d5b3", 4.81, 82.645, 3.71, 68.493),
        ("Sheared-2.7B", "TinyLlama-1.1B", 1.0, "C4", "d4b4", 3.93, 86.656, 3.27, 77.58),
        ("Sheared-2.7B", "TinyLlama-1.1B", 0.6, "CNN/DM", "d5b3", 4.84, 82.508, 3.87, 71.609),
        ("Sheared-2.7B", "TinyLlama-1.1B", 0.6, "CNN/DM", "d4b4", 3.95, 86.957, 3.43, 81.699),
        ("Sheared-2.7B", "TinyLlama-1.1B", 0.6, "OpenWebText", "d5b3", 4.79, 82.441, 3.8, 70.423),
        ("Sheared-2.7B", "TinyLlama-1.1B", 0.6, "OpenWebText", "d4b4", 3.95, 87.395, 3.32, 79.005),
        ("Sheared-2.7B", "TinyLlama-1.1B", 0.6, "C4", "d5b3", 4.81, 82.508, 3.79, 70.077),
        ("Sheared-2.7B", "TinyLlama-1.1B", 0.6, "C4", "d4b4", 3.93, 87.036, 3.32, 78.858),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 1.0, "CNN/DM", "d5b3", 4.81, 82.508, 3.53, 65.274),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 1.0, "CNN/DM", "d4b4", 3.93, 86.496, 3.18, 75.429),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 1.0, "OpenWebText", "d5b3", 4.81, 82.17, 3.51, 65.05),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 1.0, "OpenWebText", "d4b4", 3.93, 86.656, 3.17, 75.302),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 1.0, "C4", "d5b3", 4.81, 82.441, 3.58, 66.327),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 1.0, "C4", "d4b4", 3.93, 86.957, 3.21, 76.278),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 0.6, "CNN/DM", "d5b3", 4.78, 81.967, 3.71, 68.823),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 0.6, "CNN/DM", "d4b4", 3.95, 87.103, 3.25, 77.519),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 0.6, "OpenWebText", "d5b3", 4.79, 82.051, 3.64, 67.51),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 0.6, "OpenWebText", "d4b4", 3.95, 86.957, 3.21, 76.588),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 0.6, "C4", "d5b3", 4.79, 81.882, 3.65, 67.66),
        ("Sheared-2.7B", "Tiny-Vicuna-1B", 0.6, "C4", "d4b4", 3.95, 87.191, 3.24, 77.058),
        ("Llama-2-7B", "JF68M", 1.0, "CNN/DM", "d5b3", 4.68, 95.057, 2.51, 56.851),
        ("Llama-2-7B", "JF68M", 1.0, "CNN/DM", "d4b4", 3.88, 84.317, 2.47, 58.962),
        ("Llama-2-7B", "JF68M", 1.0, "OpenWebText", "d5b3", 4.69, 94.004, 2.51, 56.98),
        ("Llama-2-7B", "JF68M", 1.0, "OpenWebText", "d4b4", 3.87, 84.246, 2.47, 59.172),
        ("Llama-2-7B", "JF68M", 1.0, "C4", "d5b3", 4.67, 94.429, 2.64, 59.952),
        ("Llama-2-7B", "JF68M", 1.0, "C4", "d4b4", 3.89, 84.674, 2.55, 60.976),
        ("Llama-2-7B", "JF68M", 0.6, "CNN/DM", "d5b3", 4.14, 84.603, 2.59, 58.997),
        ("Llama-2-7B", "JF68M", 0.6, "CNN/DM", "d4b4", 3.77, 82.035, 2.47, 59.172),
        ("Llama-2-7B", "JF68M", 0.6, "OpenWebText", "d5b3", 4.16, 84.531, 2.49, 56.69),
        ("Llama-2-7B", "JF68M", 0.6, "OpenWebText", "d4b4", 3.75, 81.566, 2.42, 58.072),
        ("Llama-2-7B", "JF68M", 0.6, "C4", "d5b3", 4.13, 84.388, 2.66, 60.57),
        ("Llama-2-7B", "JF68M", 0.6, "C4", "d4b4", 3.74, 81.499, 2.57, 61.652),
    )
)
