"""Block pool: nothing lost, nothing shared that may be written, prefixes found again."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from wager.cache import BlockPool

BS = 4


def filled(pool, seq_id, tokens):
    n_shared = pool.open(seq_id, tokens)
    assert pool.reserve(seq_id, len(tokens))
    pool.keep(seq_id, tokens, len(tokens) - 1)
    return n_shared


def test_a_prefix_is_shared_in_whole_blocks_and_never_the_last_two_tokens():
    pool = BlockPool(20, BS)
    tokens = list(range(17))
    assert filled(pool, 0, tokens) == 0
    assert pool.open(1, tokens) == 12  # rows 0..16 kept at most to row 14: three full blocks
    assert list(pool.table(1))[:3] == list(pool.table(0))[:3]
    assert pool.open(2, tokens[:10]) == 8
    assert pool.open(3, tokens[:9]) == 4  # 8 would leave a single row
    assert pool.open(4, [99, *tokens[1:]]) == 0
    pool.check()


def test_content_survives_closing_until_the_space_is_needed():
    pool = BlockPool(5, BS)
    tokens = list(range(17))
    filled(pool, 0, tokens)
    pool.close(0)
    assert pool.n_free == 5
    assert pool.open(1, tokens) == 12
    pool.close(1)
    assert pool.reserve(2, 20) if pool.open(2, [7] * 3) == 0 else False
    pool.close(2)
    assert pool.open(3, tokens) == 0
    pool.check()


def test_unregistered_blocks_are_taken_before_registered_ones():
    pool = BlockPool(10, BS)
    filled(pool, 0, list(range(9)))  # two full blocks registered
    pool.close(0)
    pool.open(1, [50])
    assert pool.reserve(1, 8 * BS)
    assert pool.open(2, list(range(9))) == 4  # nine tokens may share at most floor(7 / 4) blocks
    pool.check()


def test_reserve_is_all_or_nothing():
    pool = BlockPool(3, BS)
    pool.open(0, [1])
    assert not pool.reserve(0, 13)
    assert pool.n_free == 3
    assert pool.reserve(0, 12)


def test_fork_shares_full_blocks_copies_the_partial_one_and_can_be_adopted():
    pool = BlockPool(10, BS)
    pool.open(0, [1])
    pool.reserve(0, 10)
    mine = list(pool.table(0))
    fork = pool.fork(0, 6, 12)
    assert fork is not None
    assert fork.table[:1] == tuple(mine[:1])
    assert fork.copies == ((mine[1], fork.table[1]),)
    pool.check([fork])
    pool.adopt(0, fork)
    pool.check()
    assert list(pool.table(0)) == list(fork.table)
    assert pool.n_free == 7
    aligned = pool.fork(0, 8, 12)
    assert aligned is not None
    assert aligned.copies == ()
    pool.drop(aligned)
    pool.check()
    assert pool.fork(0, 0, 1000) is None
    pool.check()


def test_two_sequences_that_wrote_the_same_block_end_up_sharing_it():
    pool = BlockPool(20, BS)
    tokens = list(range(9))
    for seq_id in (0, 1):
        pool.open(seq_id, tokens)
        pool.reserve(seq_id, 9)
    for seq_id in (0, 1):
        pool.keep(seq_id, tokens, 9)
    assert list(pool.table(0))[:2] == list(pool.table(1))[:2]
    pool.check()


def test_check_finds_a_lost_block():
    pool = BlockPool(4, BS)
    pool.open(0, [1])
    pool.reserve(0, 4)
    pool._tables[0].clear()
    with pytest.raises(AssertionError):
        pool.check()


class PoolMachine(RuleBasedStateMachine):
    """Random lives of sequences over a small alphabet; a model of the contents finds a wrongly shared block."""

    seqs = Bundle("seqs")

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(12, BS)
        self.tokens: dict[int, list[int]] = {}
        self.content: dict[int, list[int | None]] = {}
        self.n_cached: dict[int, int] = {}
        self.next_id = 0

    @rule(target=seqs, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def open(self, tokens):
        seq_id, self.next_id = self.next_id, self.next_id + 1
        n = self.pool.open(seq_id, tokens)
        assert n <= max(0, len(tokens) - 2)
        for i in range(n):
            assert self.content[self.pool.table(seq_id)[i // BS]][i % BS] == tokens[i]
        self.tokens[seq_id], self.n_cached[seq_id] = list(tokens), n
        return seq_id

    @rule(seq_id=seqs, n_new=st.integers(1, 9), extra=st.integers(0, 5), token=st.integers(0, 1))
    def feed(self, seq_id, n_new, extra, token):
        if seq_id not in self.tokens:
            return
        tokens = self.tokens[seq_id]
        stop = min(self.n_cached[seq_id] + n_new, len(tokens))
        if not self.pool.reserve(seq_id, stop + extra):
            return
        table = self.pool.table(seq_id)
        for i in range(self.n_cached[seq_id], stop + extra):
            self.content.setdefault(table[i // BS], [None] * BS)[i % BS] = tokens[i] if i < stop else -1
        if stop == len(tokens):
            tokens.append(token)
        self.n_cached[seq_id] = stop
        self.pool.keep(seq_id, tokens, stop)

    @rule(seq_id=seqs)
    def close(self, seq_id):
        if seq_id in self.tokens:
            self.pool.close(seq_id)
            del self.tokens[seq_id]

    @invariant()
    def whole(self):
        self.pool.check()
        for seq_id, tokens in self.tokens.items():
            table = self.pool.table(seq_id)
            for i in range(self.n_cached[seq_id]):
                assert self.content[table[i // BS]][i % BS] == tokens[i]


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
