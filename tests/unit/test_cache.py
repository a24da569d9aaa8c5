"""Block pool: nothing lost, nothing shared that may be written, prefixes found again."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from wager.cache import BlockPool, Fork

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


def test_a_fork_of_a_fork_shares_its_blocks_and_outlives_it():
    pool = BlockPool(20, BS)
    pool.open(0, [1])
    pool.reserve(0, 14)
    first = pool.fork(0, 6, 14)
    second = pool.fork(0, 10, 14, of=first)
    assert second.table[:2] == first.table[:2] != tuple(pool.table(0))[:2]
    assert second.copies == ((first.table[2], second.table[2]),)
    assert pool.blocks_for_fork(10, 14) == 2 == len(set(second.table) - set(first.table))
    pool.check([first, second])
    pool.drop(first)
    pool.check([second])
    pool.adopt(0, second)
    pool.check()
    assert pool.n_free == 16


def test_a_fork_of_a_fork_is_all_or_nothing():
    pool = BlockPool(4, BS)
    pool.open(0, [1])
    pool.reserve(0, 8)
    first = pool.fork(0, 3, 8)
    assert pool.n_free == 0
    assert pool.fork(0, 5, 8, of=first) is None
    pool.check([first])
    pool.drop(first)
    assert pool.n_free == 2


@pytest.mark.parametrize("n_shared", [0, 1])
def test_check_finds_a_fork_that_may_write_what_others_read(n_shared):
    pool = BlockPool(20, BS)
    pool.open(0, [1])
    pool.reserve(0, 12)
    fork = pool.fork(0, 8, 12)
    with pytest.raises(AssertionError, match="writers"):
        pool.check([Fork(fork.table, n_shared, fork.copies)])


def test_check_finds_a_block_at_two_places():
    pool = BlockPool(20, BS)
    pool.open(0, [1])
    pool.reserve(0, 12)
    fork = pool.fork(0, 8, 12)
    with pytest.raises(AssertionError, match="two places"):
        pool.check([Fork((fork.table[1], fork.table[0], fork.table[2]), 2, ())])


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
    """Random lives of sequences and trees of forks over a small alphabet; a model of the contents finds a block that
    is wrongly shared, or written by one owner while another still reads it.
    """

    seqs = Bundle("seqs")

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(14, BS)
        self.tokens: dict[int, list[int]] = {}
        self.content: dict[int, list[int | None]] = {}
        self.n_cached: dict[int, int] = {}
        self.forks: dict[int, list[tuple[Fork, list[int]]]] = {}  # with the text each holds
        self.next_id = 0

    def write(self, table, start, tokens):
        for i, token in enumerate(tokens, start):
            self.content.setdefault(table[i // BS], [None] * BS)[i % BS] = token

    def read(self, table, n):
        return [self.content[table[i // BS]][i % BS] for i in range(n)]

    @rule(target=seqs, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def open(self, tokens):
        seq_id, self.next_id = self.next_id, self.next_id + 1
        n = self.pool.open(seq_id, tokens)
        assert n <= max(0, len(tokens) - 2)
        assert self.read(self.pool.table(seq_id), n) == tokens[:n]
        self.tokens[seq_id], self.n_cached[seq_id], self.forks[seq_id] = list(tokens), n, []
        return seq_id

    @rule(seq_id=seqs, n_new=st.integers(1, 9), extra=st.integers(0, 5), token=st.integers(0, 1))
    def feed(self, seq_id, n_new, extra, token):
        if seq_id not in self.tokens:
            return
        self.drop_all(seq_id)
        tokens, n_cached = self.tokens[seq_id], self.n_cached[seq_id]
        stop = min(n_cached + n_new, len(tokens))
        if not self.pool.reserve(seq_id, stop + extra):
            return
        self.write(self.pool.table(seq_id), n_cached, [*tokens[n_cached:stop], *[-1] * extra])
        if stop == len(tokens):
            tokens.append(token)
        self.n_cached[seq_id] = stop
        self.pool.keep(seq_id, tokens, stop)

    @rule(seq_id=seqs, of=st.integers(0, 3), n_kept=st.integers(0, 30), new=st.lists(st.integers(0, 1), max_size=9))
    def fork(self, seq_id, of, n_kept, new):
        """Of the sequence itself (0), or of one of its forks; below the rows that are final it must not go."""
        if seq_id not in self.tokens or of > len(self.forks[seq_id]):
            return
        source, text = self.forks[seq_id][of - 1] if of else (None, self.tokens[seq_id][: self.n_cached[seq_id]])
        n_kept = max(min(n_kept, len(text)), self.n_cached[seq_id])
        n_free = self.pool.n_free
        fork = self.pool.fork(seq_id, n_kept, n_kept + len(new) + 1, of=source)
        if fork is None:
            assert self.pool.blocks_for_fork(n_kept, n_kept + len(new) + 1) > n_free == self.pool.n_free
            return
        for src, dst in fork.copies:
            self.content[dst] = list(self.content[src])
        self.write(fork.table, n_kept, new)
        self.forks[seq_id].append((fork, [*text[:n_kept], *new]))

    @rule(seq_id=seqs, which=st.integers(0, 5))
    def adopt(self, seq_id, which):
        """A branch is confirmed as far as it was fed, the others go."""
        if seq_id not in self.tokens or which >= len(self.forks[seq_id]):
            return
        fork, text = self.forks[seq_id].pop(which)
        self.pool.adopt(seq_id, fork)
        self.drop_all(seq_id)
        self.tokens[seq_id], self.n_cached[seq_id] = [*text, 0], len(text)
        self.pool.keep(seq_id, self.tokens[seq_id], len(text))

    @rule(seq_id=seqs)
    def close(self, seq_id):
        if seq_id in self.tokens:
            self.drop_all(seq_id)
            self.pool.close(seq_id)
            del self.tokens[seq_id]

    def drop_all(self, seq_id):
        while self.forks[seq_id]:
            self.pool.drop(self.forks[seq_id].pop(0)[0])

    @invariant()
    def whole(self):
        self.pool.check([fork for forks in self.forks.values() for fork, _ in forks])
        for seq_id, tokens in self.tokens.items():
            n = self.n_cached[seq_id]
            assert self.read(self.pool.table(seq_id), n) == tokens[:n]
            for fork, text in self.forks[seq_id]:
                assert self.read(fork.table, len(text)) == text


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
