"""Deeper and narrower where the draft is sure: tree depth and nodes by the entropy of the best path (2505.13254)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence as ListLike

import numpy as np

from wager.policies.base import CHAIN, Tree
from wager.tree import prune
from wager.types import F64, SAMPLED, Draft, Drafter, Drawn, Limits, Sequence, Verdict

_N_TOP = 10  # likeliest tokens that an entropy is of
_SHARES = (0.3, 0.6, 1.0)  # of the nodes, that the three lowest bins keep
# Where bins part, in nats a token: docs/policies.md says what they were fitted to.
CUTS = (0.134, 0.263, 0.519)


class Bins:
    """Ends a draft at ``depth`` tokens, or up to ``more`` later, by the bin that its best path falls into there.

    The best path has the largest product of probabilities; its bin is that of its mean entropy among ``cuts``.
    """

    n_top = _N_TOP

    def __init__(self, depth: int, more: int, cuts: ListLike[float]) -> None:
        self._depth = depth
        self._more = more
        self._cuts = cuts
        self.bin: int | None = None  # None: not that deep yet
        self.entropy = math.nan  # of the best path, nats a token

    @property
    def extension(self) -> int:
        """Tokens beyond the usual depth."""
        return max(0, self._more - self.bin) if self.bin is not None and self.bin < len(_SHARES) else 0

    def before(self, path: Drawn, entropy: float) -> bool:
        return False

    def after(self, paths: ListLike[Drawn]) -> list[bool]:
        n_tokens = len(paths[0].probs)
        if n_tokens == self._depth:
            best = max(paths, key=lambda path: math.prod(path.probs))
            self.entropy = sum(best.entropies) / n_tokens
            self.bin = bisect_right(self._cuts, self.entropy)
        return [n_tokens >= self._depth + self.extension] * len(paths)

    def n_nodes(self, usual: int) -> int:
        """Nodes to keep, of ``usual`` ones: never fewer than the best path has."""
        if self.bin is None or self.bin >= len(_SHARES):
            return usual
        return max(self._depth + self.extension, int(_SHARES[self.bin] * usual) + self.extension)


class HeteroSpec:
    """Drafts ``tree`` to ``n_tokens``; in the three lowest of the bins up to half as deep again, with .3, .6 or all of
    its nodes: the likeliest ones. Of a single path only the depth changes.

    The paper sums entropies over a path of one length; here they are averaged, so that one set of cuts serves all.
    """

    def __init__(self, n_tokens: int, *, tree: Tree = CHAIN, cuts: ListLike[float] = CUTS) -> None:
        self._n_tokens = n_tokens
        self._more = -(-n_tokens // 2)
        self._tree = tree
        self._cuts = cuts
        self._bins: dict[int, Bins] = {}

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        self._bins |= {seq.id: Bins(self._n_tokens, self._more, self._cuts) for seq in seqs}
        return [self._tree.limits(self._n_tokens + self._more, stop=self._bins[seq.id]) for seq in seqs]

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        usual = self._tree.n_nodes(self._n_tokens)
        return [likeliest(draft, self._bins[seq.id].n_nodes(usual)) for seq, draft in zip(seqs, drafts, strict=True)]

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """Bins are fitted beforehand."""

    def forget(self, seq_id: int) -> None:
        self._bins.pop(seq_id, None)


def likeliest(draft: Draft, n_nodes: int) -> Draft:
    """The ``n_nodes`` nodes of a draft with the largest products of probabilities from the root; with their parents,
    which are never less likely.
    """
    if len(draft) <= n_nodes:
        return draft
    assert draft.kind not in SAMPLED, "a sampled draft must not be cut by what it holds"
    assert draft.confidence is not None, "the drafter tells no probabilities"
    products: list[float] = []
    for prob, parent in zip(draft.confidence.tolist(), draft.parents.tolist(), strict=True):
        products.append(prob * (products[parent] if parent >= 0 else 1.0))
    order = np.argsort(-np.array(products), kind="stable")  # equal ones in order of nodes: parents come first
    return prune(draft, sorted(order[:n_nodes].tolist()))


def fit_bins(entropies: F64, ranks: F64, *, depth: int = 3, least: int = 20) -> tuple[float, ...]:
    """Where bins part: a regression tree ``depth`` levels deep, of the ``ranks`` (n,) that fully accepted paths had
    among their draft's paths on their mean ``entropies`` (n,).

    A split has the least sum of both sides' mean squared deviations, as the paper writes it: not weighted by how much
    lies on a side, so ``least`` values must.
    """
    order = np.argsort(entropies, kind="stable")
    return tuple(_cuts(np.asarray(entropies)[order], np.asarray(ranks, np.float64)[order], depth, least))


def _cuts(x: F64, y: F64, depth: int, least: int) -> list[float]:
    if not depth or len(set(y.tolist())) < 2:
        return []
    places = [i for i in range(least, len(x) - least + 1) if x[i - 1] < x[i]]
    if not places:
        return []
    at = min(places, key=lambda i: float(y[:i].var() + y[i:].var()))
    return [
        *_cuts(x[:at], y[:at], depth - 1, least),
        float(x[at - 1] + x[at]) / 2,
        *_cuts(x[at:], y[at:], depth - 1, least),
    ]
