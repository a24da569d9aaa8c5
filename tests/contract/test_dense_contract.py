"""The dense drafter keeps the contract, over stores that know much, little and nothing of the texts."""

from __future__ import annotations

import numpy as np
import pytest

from store_tools import dense_store_of
from wager.drafters.dense import Dense
from wager.models.toy import ToyModel
from wager.testing import N_HIDDEN, check_drafter

ANY = {"floor": 1e-6}  # the states of the contract are random


def corpus(vocab_size: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [[i % min(5, vocab_size) for i in range(50)], *rng.integers(0, vocab_size, (20, 60)).tolist()]


def model(vocab_size: int) -> ToyModel:
    return ToyModel(vocab_size, n_hidden=N_HIDDEN)


@pytest.mark.parametrize("vocab_size", [2, 50])
def test_contract(vocab_size: int) -> None:
    store = dense_store_of(corpus(vocab_size), model(vocab_size))
    check_drafter(lambda: Dense(store, n_valid_ids=vocab_size, **ANY), vocab_size=vocab_size, learns=True)


def test_contract_of_an_empty_store() -> None:
    store = dense_store_of([], model(5))
    check_drafter(lambda: Dense(store, n_valid_ids=5, **ANY), vocab_size=5)


def test_contract_where_the_target_has_fewer_ids_than_the_store() -> None:
    store = dense_store_of(corpus(50), model(50))
    check_drafter(lambda: Dense(store, n_valid_ids=7, **ANY), vocab_size=7, learns=True)


def test_contract_catches_ids_beyond_the_target() -> None:
    store = dense_store_of([[i % 7 for i in range(50)]], model(7))
    with pytest.raises(AssertionError, match="ids outside"):
        check_drafter(lambda: Dense(store, n_valid_ids=7, **ANY), vocab_size=5, learns=True)
