"""Strongly connected components of a directed graph: which edges lie on a cycle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel

Ints = NDArray[np.int64]


def strong_components(tails: Ints, heads: Ints, count: int) -> Ints:
    """The strongly connected component of each node: two nodes share one if each can be reached from the other.

    An edge lies on a cycle exactly when both its ends are in one component. Tarjan's algorithm (SIAM J. Comput. 1,
    1972) with a stack of its own, linear in nodes and edges.

    >>> strong_components(np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3]), 4).tolist()
    [1, 1, 1, 0]
    """
    order = np.argsort(tails, kind="stable")
    starts = np.searchsorted(tails[order], np.arange(count + 1)).astype(np.int64)
    part = np.full(count, -1, np.int64)
    _components(starts, np.ascontiguousarray(heads[order], np.int64), part)
    return part


@kernel
def _components(starts: Ints, heads: Ints, part: Ints) -> None:
    count = len(part)
    index, low = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    following = starts[:-1].copy()
    path, open_nodes = np.empty(count, np.int64), np.empty(count, np.int64)
    clock, parts, waiting = 0, 0, 0
    for root in range(count):
        if index[root] >= 0:
            continue
        depth = 1
        path[0] = open_nodes[waiting] = root
        waiting += 1
        index[root] = low[root] = clock
        clock += 1
        while depth:
            node = path[depth - 1]
            if following[node] < starts[node + 1]:
                other = heads[following[node]]
                following[node] += 1
                if index[other] < 0:
                    path[depth] = open_nodes[waiting] = other
                    depth += 1
                    waiting += 1
                    index[other] = low[other] = clock
                    clock += 1
                elif part[other] < 0:
                    low[node] = min(low[node], index[other])
                continue
            depth -= 1
            if depth:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[node])
            if low[node] == index[node]:
                while part[node] < 0:
                    waiting -= 1
                    part[open_nodes[waiting]] = parts
                parts += 1
