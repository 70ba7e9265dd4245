"""What transformers 5.15.0 emits with its DFlash generator on recorded logits.

``DFlashTokenCandidateGenerator.get_candidates`` draws candidates from the processed draft (temperature and
top-k of the request) and returns the raw logits, which ``_speculative_sampling`` takes for the draft; the
target is processed. For the first candidate of a draft that is: target and proposal with the request's
filters, the declared draft the plain softmax. The emitted law is computed exactly, position by position::

    python experiments/dflash_declared_draft.py [--top-k 50] [--temperature 1] [dump ...]

Default: the example in ``examples/``. The last lines are the same with 128 standard normal logits a model,
unrelated, as a toy with 128 tokens has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.evidence import operational_marginals
from resispec_verify.rules import make_rule
from resispec_verify.tables.reading import Clock, Reading, pairs_of

EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2-skip6-N8-fp16.pt"


def emitted_tv(target: np.ndarray, declared: np.ndarray, proposal: np.ndarray) -> np.ndarray:
    """Total variation (B,) between what speculative sampling emits and the target."""
    marginals = operational_marginals(make_rule("speculative"), target, declared, 1, drawn_from=proposal)
    return 0.5 * np.abs(np.asarray(marginals.placed) - target).sum(axis=-1)


def of_laws(target: np.ndarray, draft: np.ndarray, request: Sampling) -> np.ndarray:
    """The same from unfiltered laws (B, V)."""
    with np.errstate(divide="ignore"):
        p, q = np.log(target), np.log(draft)
    filtered = [request.probabilities(logits, dtype=np.float64) for logits in (p, q)]
    return emitted_tv(filtered[0], draft, filtered[1])


def show(name: str, tv: np.ndarray) -> None:
    """One line."""
    print(
        f"{name}: {len(tv)} positions, TV mean {tv.mean():.4f}, median {np.median(tv):.4f}, "
        f"max {tv.max():.4f}, in [.06, .08]: {int(((tv > 0.06) & (tv < 0.08)).sum())}"
    )


def main() -> None:
    """Each dump, then the toy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dumps", nargs="*", type=Path, default=[EXAMPLE])
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--temperature", type=float, default=1.0)
    chosen = parser.parse_args()
    request = Sampling(temperature=chosen.temperature, top_k=chosen.top_k)
    plain = Reading((Sampling(),))
    for path in chosen.dumps:
        batches = pairs_of(open_dump(path), plain, backend=get_backend("numpy"), clock=Clock())
        found = [of_laws(np.asarray(b.pair.target), np.asarray(b.pair.draft), request) for b in batches]
        show(path.name, np.concatenate(found))
    rng = np.random.default_rng(0)
    laws = [Sampling().probabilities(rng.normal(size=(200, 128)), dtype=np.float64) for _ in range(2)]
    show("128 standard normal logits", of_laws(*laws, request))


if __name__ == "__main__":
    main()
