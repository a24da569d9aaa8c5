"""Cacheback's frozen table: what followed a leader most often in a corpus, looked up when it is first asked for."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np

from wager import stores
from wager.drafters.retrieval import following, places_with

Tokens = tuple[int, ...]


class Frozen:
    """Leader -> its ``n_followers`` most frequent followers in a store, of equally frequent ones the lower ids first.

    A follower has ``n_follower`` tokens, less where its document ends or an id is not below ``n_valid_ids``. At most
    ``n_samples`` places are looked at, evenly spread over the sorted suffixes. ``n_rows`` leaders are remembered.
    """

    def __init__(
        self,
        store: stores.Store,
        *,
        n_valid_ids: int,
        n_follower: int = 3,
        n_followers: int = 4,
        n_samples: int = 1024,
        n_rows: int = 16384,
    ) -> None:
        assert n_follower >= 1, n_follower
        assert n_followers >= 1, n_followers
        self._store = store
        self._n_valid_ids = n_valid_ids
        self._n_follower = n_follower
        self._n_followers = n_followers
        self._n_samples = n_samples
        self._known = lru_cache(maxsize=n_rows)(self._look_up)

    def __call__(self, leader: Tokens) -> list[Tokens]:
        return self._known(leader)

    def _look_up(self, leader: Tokens) -> list[Tokens]:
        low, high = places_with(self._store, list(leader))
        if low == high:
            return []
        tokens, reach = self._store.tokens, np.arange(self._n_follower)
        follow = following(self._store, low, high, len(leader), n_most=self._n_samples)
        rows = tokens[np.minimum(follow[:, None] + reach, len(tokens) - 1)]  # a text that is cut ends in a separator
        counts = Counter(self._valid(row) for row in rows.tolist())
        del counts[()]
        return [follower for follower, _ in counts.most_common(self._n_followers)]

    def _valid(self, row: list[int]) -> Tokens:
        n = next((i for i, token in enumerate(row) if not 0 <= token < self._n_valid_ids), len(row))
        return tuple(row[:n])
