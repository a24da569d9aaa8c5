"""The retrieval drafter keeps the contract, over stores that know much, little and nothing of the texts."""

from __future__ import annotations

import numpy as np
import pytest

from store_tools import store_of
from wager.drafters.retrieval import Retrieval
from wager.testing import check_drafter


def corpus(vocab_size: int) -> list[list[int]]:
    """Constant, periodic, few-lettered and random documents (seed 0), as the texts of the contract are."""
    rng = np.random.default_rng(0)
    few, many = rng.integers(0, min(3, vocab_size), (9, 60)), rng.integers(0, vocab_size, (20, 100))
    return [[0] * 30, [i % min(5, vocab_size) for i in range(50)], *few.tolist(), *many.tolist()]


@pytest.mark.parametrize("vocab_size", [2, 50])
def test_contract(vocab_size: int) -> None:
    store = store_of(corpus(vocab_size), vocab_size)
    check_drafter(lambda: Retrieval(store, n_valid_ids=vocab_size), vocab_size=vocab_size)


def test_contract_of_an_empty_store() -> None:
    check_drafter(lambda: Retrieval(store_of([], 5), n_valid_ids=5), vocab_size=5)


def test_contract_where_the_target_has_fewer_ids_than_the_store() -> None:
    store = store_of(corpus(50), 50)
    check_drafter(lambda: Retrieval(store, n_valid_ids=7), vocab_size=7)


def test_contract_catches_ids_beyond_the_target() -> None:
    store = store_of([[i % 7 for i in range(50)]], 7)
    with pytest.raises(AssertionError, match="ids outside"):
        check_drafter(lambda: Retrieval(store, n_valid_ids=7), vocab_size=5)
