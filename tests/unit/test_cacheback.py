"""The LRU table against a naive one, and the drafts made from it against a slow oracle."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_tools import LIMITS, SAMPLINGS, ask, check_text, in_preorder, sequence, tree_of
from engine_tools import V, run, toy
from store_tools import store_of, tokens_of
from wager import stores
from wager.corpus import Corpus
from wager.drafters import check_spec, make_drafter
from wager.drafters.cacheback import Cacheback, Follower, FollowerTable
from wager.drafters.frozen import Frozen
from wager.errors import OptionError, VocabularyError
from wager.testing import check_drafter
from wager.text import Text
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


def test_the_frozen_table_fills_up_what_the_other_one_leaves() -> None:
    frozen = {(1,): [(50, 51), (52,)], (51,): [(60,)], (3,): [(70,), (4, 6), (71,), (72,), (73,)]}
    drafter = Cacheback(frozen=lambda leader: frozen.get(leader, []))
    tree = ask(drafter, [5, 3, 4, 6, 7, 1], Limits(9, 4, 2))
    assert tree_of(tree) == [(50,), (50, 51), (50, 51, 60), (52,)]
    assert tree.support == 1
    assert tree_of(ask(drafter, [3], Limits(9, 3, 1))) == [(4,), (4, 6), (4, 6, 7)]
    assert tree_of(ask(drafter, [3], Limits(9, 1, 9))) == [(4,), (70,), (71,)], (
        "four followers in all, one of them twice"
    )


def test_ways_that_meet_are_gone_once() -> None:
    """Fails, by never ending, if a node is followed on once for every way that leads to it."""
    drafter = Cacheback(frozen=lambda leader: [(1,), (1, 1), (1, 1, 1)])
    assert ask(drafter, [1], Limits(60, 50, 1)).tokens.tolist() == [1] * 50


def test_an_id_that_is_used_again_brings_all_its_text() -> None:
    """A shorter text under the same id, a longer one after the first has ended, and one as long or longer that has not
    ended: only another token says so."""
    drafter = Cacheback(n_follower=1)
    ask(drafter, [0, 0, 0], Limits(1, 1))
    ask(drafter, [1, 2], Limits(1, 1))
    drafter.forget(0)
    ask(drafter, [3, 4, 5], Limits(1, 1))
    ask(drafter, [6, 7, 8], Limits(1, 1))
    ask(drafter, [9, 10, 11, 12, 13], Limits(1, 1))
    assert list(drafter.table.rows) == [(n,) for n in (0, 1, 3, 4, 6, 7, 9, 10, 11, 12)]


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


@pytest.mark.parametrize("argument", ["0,3", "1,-3", "a,b", "1,3.5", "1,999", "1,3,2,4", "1,0,3", ","])
def test_other_arguments_are_refused(argument: str) -> None:
    with pytest.raises(OptionError, match="cacheback:1,3"):
        make_drafter(f"cacheback:{argument}", None)


@pytest.mark.parametrize("argument", ["1", "mine", "mine,1,3"])
def test_a_store_that_is_not_here_is_refused(argument: str) -> None:
    with pytest.raises(OptionError, match=f"`{argument.partition(',')[0]}` is no store here"):
        check_spec(f"cacheback:{argument}")


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(3, 5),
)
def test_frozen_followers_are_the_most_frequent_ones_of_the_corpus(documents, leader, n_follower, n_valid_ids) -> None:
    """Windows cut out of every document by hand; fails if one goes across documents or a short one is lost."""
    counts: Counter[tuple[int, ...]] = Counter()
    for document in documents:
        for at in range(len(document) - len(leader)):
            if document[at : at + len(leader)] == leader:
                rest = document[at + len(leader) :][:n_follower]
                n = next((i for i, token in enumerate(rest) if token >= n_valid_ids), len(rest))
                counts[tuple(rest[:n])] += 1
    del counts[()]
    frozen = Frozen(store_of(documents, 4), n_valid_ids=n_valid_ids, n_follower=n_follower, n_followers=3)
    found = frozen(tuple(leader))
    assert found == frozen(tuple(leader))
    assert len(found) == min(3, len(counts))
    assert sorted(counts[follower] for follower in found) == sorted(counts.values())[::-1][:3][::-1]


def test_of_many_places_some_are_looked_at() -> None:
    """Of 0, 1 … 999 after 7 each tenth: every place counts once."""
    store = store_of([[7, n] for n in range(1000)], 1000)
    frozen = Frozen(store, n_valid_ids=1000, n_followers=1000, n_samples=100)
    assert sorted(frozen((7,))) == [(n,) for n in range(0, 1000, 10)]


def test_a_store_is_named_before_the_lengths(tiny_llama: Path) -> None:
    text = Text(tiny_llama)
    stores.build("mine", Corpus(tokens_of([[5, 6, 7, 8], [5, 6, 9]]), ()), text, model="tiny")
    target = SimpleNamespace(text=text, n_valid_ids=text.vocab_size)
    drafter = make_drafter("cacheback:mine", target)
    assert drafter.name == "cacheback:mine"
    assert tree_of(ask(drafter, [1, 5], Limits(9, 9, 2))) == [(6,), (6, 7), (6, 7, 8), (6, 9)]
    assert ask(make_drafter("cacheback:mine,2,1", target), [1, 5, 6], Limits(1, 1)).tokens.tolist() == [7]
    check_spec("cacheback:mine,2,1")
    other = SimpleNamespace(text=Text(tiny_llama.with_name("tiny-qwen3")), n_valid_ids=9)
    with pytest.raises(VocabularyError, match="has others"):
        make_drafter("cacheback:mine", other)


def test_text_is_the_plain_one_with_a_corpus() -> None:
    """The corpus are plain answers (right) and noise (wrong)."""
    rng = random.Random(0)
    texts = run(toy(), SAMPLINGS["sampled"]).tokens
    noise = [[rng.randrange(V) for _ in range(30)] for _ in range(50)]
    store = store_of([*texts, *noise], V)
    check_text(lambda: Cacheback(frozen=Frozen(store, n_valid_ids=V)))


def test_contract_with_a_corpus() -> None:
    store = store_of([[i * i % 7 for i in range(n)] for n in range(30)], 7)
    check_drafter(lambda: Cacheback(frozen=Frozen(store, n_valid_ids=7)), vocab_size=7, learns=True)
