"""The successor table: what is written after a round, which rows are picked, and the drafts against a slow oracle."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_tools import LIMITS, ask, check_text, in_preorder, observe, sequence, tree_of
from wager.drafters import make_drafter
from wager.drafters.recycling import Recycling
from wager.drafters.successors import most_likely
from wager.errors import OptionError
from wager.types import EMPTY, Draft, Limits, Verdict, chain

V = 12


@given(
    st.integers(1, 1500), st.integers(1, 9), st.sampled_from([2, 30, 10**6]), st.integers(0, 20), st.integers(0, 10**6)
)
def test_the_most_likely_are_those_of_a_sort(n, k, n_values, n_banned, seed) -> None:
    """With and without ties and banned tokens; fails if some of the row is left out of bound or search."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, n_values, n).astype(np.float32)
    logits[rng.integers(0, n, min(n_banned, n - 1))] = -np.inf
    expected = sorted(np.flatnonzero(logits > -np.inf).tolist(), key=lambda i: (-logits[i], i))[:k]
    assert most_likely(logits, k).tolist() == expected


def _row(*best: int) -> list[float]:
    """Logits that rank ``best`` first, and then the others from the last one down."""
    row = [i / 100 for i in range(V)]
    for rank, token in enumerate(best):
        row[token] = 50.0 - rank
    return row


def _round(drafter: Recycling, last: int, draft: Draft, rows: list[list[float]], verdict: Verdict) -> None:
    seq = sequence([0, last])
    ask(drafter, seq, Limits(9, 9, 9))
    seq.tokens += [*(int(draft.tokens[node]) for node in verdict.path), verdict.token]
    observe(drafter, seq, draft, verdict, rows)


def _best(drafter: Recycling, token: int) -> list[int]:
    """The three best successors that a token has."""
    return [path[0] for path in tree_of(ask(drafter, [token], Limits(3, 1, 3)))]


def test_every_fed_node_writes_its_row() -> None:
    drafter = Recycling()
    _round(drafter, 1, chain([2, 3]), [_row(2, 5), _row(7, 8), _row(9, 4, 6)], Verdict((0,), 7))
    assert _best(drafter, 1) == [2, 5, 11]
    assert _best(drafter, 2) == [7, 8, 11]
    assert _best(drafter, 3) == [9, 4, 6]  # rejected
    assert _best(drafter, 7) == []  # not fed yet
    row = drafter._table.get((1,))
    assert row is not None
    assert row.ids == [2, 5, 11, 10, 9, 8, 7, 6]
    assert row.logits[:2] == [50.0, 49.0]


def test_a_rejected_node_writes_over_old_rows_only() -> None:
    """Fails if what was said after a rejected token takes the place of what was said in the text just before."""
    drafter = Recycling(stale=3)
    rejected = chain([1])
    _round(drafter, 1, EMPTY, [_row(5)], Verdict((), 5))
    for _ in range(3):
        _round(drafter, 9, rejected, [_row(4), _row(6)], Verdict((), 4))
        assert _best(drafter, 1)[0] == 5
    _round(drafter, 9, rejected, [_row(4), _row(6)], Verdict((), 4))
    assert _best(drafter, 1)[0] == 6
    _round(drafter, 9, rejected, [_row(1), _row(7)], Verdict((0,), 7))  # accepted
    assert _best(drafter, 1)[0] == 7


def test_of_equal_tokens_the_accepted_one_is_written_last() -> None:
    tree = Draft(np.array([3, 4, 3], np.int32), np.array([-1, -1, 1], np.int32))
    for path, best in (((0,), 6), ((1,), 6), ((1, 2), 8)):
        drafter = Recycling(stale=0)
        _round(drafter, 3, tree, [_row(5), _row(6), _row(7), _row(8)], Verdict(path, 9))
        assert _best(drafter, 3)[0] == (best if path != (1,) else 5)


def test_a_draft_of_another_drafter_teaches_as_well() -> None:
    drafter = Recycling()
    _round(drafter, 1, EMPTY, [_row(5)], Verdict((), 5))
    _round(drafter, 1, chain([0, 2]), [_row(5), _row(6), _row(7)], Verdict((), 5))  # 0 is not among the successors of 1
    assert _best(drafter, 0)[0] == 6


