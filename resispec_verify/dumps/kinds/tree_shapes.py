"""The shape of a tree of candidates, from what engines keep of it.

`parent` ``[m]``: the parent of each node, -1 at node 0, the root. SGLang keeps links instead:
`retrive_next_token`, the first child of each node, and `retrive_next_sibling`, the next child of its parent,
both -1 where there is none (also spelled `retrieve_`). EAGLE keeps paths: `retrieve_indices`
``[leaves, depth + 1]``, the nodes from the root to each leaf, -1 after it. The order of siblings is that in
which they are tried: along the links, or as paths first name them; with `parent` alone, ascending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from resispec_verify.dumps.kinds.keys import TREE_KEY, what
from resispec_verify.dumps.kinds.values import integers
from resispec_verify.errors import InputError

__all__ = ["SHAPE_KEYS", "Shape", "either", "has_shape", "shape_of"]

NEXT, SIBLING, PATHS = "retrive_next_token", "retrive_next_sibling", "retrieve_indices"
SHAPE_KEYS = (TREE_KEY, NEXT, SIBLING, PATHS, "retrieve_next_token", "retrieve_next_sibling")


@dataclass(frozen=True, eq=False)
class Shape:
    """Attributes
    ----------
    parent : int64 array (m,)
        -1 at the root.
    depth : int64 array (m,)
        0 at the root.
    children : tuple of int64 arrays
        Of each node, in the order in which they are tried.
    """

    parent: np.ndarray
    depth: np.ndarray
    children: tuple[np.ndarray, ...]


def either(entry: Mapping, key: str) -> Any:
    """What an entry has under a key of SGLang, in either spelling."""
    value = entry.get(key)
    return entry.get(key.replace("retrive", "retrieve")) if value is None else value


def has_shape(entry: object) -> bool:
    """Whether a round says what its tree is."""
    return isinstance(entry, Mapping) and any(entry.get(key) is not None for key in SHAPE_KEYS)


def shape_of(where: str, entry: Mapping, nodes: int) -> Shape:
    """The shape that a round of `nodes` nodes states; entries beyond belong to padding, and are not read.

    Raises
    ------
    InputError
        Nothing states it, two of its statements differ, or it is no tree: a node that is reached twice or not
        at all.
    """
    found: dict[str, list[list[int]]] = {}
    links = either(entry, NEXT), either(entry, SIBLING)
    if any(one is not None for one in links):
        if any(one is None for one in links):
            raise InputError(f"{where}: {NEXT} and {SIBLING} need each other; save both, or parent")
        found[NEXT] = _linked(where, *links, nodes)
    if entry.get(PATHS) is not None:
        found[PATHS] = _along_paths(where, entry[PATHS], nodes)
    if entry.get(TREE_KEY) is not None:
        found[TREE_KEY] = _of_parents(where, entry[TREE_KEY], nodes)
    if not found:
        raise InputError(f"{where} has no {TREE_KEY}; save the parent of each node, -1 at node 0")
    (first, children), *others = found.items()
    for name, other in others:
        if [sorted(nodes) for nodes in other] != [sorted(nodes) for nodes in children]:
            raise InputError(f"{where}: {first} and {name} are of different trees; keep one of them")
    return _checked(where, first, children)


def _checked(where: str, key: str, children: list[list[int]]) -> Shape:
    """Parents and depths; every node is to be reached once from the root."""
    count = len(children)
    parent, depth = np.full(count, -1), np.full(count, -1)
    depth[0] = 0
    waiting = [0]
    while waiting:
        node = waiting.pop()
        for child in children[node]:
            if depth[child] >= 0:
                raise InputError(f"{where}: {key} reaches node {child} twice; each node needs one parent")
            parent[child], depth[child] = node, depth[node] + 1
            waiting.append(child)
    if (depth < 0).any():
        node = int(np.argmax(depth < 0))
        raise InputError(
            f"{where}: {key} does not reach node {node} from node 0; save the tree that was verified, "
            "without other nodes"
        )
    return Shape(parent, depth, tuple(np.asarray(nodes, np.int64) for nodes in children))


def _first(where: str, key: str, value: object, nodes: int) -> np.ndarray:
    """The first `nodes` entries of integers by node."""
    found = integers(f"{where}: {key}", _flat(value), None, -1, 2**31 - 1)
    if len(found) < nodes:
        raise InputError(f"{where}: {key} has {len(found)} entries for {nodes} nodes; save one a node")
    outside = found[:nodes] >= nodes
    if outside.any():
        node = int(np.argmax(outside))
        raise InputError(f"{where}: {key} of node {node} is {found[node]}, and the nodes are 0..{nodes - 1}")
    return found[:nodes]


def _flat(value: object) -> object:
    """``[1, m]`` as ``[m]``: a batch of one."""
    return value[0] if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == 1 else value


def _of_parents(where: str, value: object, nodes: int) -> list[list[int]]:
    parent = _first(where, TREE_KEY, value, nodes)
    if parent[0] != -1:
        raise InputError(f"{where}: {TREE_KEY} of node 0 is {parent[0]}, not -1: node 0 must be the root")
    children: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(1, nodes):
        if parent[node] < 0:
            raise InputError(f"{where}: {TREE_KEY} of node {node} is -1, and only the root has none")
        children[parent[node]].append(node)
    return children


def _linked(where: str, first: object, sibling: object, nodes: int) -> list[list[int]]:
    child, following = _first(where, NEXT, first, nodes), _first(where, SIBLING, sibling, nodes)
    if following[0] != -1:
        raise InputError(f"{where}: {SIBLING} of node 0 is {following[0]}, and the root has none; save -1")
    children = []
    for node in range(nodes):
        row: list[int] = []
        at = int(child[node])
        while at != -1:
            if at in row or at == 0:
                raise InputError(f"{where}: {SIBLING} goes in a circle below node {node}; record it again")
            row.append(at)
            at = int(following[at])
        children.append(row)
    return children


def _along_paths(where: str, value: object, nodes: int) -> list[list[int]]:
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)
        except ValueError:
            value = None
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "iu":
        raise InputError(
            f"{where}: {PATHS} is {what(value)}; save integers [leaves, depth + 1], -1 after a leaf"
        )
    paths = integers(f"{where}: {PATHS}", value, value.shape, -1, nodes - 1)
    children: list[list[int]] = [[] for _ in range(nodes)]
    parent: dict[int, int] = {}
    for path in paths.tolist():
        ended = path.index(-1) if -1 in path else len(path)
        if not ended or path[0] != 0 or any(node != -1 for node in path[ended:]):
            raise InputError(f"{where}: {PATHS} has a path {path[:8]}; each begins at 0 and ends in -1s")
        for above, node in pairwise(path[:ended]):
            if node not in parent:
                parent[node] = above
                children[above].append(node)
            elif parent[node] != above:
                raise InputError(f"{where}: {PATHS} puts node {node} below {parent[node]} and {above}")
    return children
