"""Stores in memory, from lists of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wager.corpus import SEPARATOR
from wager.hidden import read_keys
from wager.models.toy import ToyModel
from wager.stores import Store, StoreInfo, arrays

Documents = Sequence[Sequence[int]]


def tokens_of(documents: Documents) -> np.ndarray:
    return np.array([token for document in documents for token in (*document, SEPARATOR)], np.int32)


def store_of(documents: Documents, vocab_size: int) -> Store:
    info = StoreInfo(
        name="test",
        model="none",
        tokenizer="none",
        vocab_size=vocab_size,
        n_tokens=sum(map(len, documents)),
        n_documents=len(documents),
        sources=(),
    )
    return Store(info, **arrays(tokens_of(documents), vocab_size))


def dense_store_of(documents: Documents, model: ToyModel) -> Store:
    """The model reads every document; its state is the same wherever the tokens that it depends on are."""
    store = store_of(documents, model.vocab_size)
    return replace(store, keys=read_keys(model, store.tokens, model.vocab_size))
