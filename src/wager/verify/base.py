"""What an acceptance rule sees: rows of target scores, computed only where the rule looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace

import numpy as np

from wager.errors import ConstraintError
from wager.sampling import Noise, Scores, is_plain, is_softmax, scores
from wager.types import F32, F64, I64, Draft, DraftKind, Sampling, Sequence, Verdict
from wager.verify.dice import Dice
from wager.verify.mass import Mass


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
        self._ends: dict[int, ConstraintError] = {}
        self._masses: dict[int, Mass] = {}
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
            try:
                self._scores[node] = self._scored(node)
            except ConstraintError as error:  # the sequence ends here, if it comes here: rules need not know
                self._ends[node] = error
                self._scores[node] = np.where(np.arange(self._logits.shape[1]) == 0, 0.0, -np.inf)
        return self._scores[node]

    def _scored(self, node: int) -> Scores:
        history, seq, allowed = self._history(node), self._seq, None
        if seq.guide is not None:
            path = self._draft.tokens[self.path(node)].tolist()
            allowed = seq.guide.allowed([*seq.output, *path])
        return scores(
            self.logits(node),
            self.sampling,
            tokens=history,
            n_prompt=seq.n_prompt,
            banned=self._banned,
            allowed=allowed,
        )

    def ended(self, verdict: Verdict) -> Verdict:
        """The verdict, cut where the constraint let nothing follow."""
        for n, node in enumerate((-1, *verdict.path)):
            if node in self._ends:
                return replace(verdict, path=verdict.path[:n], error=self._ends[node])
        return verdict

    def _history(self, node: int) -> I64 | list[int]:
        if is_plain(self.sampling):
            return self._seq.tokens  # not looked at
        if self._committed is None:  # a long list takes a while to convert: once a round, not once a node
            self._committed = np.array(self._seq.tokens, np.int64)
        return np.concatenate([self._committed, self._draft.tokens[self.path(node)]])

    def logs(self, node: int) -> tuple[Scores, float]:
        """x (V,) and a temperature: the law is softmax(x / temperature), at 0 all on the largest. Read only."""
        if is_softmax(self.sampling):  # spares a row
            return self.logits(node), self.sampling.temperature
        return self.scores(node), float(self.sampling.temperature > 0)

    def mass(self, node: int) -> Mass:
        """Unnormalised probabilities (V,) after ``node``, worked out where they are looked at."""
        if node not in self._masses:
            self._masses[node] = Mass.softmax(*self.logs(node))
        return self._masses[node]

    def weights(self, node: int) -> F64:
        """All of the ``mass`` (V,): at temperature 0 one-hot on the choice. Read only."""
        return self.mass(node).weights()

    def __getitem__(self, node: int) -> F64:
        """Probabilities (V,) after ``node``: at temperature 0 all mass on the lowest id of the largest score."""
        weights = self.weights(node)
        return np.asarray(weights / weights.sum())

    def at(self, node: int, ids: I64) -> F64:
        """Probabilities (m + 1,) after ``node``: of ``ids`` (m,), and last of all other tokens together."""
        return self.mass(node).split(ids)

    def entropy(self, node: int) -> float:
        """Entropy of the law after ``node``, nats."""
        return self.mass(node).entropy


Rule = Callable[[Rows, Draft, Noise], Verdict]
# A rule before its noise: what it does as a function of what the dice say, so that proofs can go through all of it.
Decide = Callable[[Rows, Draft, Dice], Verdict]

ANY_KIND: frozenset[DraftKind] = frozenset(("deterministic", "coupled", "iid", "without_replacement"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInfo:
    """A rule and what holds of it.

    ``kinds``: the drafts it is right for; of a drafter that can draw in several ways, ``draws`` is asked for.
    ``needs_laws``: drafts that were drawn must carry their laws. ``trees``: a context may have several children.
    ``lossless``: the text has exactly the target's law. ``coupled``: it is that of plain decoding with the same seed,
    token by token. ``decide``: the rule before its noise, None for rules that hash it themselves.
    ``max_children`` bounds what the rule can take (0: no bound). ``knob``: value of a lossy rule's parameter.
    ``acceptance``, ``use`` and ``source`` are for people.
    """

    name: str
    rule: Rule
    decide: Decide | None = None
    kinds: frozenset[DraftKind] = ANY_KIND
    draws: DraftKind = "iid"
    needs_laws: bool = True
    trees: bool = True
    lossless: bool = True
    coupled: bool = False
    max_children: int = 0
    knob: float | None = None
    acceptance: str = ""
    use: str = ""
    source: str = ""
