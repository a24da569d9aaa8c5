"""What a model says after single tokens: the first guess where its text so far has said nothing about one.

One row a token, asked for once per model and kept on disk. Ids come in the order of their number, which in a trained
vocabulary is nearly that of how frequent they are: of a 135M model's output the first 8192 of 49152 are 86 %.
"""

from __future__ import annotations

import hashlib
import io
import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from pathlib import Path
from typing import Any

import numpy as np

from wager.drafters.successors import Row, most_likely
from wager.errors import WagerError
from wager.home import wager_home, write_bytes
from wager.models.describe import model_hash
from wager.types import F32, I32, Batch, Model

_N_IDS = 8192
_N_SUCCESSORS = 8
_AT_ONCE = 256
_FIRST_S, _LATER_S = 10.0, 0.3  # for asking, when nothing is known yet and afterwards
_FORMAT = 2
_N_DIGEST = 32
_WHAT = "learning what follows each token"


class Prior:
    """``ids`` (m, k) and ``logits`` (m, k) of the k likeliest successors of the tokens 0 … m - 1; -1 where fewer."""

    def __init__(self, ids: I32, logits: F32) -> None:
        assert ids.shape == logits.shape, (ids.shape, logits.shape)
        self.ids = ids
        self.logits = logits

    def row(self, token: int) -> Row | None:
        if token >= len(self.ids):
            return None
        n = int(np.count_nonzero(self.ids[token] >= 0))
        return Row(self.ids[token, :n].tolist(), self.logits[token, :n].tolist(), 0, 0) if n else None


def ask(
    model: Model,
    before: ListLike[int],
    *,
    n_ids: int,
    n_valid_ids: int,
    known: Prior | None = None,
    budget_s: float = _FIRST_S,
    progress: Callable[[str, int, int], None] | None = None,
) -> Prior:
    """What ``model`` says after ``before`` (the end of a line, say) and each of the first ``n_ids`` tokens.

    Goes on after the rows that are ``known``, and stops after ``budget_s``. Overwrites the model's K/V: whoever keeps
    some there reads it again.
    """
    model.kv_owner = None
    n_blocks = -(-(len(before) + 1) // model.block_size)
    at_once = min(_AT_ONCE, model.max_rows, model.n_blocks // n_blocks)
    model.forward(_batch(before, [0], n_blocks, past=0))
    for block in range(n_blocks):  # what comes before is read once
        model.copy([block] * (at_once - 1), range(n_blocks + block, at_once * n_blocks, n_blocks))
    ids = np.full((n_ids, _N_SUCCESSORS), -1, np.int32)
    logits = np.zeros((n_ids, _N_SUCCESSORS), np.float32)
    start_s, done = time.perf_counter(), 0
    if known is not None:
        done = len(known.ids)
        ids[:done], logits[:done] = known.ids, known.logits
    while done < n_ids and time.perf_counter() - start_s < budget_s:
        if progress is not None:
            progress(_WHAT, done, n_ids)
        tokens = range(done, min(done + at_once, n_ids))
        said = model.forward(_batch(before, tokens, n_blocks, past=len(before))).logits[:, :n_valid_ids]
        for token, row in zip(tokens, said, strict=True):
            best = most_likely(row, _N_SUCCESSORS)
            ids[token, : len(best)], logits[token, : len(best)] = best, row[best]
        done = tokens.stop
    if progress is not None:
        progress(_WHAT, n_ids, n_ids)
    return Prior(ids[:done], logits[:done])


def _batch(before: ListLike[int], tokens: ListLike[int], n_blocks: int, *, past: int) -> Batch:
    """A sequence for each of ``tokens``, after ``before``, of which ``past`` tokens have been read."""
    n, length = len(tokens), len(before) + 1 - past
    return Batch(
        np.array([t for token in tokens for t in (*before[past:], token)], np.int64),
        np.tile(np.arange(past, past + length, dtype=np.int64), n),
        np.full(n, past, np.int32),
        np.arange(0, n * length + 1, length, dtype=np.int32),
        np.arange(n * n_blocks, dtype=np.int32),
        np.arange(0, n * n_blocks + 1, n_blocks, dtype=np.int32),
        np.arange(length - 1, n * length, length, dtype=np.int64),
    )


def load_prior(target: Any) -> Prior:
    """The prior of a target (``drafting.DraftTarget``): from its file, or asked for now and kept.

    The first time takes at most ten seconds, and what that leaves is asked for bit by bit, unnoticed, in later starts.
    """
    path = wager_home() / "prior" / model_hash(target.ir_dir)[:12]
    n_ids = min(_N_IDS, target.n_valid_ids)
    known = _read(path, target.n_valid_ids)
    if known is not None and len(known.ids) >= n_ids:
        return known
    prior = ask(
        target.model,
        target.text.encode("\n"),
        n_ids=n_ids,
        n_valid_ids=target.n_valid_ids,
        known=known,
        budget_s=_FIRST_S if known is None else _LATER_S,
        progress=target.progress if known is None else None,
    )
    try:
        _write(path, prior)
    except (WagerError, OSError) as error:
        logging.getLogger("wager").warning("asked again next time: %s", error)
    return prior


def _read(path: Path, n_valid_ids: int) -> Prior | None:
    """None where there is no file, or it is not whole, or not for this vocabulary: it is made again."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if data[:_N_DIGEST] != hashlib.sha256(data[_N_DIGEST:]).digest():
        return None
    with np.load(io.BytesIO(data[_N_DIGEST:]), allow_pickle=False) as file:
        if int(file["format"]) != _FORMAT or int(file["ids"].max(initial=-1)) >= n_valid_ids:
            return None
        return Prior(file["ids"], file["logits"])


def _write(path: Path, prior: Prior) -> None:
    """Behind a digest, so that what is read is what was written."""
    data = io.BytesIO()
    np.savez(data, format=_FORMAT, ids=prior.ids, logits=prior.logits)
    write_bytes(path, hashlib.sha256(data.getvalue()).digest() + data.getvalue())
