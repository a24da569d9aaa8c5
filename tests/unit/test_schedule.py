"""Scheduling is a pure function: who feeds how many tokens."""

from __future__ import annotations

from wager.schedule import Budget, plan
from wager.types import Sampling, Sequence


def seq(i, n_tokens, n_cached):
    return Sequence(i, [0] * n_tokens, n_tokens, Sampling(), 0, n_cached=n_cached)


def turns(active, **budget):
    got = plan(active, Budget(**{"n_new": 100, "n_rows": 100, "n_seqs": 10, **budget}), rule="pair")
    return [(turn.seq.id, turn.n_new) for turn in got]


def test_decoding_sequences_go_first_and_prompts_share_the_rest():
    active = [seq(0, 90, 0), seq(1, 10, 9), seq(2, 50, 0)]
    assert turns(active) == [(1, 1), (0, 90), (2, 8)]


def test_budgets_hold():
    active = [seq(i, 10, 9) for i in range(8)]
    assert turns(active, n_rows=7) == [(0, 1), (1, 1), (2, 1)]
    assert turns(active, n_seqs=2) == [(0, 1), (1, 1)]
    assert turns(active, n_new=1) == [(0, 1)]
    assert turns([seq(0, 90, 3)], n_new=7) == [(0, 7)]


def test_the_last_turn_of_a_prompt_reaches_its_end():
    [first] = plan([seq(0, 9, 0)], Budget(5, 100, 1), rule="pair")
    [last] = plan([seq(0, 9, 5)], Budget(5, 100, 1), rule="pair")
    assert not first.reaches_end
    assert last.reaches_end
