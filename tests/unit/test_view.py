"""What a drafter made of the target may use: scratch rows that the verification writes over, and that go back."""

from __future__ import annotations

import numpy as np
import pytest

from engine_tools import EOS, V, run, toy
from wager.engine import Engine
from wager.errors import ModelError
from wager.policies import Fixed
from wager.types import EMPTY, Batch, Limits, Sampling, TargetView, chain


class Scribbler:
    """Drafts with the target itself, over its own K/V: greedy drafts are right."""

    name, kind, has_laws = "scribbler", "deterministic", False

    def __init__(self) -> None:
        self.view: TargetView | None = None
        self.n_lent = self.n_refused = 0

    def attach(self, view):
        self.view = view

    def propose(self, seqs, limits):
        return [self._draft(seq, limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, seq, limit: Limits):
        table = self.view.scratch(seq, len(seq.tokens) + limit.depth) if limit.depth else None
        if table is None:
            self.n_refused += 1
            return EMPTY
        self.n_lent += 1
        tokens = list(seq.tokens)
        n_cached = seq.n_cached
        for _ in range(limit.depth):
            fed = tokens[n_cached:]
            logits = self.view.model.forward(_batch(fed, n_cached, table)).logits
            n_cached = len(tokens)
            tokens.append(int(np.argmax(logits[0])))
        return chain(tokens[len(seq.tokens) :])

    def observe(self, seqs, drafts, verdicts, seen):
        pass

    def forget(self, seq_id):
        pass

    def seconds(self, n_tokens):
        return 0.0


def _batch(tokens, past, table):
    n = len(tokens)
    return Batch(
        np.array(tokens, np.int64),
        np.arange(past, past + n, dtype=np.int64),
        np.array([past], np.int32),
        np.array([0, n], np.int32),
        np.array(table, np.int32),
        np.array([0, len(table)], np.int32),
        np.array([n - 1], np.int64),
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_plain_and_greedy_drafts_are_all_accepted(temperature: float) -> None:
    sampling = Sampling(max_tokens=24, temperature=temperature)
    plain = run(toy(rows_rule="any"), sampling)
    drafter = Scribbler()
    drafted = run(toy(rows_rule="any"), sampling, drafter=drafter, policy=Fixed(3))
    assert drafted.tokens == plain.tokens
    assert drafter.n_lent > 20
    assert temperature > 0 or sum(s.n_accepted for s in drafted.stats) > 20


def test_where_memory_is_short_nothing_is_lent_and_nothing_is_lost() -> None:
    sampling = Sampling(max_tokens=24)
    long = [[(7 * i + k) % V for i in range(30)] for k in range(3)]
    plain = run(toy(rows_rule="any"), sampling, batch=long)
    drafter = Scribbler()
    tight = run(toy(n_blocks=36, rows_rule="any"), sampling, batch=long, drafter=drafter, policy=Fixed(12))
    assert tight.tokens == plain.tokens
    assert drafter.n_refused
    assert drafter.n_lent


def test_scratch_goes_back_where_drafting_fails() -> None:
    class Failing(Scribbler):
        def _draft(self, seq, limit):
            super()._draft(seq, limit)
            raise ModelError("no")

    engine = Engine(toy(rows_rule="any"), drafter=Failing(), policy=Fixed(20), eos_ids=(EOS,))
    engine.submit([1, 2, 4], Sampling(max_tokens=30), seed=0)
    with pytest.raises(ModelError):
        engine.step()
    assert engine.cache.n_free == engine.cache.n_blocks