def _tree(drafter: Recycling, last: int, limit: Limits) -> list[tuple[int, ...]]:
    """The likeliest node that may be added, again and again, from a list of all of them."""
    chances = np.array(drafter._hits) / np.array(drafter._trials)
    values: dict[tuple[int, ...], float] = {(): 1.0}
    made: list[tuple[int, ...]] = []

    def children(path: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
        token = path[-1] if path else last
        row = drafter._table.get((token,))
        if row is None:
            return []
        level = min(row.streak, 4) - 1
        return [(values[path] * chances[level, r], (*path, t)) for r, t in enumerate(row.ids)][: limit.width]

    while len(made) < limit.n_nodes:
        found = [item for path in values for item in children(path) if item[1] not in values]
        found = [item for item in found if len(item[1]) <= limit.depth]
        if not found:
            break
        value, path = max(found, key=lambda item: item[0])
        values[path] = value
        made.append(path)
    return in_preorder(made)


def test_drafts_are_those_of_the_slow_oracle() -> None:
    """After rounds of random text in random contexts; fails if chances by rank or streak, or the limits, are off."""
    rng = random.Random(0)
    drafter, drafted = Recycling(), 0
    for i in range(300):
        tokens = [rng.randrange(5) for _ in range(rng.randrange(4))]
        n_taken = rng.randrange(len(tokens) + 1)
        rows = [[rng.random() for _ in range(5)] for _ in range(len(tokens) + 1)]
        _round(drafter, rng.randrange(5), chain(tokens), rows, Verdict(tuple(range(n_taken)), rng.randrange(5)))
        last, limit = rng.randrange(5), rng.choice(LIMITS)
        if i > 50:
            draft = ask(drafter, [last], limit, vocab_size=5)
            assert tree_of(draft) == _tree(drafter, last, limit), limit
            drafted += len(draft)
    assert drafted > 700


def test_chances_follow_what_is_accepted() -> None:
    """The second successor always wins: a tree of three nodes goes on below it, not below the first one."""
    drafter = Recycling()
    rows = [_row(2, 3), _row(4), _row(5)]
    pair = Draft(np.array([2, 3], np.int32), np.array([-1, -1], np.int32))
    _round(drafter, 1, pair, rows, Verdict((1,), 5))
    before = tree_of(ask(drafter, [1], Limits(3, 2, 2)))
    for _ in range(100):
        _round(drafter, 1, pair, rows, Verdict((1,), 5))
    assert (2, 4) in before
    after = tree_of(ask(drafter, [1], Limits(3, 2, 2)))
    assert [path[0] for path in after] == [3, 3, 2]


def test_only_reached_nodes_are_tried() -> None:
    """Fails if 3, which is below the rejected 2, counts against the best successor of 2."""
    drafter = Recycling()
    for token, best in ((1, 2), (2, 3)):
        _round(drafter, token, EMPTY, [_row(best)], Verdict((), best))
    before = np.sum(drafter._trials)
    _round(drafter, 1, chain([2, 3]), [_row(2), _row(3), _row(4)], Verdict((), 5))
    assert abs(np.sum(drafter._trials) - before - 1) < 0.1


def test_impossible_tokens_are_no_successors() -> None:
    drafter = Recycling()
    _round(drafter, 1, EMPTY, [_row()], Verdict((), 5))
    _round(drafter, 1, EMPTY, [[-np.inf] * 4 + [1.0, 2.0] + [-np.inf] * 6], Verdict((), 5))
    assert _best(drafter, 1) == [5, 4]


def test_support_is_the_streak_of_the_same_best_successor() -> None:
    drafter = Recycling()
    supports = []
    for best in (5, 5, 5, 6, 6):
        _round(drafter, 1, EMPTY, [_row(best, 8)], Verdict((), 8))
        supports.append(ask(drafter, [1], Limits(2, 2)).support)
    assert supports == [1, 2, 3, 1, 2]


def test_a_commit_cut_short_does_not_shift_what_is_learnt() -> None:
    """The answer ended at the first draft token: the token before the draft is known from when it was asked for."""
    drafter, seq = Recycling(), sequence([0, 1])
    ask(drafter, seq, Limits(2, 2))
    seq.tokens.append(2)
    observe(drafter, seq, chain([2, 3]), Verdict((0, 1), 4), [_row(2), _row(3), _row(4)])
    assert [_best(drafter, token)[:1] for token in range(4)] == [[], [2], [3], [4]]


def test_a_sequence_that_never_asked_teaches_nothing() -> None:
    drafter = Recycling()
    observe(drafter, sequence([1, 2]), EMPTY, Verdict((), 2), [_row(2)])
    drafter.forget(3)
    assert len(ask(drafter, [1], Limits(2, 2))) == 0


def test_what_one_request_showed_serves_the_next() -> None:
    drafter = Recycling()
    _round(drafter, 1, EMPTY, [_row(5)], Verdict((), 5))
    drafter.forget(0)
    assert ask(drafter, sequence([9, 1], seq_id=7), Limits(1, 1)).tokens.tolist() == [5]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("vocab_size", [1, 3])
def test_limits(limit: Limits, vocab_size: int) -> None:
    drafter = Recycling()
    for token in range(vocab_size):
        _round(drafter, token, EMPTY, [_row()[:vocab_size]], Verdict((), 0))
    draft = ask(drafter, [0], limit, vocab_size=vocab_size)
    assert (len(draft) > 0) == (min(limit.n_nodes, limit.depth, limit.width) > 0)


def test_text_is_the_plain_one() -> None:
    check_text(Recycling)


def test_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match="takes no argument"):
        make_drafter("recycling:8", None)
