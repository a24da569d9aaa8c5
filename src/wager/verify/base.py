"""What an acceptance rule sees: rows of target scores, computed only where the rule looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

import numpy as np

from wager.sampling import Noise, Scores, is_plain, probabilities, scores
from wager.types import F32, F64, I64, Draft, Sampling, Sequence, Verdict


class Rows:
    """The target's law after each node of a draft. Node -1 is the last committed token.

    ``logits`` (R, V) f32 of the forward; ``index`` (n + 1,): the logits row of node -1, 0, …, n - 1; ``banned``: ids
    that ``min_tokens`` suppresses. Sampling options are applied with the history of the node's own path.
    """

    def __init__(
        self, logits: F32, index: ListLike[int], seq: Sequence, draft: Draft, *, banned: Iterable[int] = ()
    ) -> None:
        assert len(index) == len(draft) + 1, (len(index), len(draft))
        self._logits = logits
        self._index = index
        self._seq = seq
        self._draft = draft
        self._banned = tuple(banned)
        self._scores: dict[int, Scores] = {}
        self._committed: I64 | None = None

    @property
    def sampling(self) -> Sampling:
        return self._seq.sampling

    @property
    def start(self) -> int:
        """Committed tokens, prompt included, at the start of this round."""
        return len(self._seq.tokens)

    def path(self, node: int) -> list[int]:
        """Nodes from the root to ``node``, both included; empty for -1."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self._draft.parents[node])
        return nodes[::-1]

    def position(self, node: int) -> int:
        """Output position of the token chosen after ``node``."""
        return self._seq.n_output + len(self.path(node))

    def logits(self, node: int) -> F32:
        """Raw logits (V,) after ``node``."""
        row: F32 = self._logits[self._index[node + 1]]
        return row

    def scores(self, node: int) -> Scores:
        """Unnormalised log-weights (V,) after ``node``, all sampling options applied. Read only."""
        if node not in self._scores:
            self._scores[node] = scores(
                self.logits(node),
                self.sampling,
                tokens=self._history(node),
                n_prompt=self._seq.n_prompt,
                banned=self._banned,
            )
        return self._scores[node]

    def _history(self, node: int) -> I64 | list[int]:
        if is_plain(self.sampling):
            return self._seq.tokens  # not looked at
        if self._committed is None:  # a long list takes a while to convert: once a round, not once a node
            self._committed = np.array(self._seq.tokens, np.int64)
        return np.concatenate([self._committed, self._draft.tokens[self.path(node)]])

    def __getitem__(self, node: int) -> F64:
        """Probabilities (V,) after ``node``: at temperature 0 all mass on the lowest id of the largest score."""
        x = self.scores(node)
        if self.sampling.temperature > 0:
            return probabilities(x)
        p = probabilities(x) * 0
        p[int(x.argmax())] = 1
        return p


Rule = Callable[[Rows, Draft, Noise], Verdict]


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """A rule and what holds of it.

    ``lossless``: the text has exactly the target's law. ``coupled``: the text is that of plain decoding with the same
    seed, token by token. ``needs_probs``: drafts must carry the law they were drawn from.
    """

    rule: Rule
    lossless: bool = True
    coupled: bool = False
    needs_probs: bool = False
