"""The LRU table against a naive one, and the drafts made from it against a slow oracle."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_tools import LIMITS, ask, check_text, in_preorder, sequence, tree_of
from wager.drafters import make_drafter
from wager.drafters.cacheback import Cacheback, Follower, FollowerTable
from wager.errors import OptionError
from wager.types import Limits

SMALL = st.integers(0, 2)
N_ROWS, N_FOLLOWERS = 3, 2


@given(st.lists(st.tuples(st.tuples(SMALL, SMALL), st.tuples(SMALL, SMALL)), max_size=60))
def test_the_table_forgets_what_was_updated_least_recently(updates) -> None:
    """Fails if a row or a follower is dropped, kept, counted or ordered otherwise than in plain lists."""
    table = FollowerTable(n_rows=N_ROWS, n_followers=N_FOLLOWERS)
    rows: list[tuple[tuple[int, int], list[list]]] = []  # the newest first
    for leader, tokens in updates:
        table.update(leader, tokens)
        row = next((row for known, row in rows if known == leader), [])
        rows = [(leader, row), *((known, other) for known, other in rows if known != leader)][:N_ROWS]
        times = next((times for known, times in row if known == tokens), 0)
        row[:] = [[tokens, times + 1], *([known, n] for known, n in row if known != tokens)][:N_FOLLOWERS]
        table.get((0, 0))  # asking is no use
        found = [(leader, [[f.tokens, f.times] for f in row]) for leader, row in reversed(table.rows.items())]
        assert found == rows


def test_of_two_that_begin_alike_the_longer_one_stays() -> None:
    table = FollowerTable(n_rows=1, n_followers=4)
    for tokens in ((1, 2), (5,), (1, 2, 3), (1, 2, 3), (1,), (1, 4)):
        table.update((0,), tokens, tokens)
    assert table.get((0,)) == [Follower((1, 4), 1, (1, 4)), Follower((1, 2, 3), 2, (1,)), Follower((5,), 1, (5,))]


@given(st.lists(SMALL, max_size=40), st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_fed_bit_by_bit_or_at_once(text, n_leader, n_follower, rng) -> None:
    options = {"n_leader": n_leader, "n_follower": n_follower}
    by_bits, at_once = Cacheback(**options), Cacheback(**options)
    seq = sequence([1])
    while len(seq.tokens) <= len(text):
        ask(by_bits, seq, Limits(2, 2, 2))
        seq.tokens += text[len(seq.tokens) - 1 :][: rng.randrange(1, 7)]
    ask(by_bits, seq, Limits(2, 2, 2))
    ask(at_once, sequence(seq.tokens), Limits(2, 2, 2))
    assert list(by_bits.table.rows.items()) == list(at_once.table.rows.items())


def test_no_n_gram_goes_across_sequences() -> None:
    """Fails if the tail of one sequence leads into another, in one batch or after the first one has ended."""
    drafter = Cacheback(n_leader=1, n_follower=2)
    seqs = [sequence([1, 2, 3], seq_id=0), sequence([4, 5, 6], seq_id=1)]
    for more in ([7, 8], [9]):
        drafter.propose(seqs, [Limits(4, 4)] * 2)
        drafter.forget(0)
        seqs[0] = sequence([*seqs[0].tokens, *more], seq_id=0)
        seqs[1].tokens += more
    drafter.propose(seqs, [Limits(4, 4)] * 2)
    texts = [seq.tokens for seq in seqs]
    windows = {tuple(text[i : i + 3]) for text in texts for i in range(len(text) - 2)}
    assert {(*leader, *f.tokens) for leader, row in drafter.table.rows.items() for f in row} == windows


def _tree(text: list[int], n_leader: int, n_follower: int, limit: Limits) -> list[tuple[int, ...]]:
    """Paths in the order they are made, from the text itself: no table, no trie."""

    def newest_first(leader: tuple[int, ...]) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for start in range(len(text) - n_leader - n_follower, -1, -1):
            follower = tuple(text[start + n_leader : start + n_leader + n_follower])
            if tuple(text[start : start + n_leader]) == leader and follower not in found:
                found.append(follower)
        return found[:4]

    made: list[tuple[int, ...]] = []
    waiting: list[tuple[int, ...]] = [()]
    for path in waiting:  # grows meanwhile
        for follower in newest_first((*text, *path)[-n_leader:]):
            for n in range(1, n_follower + 1):
                new = (*path, *follower[:n])
                siblings = sum(other[:-1] == new[:-1] for other in made)
                if new in made:
                    continue
                if len(made) >= limit.n_nodes or len(new) > limit.depth or siblings >= limit.width:
                    break
                made.append(new)
            else:
                if (*path, *follower) not in waiting:
                    waiting.append((*path, *follower))
        if len(made) >= limit.n_nodes:
            break
    return in_preorder(made)


def test_drafts_are_those_of_the_slow_oracle() -> None:
    rng = random.Random(0)
    drafted = 0
    for _ in range(150):
        n_leader, n_follower, letters = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3]), rng.choice([1, 2, 4])
        text = [rng.randrange(letters) for _ in range(rng.randrange(1, 30))]
        for limit in rng.sample(LIMITS, 12):
            draft = ask(Cacheback(n_leader=n_leader, n_follower=n_follower), text, limit, vocab_size=letters)
            assert tree_of(draft) == _tree(text, n_leader, n_follower, limit), (text, limit)
            drafted += len(draft)
    assert drafted > 2000


def test_a_chain_is_the_newest_follower_followed_on() -> None:
    text = [1, 2, 3, 4, 1, 7, 8, 9, 5, 1]
    assert ask(Cacheback(), text, Limits(5, 5)).tokens.tolist() == [7, 8, 9]
    assert ask(Cacheback(), [*text[:-1], 2, 3, 4, 1], Limits(8, 8)).tokens.tolist() == [7, 8, 9, 5, 2, 3, 4, 1]
    assert ask(Cacheback(), [4] * 9, Limits(6, 6)).tokens.tolist() == [4] * 6


def test_support_grows_with_the_match_and_with_what_agrees() -> None:
    def support(text: list[int]) -> int:
        return ask(Cacheback(), text, Limits(1, 1)).support

    follow = [1, 2, 3, 4]
    assert support([9, *follow, 8, 1]) == 2  # one occurrence, only the leader agrees
    assert support([9, *follow, 9, 1]) == 4
    assert support([7, 9, *follow, 7, 9, 1]) == 6
    assert support([9, *follow, 8, *follow, 6, 1]) == 4  # twice the same
    assert support([9, 1, 5, 6, 7, *follow, 6, 1]) == 1  # once each way
    assert support([*range(20, 40), *follow, *range(20, 40), 1]) == 18  # no more than 8 tokens are compared


def test_the_frozen_table_is_asked_where_the_other_one_has_no_row() -> None:
    frozen = {(1,): [(50, 51), (52,)], (51,): [(60,)], (3,): [(70,)]}
    drafter = Cacheback(frozen=frozen)
    tree = ask(drafter, [5, 3, 4, 6, 7, 1], Limits(9, 4, 2))
    assert tree_of(tree) == [(50,), (50, 51), (50, 51, 60), (52,)]
    assert tree.support == 1
    assert tree_of(ask(drafter, [3], Limits(9, 3, 2))) == [(4,), (4, 6), (4, 6, 7)]
    assert frozen == {(1,): [(50, 51), (52,)], (51,): [(60,)], (3,): [(70,)]}


def test_ways_that_meet_are_gone_once() -> None:
    """Fails, by never ending, if a node is followed on once for every way that leads to it."""
    frozen = {(1,): [(1,), (1, 1), (1, 1, 1)]}
    assert ask(Cacheback(frozen=frozen), [1], Limits(60, 50, 1)).tokens.tolist() == [1] * 50


def test_an_id_that_is_used_again_brings_all_its_text() -> None:
    """A shorter text under the same id, and a longer one after the first has ended."""
    drafter = Cacheback(n_follower=1)
    ask(drafter, [0, 0, 0], Limits(1, 1))
    ask(drafter, [1, 2], Limits(1, 1))
    drafter.forget(0)
    ask(drafter, [3, 4, 5], Limits(1, 1))
    assert list(drafter.table.rows) == [(0,), (1,), (3,), (4,)]


def test_what_one_request_taught_serves_the_next() -> None:
    drafter = Cacheback()
    assert len(ask(drafter, sequence([7, 1], seq_id=0), Limits(4, 4))) == 0
    ask(drafter, sequence([1, 2, 3, 4, 5], seq_id=1), Limits(4, 4))
    drafter.forget(1)
    assert ask(drafter, sequence([8, 1], seq_id=2), Limits(4, 4)).tokens.tolist() == [2, 3, 4]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("vocab_size", [1, 3])
def test_limits(limit: Limits, vocab_size: int) -> None:
    text = [i * i % vocab_size for i in range(40)]
    draft = ask(Cacheback(), text, limit, vocab_size=vocab_size)
    assert (len(draft) > 0) == (min(limit.n_nodes, limit.depth, limit.width) > 0)


def test_text_is_the_plain_one() -> None:
    check_text(Cacheback)


def test_lengths_are_read_from_the_name() -> None:
    drafter = make_drafter("cacheback:2,1", None)
    assert ask(drafter, [1, 2, 3, 1, 2], Limits(2, 2)).tokens.tolist() == [3, 1]
    assert len(ask(make_drafter("cacheback:3,1", None), [1, 2, 3, 1, 2], Limits(2, 2))) == 0


@pytest.mark.parametrize("argument", ["1", "0,3", "1,-3", "1,3,2", "a,b", "1,3.5", "1,999"])
def test_other_arguments_are_refused(argument: str) -> None:
    with pytest.raises(OptionError, match="cacheback:1,3"):
        make_drafter(f"cacheback:{argument}", None)
