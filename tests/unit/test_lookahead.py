"""The pool of n-grams: what is harvested from every fed node, and what is drafted from it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from drafter_tools import LIMITS, ask, check_text, observe, sequence, tree_of
from wager.drafters import make_drafter
from wager.drafters.lookahead import Lookahead
from wager.errors import OptionError
from wager.types import EMPTY, Draft, Limits, Verdict, chain


def _rows(best: list[int], vocab_size: int = 12) -> list[list[float]]:
    """Logits whose largest ones are at ``best``."""
    return [[float(token == i) for i in range(vocab_size)] for token in best]


def _pool(drafter: Lookahead) -> dict[int, list[tuple[int, ...]]]:
    return {first[0]: [n_gram.tokens for n_gram in row] for first, row in drafter.pool.rows.items()}


def _round(drafter: Lookahead, tokens: list[int], draft: Draft, best: list[int], verdict: Verdict) -> None:
    """One round on ``tokens``: ``best`` is what the target said after the last of them and after every node."""
    seq = sequence(list(tokens))
    ask(drafter, seq, Limits(9, 9, 9))
    seq.tokens += [*(int(draft.tokens[node]) for node in verdict.path), verdict.token]
    observe(drafter, seq, draft, verdict, _rows(best))


def test_rejected_nodes_are_harvested_too() -> None:
    """Fails if the rejected 4 teaches nothing, or if it counts as newer than what was accepted."""
    drafter = Lookahead(n_gram=3)
    _round(drafter, [1, 2], chain([3, 4]), [3, 9, 5], Verdict((0,), 9))
    assert _pool(drafter) == {1: [(2, 3)], 2: [(3, 9)], 3: [(9,), (4, 5)], 4: [(5,)]}
    assert ask(drafter, [0, 3], Limits(5, 5)).tokens.tolist() == [9]
    assert tree_of(ask(drafter, [0, 3], Limits(5, 5, 2))) == [(9,), (4,), (4, 5)]
    assert ask(drafter, [0, 2], Limits(5, 5)).tokens.tolist() == [3, 9]


def test_what_was_committed_is_newer_than_what_was_likeliest() -> None:
    """Sampling took 3 where 9 was likelier: fails if the next draft after 2 begins with the road not taken."""
    drafter = Lookahead(n_gram=3)
    _round(drafter, [1, 2], chain([3]), [9, 4], Verdict((0,), 5))
    assert _pool(drafter)[2] == [(3, 4), (9,)]


def test_what_is_said_again_is_newer_and_growing_n_grams_replace_their_beginnings() -> None:
    drafter = Lookahead(n_gram=4)
    for best in (5, 6, 5):
        _round(drafter, [1], EMPTY, [best], Verdict((), best))
    assert _pool(drafter) == {1: [(5,), (6,)]}
    _round(drafter, [1, 6], EMPTY, [7], Verdict((), 7))
    assert _pool(drafter) == {1: [(6, 7), (5,)], 6: [(7,)]}


def test_every_n_gram_that_ends_where_the_target_spoke() -> None:
    """Against windows over whole texts, on random trees; fails if a path, an end or a length is missed or made up."""
    rng = random.Random(0)
    for _ in range(100):
        tokens = [rng.randrange(12) for _ in range(rng.randrange(1, 15))]
        parents = [rng.randrange(-1, i) for i in range(rng.randrange(6))]
        draft = Draft(np.array([rng.randrange(12) for _ in parents], np.int32), np.array(parents, np.int32))
        best = [rng.randrange(12) for _ in range(len(draft) + 1)]
        n_gram = rng.randrange(2, 7)
        drafter = Lookahead(n_gram=n_gram)
        told: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        drafter.pool.update = lambda first, tokens, before, told=told: told.append(((*before, *first), tokens))
        _round(drafter, tokens, draft, best, Verdict((), best[0]))
        texts = [(*tokens, *path, said) for path, said in zip([(), *tree_of(draft)], best, strict=True)]
        expected = [
            (text[max(0, start - 8) : start + 1], text[start + 1 :])
            for text in texts
            for start in range(max(0, len(text) - n_gram), len(text) - 1)
        ]
        assert sorted(told) == sorted(expected)
        assert told[-min(n_gram - 1, len(tokens)) :] == expected[: min(n_gram - 1, len(tokens))]  # accepted ones last


def test_a_commit_cut_short_does_not_shift_what_is_learnt() -> None:
    """The answer ended at the first draft token: the token before the draft is known from when it was asked for."""
    drafter, seq = Lookahead(), sequence([1, 2])
    ask(drafter, seq, Limits(2, 2))
    seq.tokens.append(3)
    observe(drafter, seq, chain([3, 4]), Verdict((0, 1), 5), _rows([3, 4, 5]))
    assert _pool(drafter)[2] == [(3, 4, 5)]


def test_a_sequence_that_never_asked_teaches_nothing() -> None:
    drafter = Lookahead()
    observe(drafter, sequence([1, 2]), EMPTY, Verdict((), 2), _rows([2]))
    assert not drafter.pool.rows


def test_what_one_request_showed_serves_the_next_and_takes_no_more_room_than_it_may() -> None:
    drafter = Lookahead(n_gram=3, n_kept=2, n_tokens=4)
    rng = random.Random(0)
    for i in range(50):
        seq = sequence([rng.randrange(12), 1], seq_id=i)
        ask(drafter, seq, Limits(2, 2))
        observe(drafter, seq, EMPTY, Verdict((), i % 3), _rows([i % 3]))
        drafter.forget(i)
    assert len(drafter.pool) == 4
    assert max(len(row) for row in drafter.pool.rows.values()) == 2
    assert ask(drafter, [5, 1], Limits(1, 1)).tokens.tolist() == [49 % 3]


def test_support_grows_with_the_context_that_agrees() -> None:
    drafter = Lookahead()
    _round(drafter, [5, 6, 7], EMPTY, [8], Verdict((), 8))
    assert [ask(drafter, text, Limits(1, 1)).support for text in ([7], [6, 7], [5, 6, 7], [5, 0, 7])] == [2, 4, 6, 2]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("vocab_size", [1, 3])
def test_limits(limit: Limits, vocab_size: int) -> None:
    drafter = Lookahead()
    for best in range(vocab_size):
        _round(drafter, [0, 0], EMPTY, [best], Verdict((), best))
    draft = ask(drafter, [0], limit, vocab_size=vocab_size)
    assert (len(draft) > 0) == (min(limit.n_nodes, limit.depth, limit.width) > 0)


def test_text_is_the_plain_one() -> None:
    check_text(Lookahead)


def test_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match="takes no argument"):
        make_drafter("lookahead:3", None)
