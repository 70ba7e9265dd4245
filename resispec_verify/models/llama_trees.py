"""Trees of candidates through a Llama: a whole tree, or what was added to it, in one forward pass.

The position of a node is that of its depth, and it sees the sequence, its ancestors and itself. So its row
is that of a plain forward pass over its path.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from resispec_verify.models.llama import Llama, Past
from resispec_verify.models.tree_models import Grown

__all__ = ["LlamaTree", "WindowedLlamaTree", "ancestors"]


def ancestors(parents: Sequence[int]) -> np.ndarray:
    """Boolean ``[nodes, nodes]``: entry (i, j) says whether node j is i or an ancestor of it."""
    seen = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


class LlamaTree(Grown):
    """A `Llama` that keeps keys and values across steps, and computes what is new in one forward pass.

    Parameters
    ----------
    llama
        Its weights are shared.
    """

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        super().__init__(vocab=llama.output.shape[0], context=llama.context)

    def open(self, prompt: Sequence[int]) -> None:
        """Begin with a sequence; see `TreeModel`."""
        super().open(prompt)
        # Columns of the cache: the sequence, then the nodes without the root, as far as computed.
        self._past: Past = {}
        self._columns = 0
        self._rows: list[Tensor] = []

    def logits(self, nodes: Sequence[int]) -> np.ndarray:
        """Logits after the path to each node; all that was grown since the last call is computed at once."""
        self._compute()
        return self._llama.output_rows(torch.stack([self._rows[node] for node in nodes])).cpu().numpy()

    def _compute(self) -> None:
        length, start = len(self.sequence), self._columns
        total = length + len(self.tokens) - 1
        if start == total:
            return
        device = self._llama.output.device
        tokens = [*self.sequence, *self.tokens[1:]][start:]
        positions = [*range(length), *(length - 1 + depth for depth in self.depths[1:])][start:]
        hidden = self._llama.hidden(
            torch.tensor(tokens, device=device),
            torch.tensor(positions, device=device),
            torch.from_numpy(self._mask(start)).to(device),
            self._past,
        )
        self._columns = total
        self._rows += hidden[max(0, length - 1 - start) :].unbind()  # from the root on

    def _mask(self, start: int) -> np.ndarray:
        """Boolean ``[C - start, C]``: which of the C columns those from `start` on see."""
        length, total = len(self.sequence), len(self.sequence) + len(self.tokens) - 1
        mask = np.tri(total - start, total, start, dtype=bool)
        first = max(start, length)  # the first node among the rows
        mask[first - start :, length:] = ancestors(self.parents)[first - length + 1 :, 1:]
        return mask

    def advance(self, path: Sequence[int], tokens: Sequence[int]) -> None:
        """Keep the keys and values of the sequence and of the path, gathered; drop the others."""
        length = len(self.sequence)
        columns = [*range(length), *(length - 1 + node for node in path)]
        kept = [column for column in columns if column < self._columns]
        index = torch.tensor(kept, device=self._llama.output.device)
        with torch.inference_mode():
            self._past = {b: (k[:, index], v[:, index]) for b, (k, v) in self._past.items()}
        self._columns, self._rows = len(kept), []
        super().advance(path, tokens)


class WindowedLlamaTree(Grown):
    """A `Llama` that sees the last `window` tokens only, counted as positions 0, 1, ... .

    A token that enters the window moves the positions of all others, so nothing is kept: one forward pass
    for each depth that is asked for, over the end of the sequence and the nodes above.
    """

    def __init__(self, llama: Llama, window: int) -> None:
        self._llama, self._window = llama, window
        super().__init__(vocab=llama.output.shape[0], context=None)

    def logits(self, nodes: Sequence[int]) -> np.ndarray:
        """Logits after the path to each node."""
        levels: dict[int, list[int]] = {}
        for node in nodes:
            levels.setdefault(self.depths[node], []).append(node)
        rows = {}
        for depth, here in levels.items():
            rows |= dict(zip(here, self._level(depth, here), strict=True))
        return np.stack([rows[node] for node in nodes])

    def _level(self, depth: int, nodes: list[int]) -> np.ndarray:
        seen = ancestors(self.parents)
        first = depth - self._window + 1  # depth of the first token in the window
        before = self.sequence[:-1][max(0, len(self.sequence) - 1 + first) :] if first < 0 else []
        used = [i for i in np.flatnonzero(seen[nodes].any(axis=0)).tolist() if self.depths[i] >= first]
        start = -len(before) if before else max(first, 0)
        positions = [*range(len(before)), *(self.depths[i] - start for i in used)]
        total = len(positions)
        mask = np.tri(total, dtype=bool)
        mask[len(before) :, len(before) :] = seen[np.ix_(used, used)]
        device = self._llama.output.device
        hidden = self._llama.hidden(
            torch.tensor([*before, *(self.tokens[i] for i in used)], device=device),
            torch.tensor(positions, device=device),
            torch.from_numpy(mask).to(device),
        )
        wanted = [len(before) + used.index(node) for node in nodes]
        return self._llama.output_rows(hidden[wanted]).cpu().numpy()
