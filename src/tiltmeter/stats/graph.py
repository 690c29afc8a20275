"""Which things lie on a ring of arrows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.jit import kernel

Ints = NDArray[np.int64]


def strong_parts(tails: Ints, heads: Ints, count: int) -> Ints:
    """Per node the number of its strong part: two nodes share one if each can be reached from the other.

    An arrow lies on a ring exactly when both its ends are in one part. Tarjan's algorithm (SIAM J. Comput. 1, 1972)
    with a stack of its own, linear in nodes and arrows.

    >>> strong_parts(np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3]), 4).tolist()
    [1, 1, 1, 0]
    """
    order = np.argsort(tails, kind="stable")
    starts = np.searchsorted(tails[order], np.arange(count + 1)).astype(np.int64)
    part = np.full(count, -1, np.int64)
    _strong(starts, np.ascontiguousarray(heads[order], np.int64), part)
    return part


@kernel
def _strong(starts: Ints, heads: Ints, part: Ints) -> None:
    count = len(part)
    found, low = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    following = starts[:-1].copy()
    path, open_nodes = np.empty(count, np.int64), np.empty(count, np.int64)
    clock, parts, waiting = 0, 0, 0
    for root in range(count):
        if found[root] >= 0:
            continue
        depth = 1
        path[0] = open_nodes[waiting] = root
        waiting += 1
        found[root] = low[root] = clock
        clock += 1
        while depth:
            node = path[depth - 1]
            if following[node] < starts[node + 1]:
                other = heads[following[node]]
                following[node] += 1
                if found[other] < 0:
                    path[depth] = open_nodes[waiting] = other
                    depth += 1
                    waiting += 1
                    found[other] = low[other] = clock
                    clock += 1
                elif part[other] < 0:
                    low[node] = min(low[node], found[other])
                continue
            depth -= 1
            if depth:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[node])
            if low[node] == found[node]:
                while part[node] < 0:
                    waiting -= 1
                    part[open_nodes[waiting]] = parts
                parts += 1
