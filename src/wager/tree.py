"""Drafts as trees of contexts: which nodes are one context, and who its children are. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import replace

import numpy as np

from wager.types import Draft


def contexts(draft: Draft) -> list[int]:
    """(n,) per node the first node with the same path of tokens: itself, save for i.i.d. duplicates."""
    if draft.kind != "iid":
        return list(range(len(draft)))
    first: dict[tuple[int, int], int] = {}
    found: list[int] = []
    for node, (parent, token) in enumerate(zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True)):
        found.append(first.setdefault((found[parent] if parent >= 0 else -1, token), node))
    return found


def children(draft: Draft) -> dict[int, list[int]]:
    """Per context (-1: the root) its child nodes in draw order, duplicates included; contexts without any are absent.

    The children of a context are those of all nodes that share it: sequences drawn side by side stay side by side.
    """
    context = contexts(draft)
    found: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.parents.tolist()):
        found.setdefault(context[parent] if parent >= 0 else -1, []).append(node)
    return found


def merged(draft: Draft) -> tuple[Draft, list[int]]:
    """The draft with every context once (what a forward has to see), and per node (n,) its node there."""
    context = contexts(draft)
    kept = [node for node, first in enumerate(context) if node == first]
    if len(kept) == len(draft):
        return draft, context
    new = {node: i for i, node in enumerate(kept)}
    node_of = [new[first] for first in context]
    parents = [context[parent] if parent >= 0 else -1 for parent in draft.parents.tolist()]
    return prune(replace(draft, parents=np.array(parents, np.int32)), kept), node_of


def prune(draft: Draft, nodes: ListLike[int]) -> Draft:
    """The draft with only ``nodes`` (ascending, prefix-closed)."""
    if len(nodes) == len(draft):
        return draft
    if not nodes or nodes[-1] < len(nodes):  # its beginning, as of every chain
        return _beginning(draft, len(nodes))
    kept = np.asarray(nodes, np.int64)
    new = np.full(len(draft) + 1, -1, np.int32)  # the last entry is what parent -1 maps to
    new[kept] = np.arange(len(kept), dtype=np.int32)
    laws = None if draft.laws is None else tuple(draft.laws[i] for i in nodes)
    confidence = None if draft.confidence is None else draft.confidence[kept]
    return replace(draft, tokens=draft.tokens[kept], parents=new[draft.parents[kept]], laws=laws, confidence=confidence)


def _beginning(draft: Draft, n: int) -> Draft:
    """The first n nodes."""
    laws = None if draft.laws is None else draft.laws[:n]
    confidence = None if draft.confidence is None else draft.confidence[:n]
    return Draft(draft.tokens[:n], draft.parents[:n], laws, draft.kind, draft.support, draft.source, confidence)


def depths(draft: Draft) -> list[int]:
    """(n,) depth of every node, from 1."""
    found: list[int] = []
    for parent in draft.parents.tolist():
        found.append(1 if parent < 0 else found[parent] + 1)
    return found
