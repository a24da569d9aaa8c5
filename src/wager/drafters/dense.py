"""Draft what followed where the target was in much the same state (DReSD, Gritta et al. 2502.15572)."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as ListLike
from dataclasses import replace
from typing import Any

import numpy as np

from wager import stores
from wager.drafters.base import DrafterInfo
from wager.drafters.retrieval import most_frequent
from wager.nearest import neighbours
from wager.types import EMPTY, F32, Draft, DraftKind, Limits, Seen, Sequence, Verdict

_POWER, _DOUBT = 4, 0.5


class Dense:
    """Looks up the hidden state that the newest token was chosen from, among those that predict it in a store.

    Each of the ``n_neighbours`` most similar ones (cosine c, at least ``floor``) votes with c^4 for what follows it in
    the corpus, to the end of its document or the first of ``eos_ids``. Drafted are the prefixes with the most votes,
    ids from ``n_valid_ids`` on never. Before the first token of an answer no hidden state was seen: nothing is drafted.

    ``support`` is 16 v / (w + 1/2) rounded, at least 1, where v of w votes are for the first token: on greedy answers
    of a 135M model .08 .17 .25 .38 .50 .76 of v / (w + 1/2) were accepted .05 .16 .24 .35 .42 .68 of the time.
    """

    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(
        self,
        store: stores.Store,
        *,
        n_valid_ids: int,
        eos_ids: Collection[int] = (),
        name: str = "dense",
        n_neighbours: int = 32,
        floor: float = 0.2,
    ) -> None:
        assert store.keys is not None, "the store is not dense"
        assert n_neighbours >= 1, n_neighbours
        assert floor > 0, floor
        self.name = name
        self._tokens = store.tokens
        self._keys = store.keys
        self._n_valid_ids = n_valid_ids
        self._eos_ids = frozenset(eos_ids)
        self._n_neighbours = n_neighbours
        self._floor = floor
        self._queries: dict[int, tuple[int, F32]] = {}  # sequence -> its tokens then, and what to look for
        self._search_s = _search_seconds(np.diff(self._keys.buckets), self._keys.vectors.shape[1])

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        return [self._draft(seq, limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, seq: Sequence, limit: Limits) -> Draft:
        n_tokens, query = self._queries.get(seq.id, (0, None))
        if query is None or n_tokens != len(seq.tokens) or min(limit.n_nodes, limit.depth, limit.width) < 1:
            return EMPTY
        near = neighbours(self._keys, seq.tokens[-1], query, n_most=self._n_neighbours, floor=self._floor)
        if not near:
            return EMPTY
        near.sort(key=lambda found: self._tokens[found[0] + 1 : found[0] + 1 + limit.depth].tolist())
        follow, cosines = np.array([place for place, _ in near], np.int64) + 1, np.array([c for _, c in near])
        votes = np.power(cosines, _POWER)
        draft = most_frequent(
            self._tokens, follow, limit, self._n_valid_ids, support=0, weights=votes, ends=self._eos_ids
        )
        if not len(draft):
            return EMPTY
        share = votes[self._tokens[follow] == draft.tokens[0]].sum() / (votes.sum() + _DOUBT)
        return replace(draft, support=max(1, round(16 * share)))

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        for seq, verdict, said in zip(seqs, verdicts, seen, strict=True):
            hidden = said.hidden(verdict.path[-1] if verdict.path else -1)
            if hidden is not None:
                self._queries[seq.id] = len(seq.tokens), self._keys.query(hidden)

    def forget(self, seq_id: int) -> None:
        self._queries.pop(seq_id, None)

    def seconds(self, n_tokens: int) -> float:
        return 1.5e-4 + self._search_s + 5e-6 * n_tokens if n_tokens else 0.0


def _search_seconds(counts: Any, n_dims: int) -> float:
    """Expected time of a search where tokens are as frequent as in the corpus: ``counts`` (V,) of their keys."""
    total = float(counts.sum())
    return 6e-10 * n_dims * float(np.square(counts, dtype=np.float64).sum()) / total if total else 0.0


def make(argument: str, target: Any) -> Dense:
    """For the registry: ``argument`` names a dense store of the target."""
    from wager.models import catalog

    store = stores.opened("dense", argument)
    stores.check_vocabulary(store, target.text)
    stores.check_model(store, catalog.model_hash(target.ir_dir), target.ir_dir.name)
    return Dense(store, n_valid_ids=target.n_valid_ids, eos_ids=target.text.eos_ids, name=f"dense:{argument}")


def check(argument: str) -> None:
    """Raises ``OptionError`` for a store that is not there or has no keys."""
    stores.check_dense(stores.opened("dense", argument))


DRAFTER = DrafterInfo(
    make=make,
    argument="STORE",
    drafts="what followed in a corpus of yours where the target was in much the same state and chose the same token",
    needs="a store (`wager store build --dense`)",
    remembers="the store",
    costs="0.2 ms, and 40 µs per 1000 keys of the token",
    source="DReSD, Gritta et al. 2502.15572",
    check=check,
)
