"""Draft until the draft model is unsure of a token it drew: that token stays, and the path ends (transformers)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.policies.base import CHAIN, Tree
from wager.types import F64, Draft, Drafter, Drawn, Limits, Sequence, Verdict

_ENOUGH = 5  # more tokens than these, of both classes, and the threshold is fitted
_RECENT = 2048  # tokens it is fitted to
_MISS = 3.0  # what ending before a token that would have been right costs, against drafting one that is wrong


@dataclass(frozen=True, slots=True)
class Unsure:
    """Ends a path after a token whose probability is below ``threshold``."""

    threshold: float
    n_top: int = 0

    def before(self, path: Drawn, entropy: float) -> bool:
        return False

    def after(self, paths: ListLike[Drawn]) -> list[bool]:
        return [path.probs[-1] < self.threshold for path in paths]


class Threshold:
    """At most ``n_tokens`` a path, by a threshold that follows what was accepted; at 0 it stays there.

    Source: transformers 5, assistant_confidence_threshold, which refits with scikit-learn's ROC curve.
    """

    def __init__(self, threshold: float, *, n_tokens: int, tree: Tree = CHAIN) -> None:
        self.threshold = threshold
        self._n_tokens = n_tokens
        self._tree = tree
        self._seen: deque[tuple[float, bool]] = deque(maxlen=_RECENT)

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        return [self._tree.limits(self._n_tokens, stop=Unsure(self.threshold))] * len(seqs)

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        return list(drafts)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        """What comes after a token that was wrong tells nothing."""
        if self.threshold == 0:
            return
        for draft, verdict in zip(drafts, verdicts, strict=True):
            reached = {-1, *verdict.path}
            for node, parent in enumerate(draft.parents.tolist()):
                if draft.confidence is not None and parent in reached:
                    self._seen.append((float(draft.confidence[node]), node in reached))
        probs, matched = np.array([p for p, _ in self._seen]), np.array([m for _, m in self._seen], np.bool_)
        if len(probs) > _ENOUGH and 0 < matched.sum() < len(matched):
            self.threshold = fitted(probs, matched)

    def forget(self, seq_id: int) -> None:
        """What was learnt is kept."""


def fitted(probs: F64, matched: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    """The threshold, one of ``probs`` (n,), with the least false alarms + 3 misses, each as a share of its class of
    ``matched`` (n,): a token counts as right from the threshold on. The highest of equals.
    """
    order = np.argsort(-probs, kind="stable")
    right = np.cumsum(matched[order])
    wrong = np.arange(1, len(order) + 1) - right
    last = np.append(np.diff(probs[order]) != 0, True)  # equal probabilities fall on one side together
    costs = (wrong / wrong[-1] + _MISS * (1 - right / right[-1]))[last]
    return float(probs[order][last][np.argmin(costs)])
