"""Counts of all short substrings of some documents, in a compressed trie that grows by tokens and shrinks by documents.

The counted suffix tree of SuffixDecoding (2411.04975), cut at a depth. It is built as Ukkonen (1995) does it: a suffix
that has become unique is a leaf that grows by itself, so a token costs one step for every suffix that occurred before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from collections.abc import Sequence as ListLike
from itertools import pairwise
from typing import NamedTuple


class Node:
    """A string: ``depth`` tokens from ``at``, where it occurred last, ``count`` times in all.

    ``children`` by the first token of what follows, most recently seen last; None or none at a leaf. An edge has no
    tokens of its own, it reads them in the text at the lower node: two nodes a token at most, whatever is repeated.
    """

    __slots__ = ("at", "children", "count", "depth")

    def __init__(self, at: int, depth: int, count: int, children: dict[int, Node] | None = None) -> None:
        self.at = at
        self.depth = depth
        self.count = count
        self.children = children


class Place(NamedTuple):
    """A string of ``depth`` tokens that ends at ``node`` or on the edge above it, of which ``n_more`` occurrences are
    further down that edge, but not at the node yet.
    """

    node: Node
    depth: int
    n_more: int


class SuffixTrie:
    """Documents in order of arrival, the last one open: substrings of at most ``depth`` tokens, with their counts.

    Nodes point to their latest occurrence. The oldest document goes first, so what a node points to stays as long as
    the node does.
    """

    def __init__(self, depth: int) -> None:
        assert depth >= 1, depth
        self.depth = depth
        self.root = Node(0, 0, 0, {})
        self._text: list[int] = []
        self._base = 0  # position of the first token that is still kept
        self._starts: deque[int] = deque([0])  # of the documents; the last one is open
        self._active: list[Node] = []  # where the suffixes of the open document end that occurred before, longest first

    @property
    def n_tokens(self) -> int:
        """Tokens of all documents kept."""
        return len(self._text)

    @property
    def n_open(self) -> int:
        """Tokens of the open document."""
        return self._base + len(self._text) - self._starts[-1]

    @property
    def documents(self) -> list[list[int]]:
        """The closed documents, oldest first."""
        starts = [start - self._base for start in self._starts]
        return [self._text[a:b] for a, b in pairwise(starts)]

    def extend(self, tokens: ListLike[int]) -> None:
        """Append to the open document."""
        for token in tokens:
            self._append(token)

    def _append(self, token: int) -> None:
        text, base, end = self._text, self._base, self._base + len(self._text)
        active: list[Node] = []
        depth = len(self._active)
        goes_on = False  # where a suffix went on with this token before, all shorter ones did
        for node in (*self._active, self.root):
            child: Node | None = node
            if depth == node.depth:
                children = node.children
                if children is None:
                    children = node.children = {}
                child = children.pop(token, None)
                children[token] = child or Node(end - depth, self.depth, 1)
                goes_on = child is not None
            elif not goes_on:
                goes_on = text[node.at - base + depth] == token
                if not goes_on:
                    self._split(node, depth, end - depth)[token] = Node(end - depth, self.depth, 1)
            if goes_on and child is not None:
                if child.depth == depth + 1:
                    child.count += 1
                    child.at = end - depth
                if depth + 1 < self.depth:
                    active.append(child)
            depth -= 1
        text.append(token)
        self._active = active

    def _split(self, node: Node, depth: int, start: int) -> dict[int, Node]:
        """Make the upper ``depth`` tokens of a node's string the node, seen again at ``start``; returns its children.

        The node keeps its name, so that shorter suffixes that end on the edge above stay where they are.
        """
        below = Node(node.at, node.depth, node.count, node.children)
        node.children = {self._text[node.at - self._base + depth]: below}
        node.at, node.depth, node.count = start, depth, node.count + 1
        return node.children

    def close(self) -> None:
        """End the open document and begin the next one."""
        end = self._base + len(self._text)
        if end == self._starts[-1]:
            return
        for i, node in enumerate(self._active):
            depth = len(self._active) - i
            if depth < node.depth:
                self._split(node, depth, end - depth)
        self._active = []
        for start in range(max(self._starts[-1], end - self.depth + 1), end):
            node = self.root
            while node.depth < end - start:
                assert node.children is not None
                node = node.children[self._text[start - self._base + node.depth]]
            node.depth = end - start  # of a leaf that grew until now; all others end there already
        self._starts.append(end)

    def evict(self) -> None:
        """Take the oldest closed document out, as if it had never been there."""
        assert len(self._starts) > 1, "no closed document"
        start = self._starts.popleft()
        stop = self._starts[0]
        for i in range(start, stop):
            self._remove(i, min(i + self.depth, stop))
        del self._text[: stop - start]
        self._base = stop

    def _remove(self, start: int, stop: int) -> None:
        above, node, key = self.root, self.root, 0
        while node.depth < stop - start:
            assert node.children is not None
            below = self._text[start - self._base + node.depth]
            child = node.children[below]
            child.count -= 1
            if child.count == 0:  # all that is below it goes too
                del node.children[below]
                break
            above, node, key = node, child, below
        if node is not self.root and node.children is not None and len(node.children) == 1:
            only = next(iter(node.children.values()))
            if only.count == node.count:  # nothing branches or ends here any more
                assert above.children is not None
                above.children[key] = only

    def suffixes(self) -> Iterator[Place]:
        """Where the suffixes of the open document end that occurred before, the longest one first."""
        further: Counter[Node] = Counter()
        for i, node in enumerate(self._active):
            depth = len(self._active) - i
            yield Place(node, depth, further[node])
            further[node] += depth < node.depth

    def on_edges(self) -> Counter[Node]:
        """Occurrences of what is on the edge above a node that have not come to the node yet, where there are any."""
        n = len(self._active)
        return Counter(node for i, node in enumerate(self._active) if n - i < node.depth)

    def find(self, tokens: ListLike[int]) -> Place | None:
        """Where a string of at most ``depth`` tokens ends; None where it does not occur in closed documents."""
        node, at = self.root, 0
        while at < len(tokens):
            child = (node.children or {}).get(tokens[at])
            if child is None:
                return None
            node, n = child, min(child.depth, len(tokens))
            if n - at > 1 and self.label(node, at, n) != tokens[at:n]:
                return None
            at = n
        return Place(node, at, 0)

    def label(self, node: Node, start: int, stop: int) -> list[int]:
        """Tokens [start, stop) of a node's string, as far as the text goes."""
        at = node.at - self._base
        return self._text[at + start : at + stop]

    def count(self, tokens: ListLike[int]) -> int:
        """Occurrences of a string of at most ``depth`` tokens."""
        place = self.find(tokens)
        if place is None:
            return 0
        node, depth, _ = place
        if depth == node.depth:
            return node.count
        ends = (len(self._active) - i for i, other in enumerate(self._active) if other is node)
        return node.count + sum(depth <= end < node.depth for end in ends)
