"""A deterministic draft while it grows: node by node, best first, within its limits. A chain is a tree of width 1."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wager.types import EMPTY, Draft, Limits


class Growing:
    """Nodes are numbered as they are made, -1 is the last committed token; siblings keep the order they came in.

    The finished draft lists every path before the next one starts, so that its first branch is the best one: what is
    fed where there is no room for more, and what lies in place in the cache when it is accepted.
    """

    __slots__ = ("_below", "_depths", "_limit", "_parents", "_room", "_tokens")

    def __init__(self, limit: Limits) -> None:
        self._limit = limit
        self._room = limit.n_nodes if limit.depth > 0 and limit.width > 0 else 0
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._depths = [0]  # of node i - 1
        self._below: list[dict[int, int]] = [{}]  # of node i - 1: token -> node

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    def add(self, parent: int, token: int) -> int | None:
        """The child of ``parent`` that holds ``token``, made where there is none yet; None where the limits forbid it.

        Best first: who comes late finds the places taken.
        """
        below, depth = self._below[parent + 1], self._depths[parent + 1]
        node = below.get(token)
        if node is not None:
            return node
        if self._room <= 0 or depth >= self._limit.depth or len(below) >= self._limit.width:
            return None
        self._room -= 1
        node = below[token] = len(self._tokens)
        self._tokens.append(token)
        self._parents.append(parent)
        self._depths.append(depth + 1)
        self._below.append({})
        return node

    def follow(self, parent: int, tokens: Iterable[int]) -> int | None:
        """Add one below the other; the last node, or None where the limits cut the path."""
        node: int | None = parent
        for token in tokens:
            if node is None:
                break
            node = self.add(node, token)
        return node

    def path(self, node: int) -> list[int]:
        """Tokens of the draft from its first one to ``node``."""
        tokens: list[int] = []
        while node >= 0:
            tokens.append(self._tokens[node])
            node = self._parents[node]
        return tokens[::-1]

    def draft(self, support: int) -> Draft:
        """What has grown; where that is nothing, the empty draft without support."""
        if not self._tokens:
            return EMPTY
        tokens: list[int] = []
        parents: list[int] = []
        waiting = [(node, -1) for node in reversed(self._below[0].values())]
        while waiting:
            node, parent = waiting.pop()
            waiting += [(child, len(tokens)) for child in reversed(self._below[node + 1].values())]
            tokens.append(self._tokens[node])
            parents.append(parent)
        return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), support=support)
