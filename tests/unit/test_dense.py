"""The dense drafter on keys of a toy model: what it drafts, when it does not, and how a corpus is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_tools import LIMITS, ask, sequence, tree_of
from engine_tools import V, run, toy
from store_tools import dense_store_of, tokens_of
from wager.drafters.dense import Dense
from wager.errors import ModelError
from wager.hidden import hidden_states
from wager.models.toy import ToyModel
from wager.nearest import neighbours
from wager.policies import Fixed
from wager.types import EMPTY, Forward, Limits, Sampling, Seen, Verdict, chain

DOCUMENTS = [[1, 2, 3, 4, 5, 6, 7], [8, 2, 3, 9, 10], [1, 2, 3, 4, 11, 12, 13, 14], [5, 3], [15], []]

LOW = 1e-6
SEED = 11  # of a toy whose states after 8 2 and after 1 2 are near each other


def told(drafter: Dense, tokens: list[int], model: ToyModel | None = None, *, seq_id: int = 0):
    """A sequence whose last token was just committed: the model saw all tokens before it."""
    seq = sequence(tokens, seq_id=seq_id)
    hidden = (model or toy()).hidden(tokens[:-1])[None]
    seen = Seen(np.zeros((1, V), np.float32), np.zeros(1, np.int32), hidden)
    drafter.observe([seq], [EMPTY], [Verdict((), tokens[-1])], [seen])
    return seq


def dense(documents=DOCUMENTS, model: ToyModel | None = None, **options) -> Dense:
    return Dense(dense_store_of(documents, model or toy()), n_valid_ids=V, **{"floor": 0.99, **options})


def test_what_followed_in_the_same_state_is_drafted() -> None:
    """The toy's state are its last two tokens, so the right places are known: 3 after 1 2, twice in the corpus."""
    drafter = dense()
    draft = ask(drafter, told(drafter, [16, 1, 2, 3]), Limits(9, 9, 2))
    assert tree_of(draft) == [
        (4,),
        (4, 5),
        (4, 5, 6),
        (4, 5, 6, 7),
        (4, 11),
        (4, 11, 12),
        (4, 11, 12, 13),
        (4, 11, 12, 13, 14),
    ]
    assert ask(drafter, told(drafter, [8, 2, 3]), Limits(9, 9, 2)).tokens.tolist() == [9, 10]
    assert draft.support > 0


def test_neighbours_begin_with_the_token_that_was_chosen() -> None:
    drafter = dense(floor=LOW, n_neighbours=99)
    for text, follow in (([1, 2, 3], {4, 9}), ([1, 2], {3}), ([16, 2, 3, 4], {5, 11})):
        draft = ask(drafter, told(drafter, text), Limits(99, 1, 99))
        assert set() < set(draft.tokens.tolist()) <= follow


def test_the_most_similar_come_first() -> None:
    for text, token in (([8, 2, 3], 9), ([1, 2, 3], 4)):
        for options in ({}, {"n_neighbours": 1}):
            drafter = dense(floor=LOW, **options)
            draft = ask(drafter, told(drafter, text), Limits(9, 1, 9))
            assert draft.tokens[0] == token
            assert not options or len(draft) == 1


@pytest.mark.parametrize("n", [1, 3])
def test_votes_add_up(n: int) -> None:
    """One document goes on from the very state of the query, n others from one at a cosine c of .91: c^4 each."""
    model = toy(seed=SEED, n_hidden=3)
    drafter = dense([[8, 2, 3, 9, 10], *[[1, 2, 3, 4, 5]] * n], model, floor=LOW)
    seq = told(drafter, [8, 2, 3], model)
    (_, one), *others = neighbours(drafter._keys, 3, drafter._queries[0][1], n_most=9, floor=-1)
    votes = sum(cosine**4 for _, cosine in others)
    assert (len(others), one, n / 2 < votes < n) == (n, pytest.approx(1, abs=1e-3), True)
    for width in (1, 2):
        draft = ask(drafter, seq, Limits(width, 1, width))
        assert draft.tokens.tolist() == ([9, 4] if votes < 1 else [4, 9])[:width]
        assert draft.support == max(1, round(16 * max(1, votes) / (1 + votes + 0.5)))


def test_nothing_is_drafted_without_a_state_of_this_very_text() -> None:
    """Before the first token, below the floor, after other tokens came or were forgotten, and for unknown tokens."""
    drafter = dense()
    assert ask(drafter, [16, 1, 2, 3], Limits(9, 9)) is EMPTY
    assert ask(drafter, told(drafter, [16, 9, 3]), Limits(9, 9)) is EMPTY
    seq = told(drafter, [16, 1, 2, 3])
    seq.tokens.append(4)
    assert ask(drafter, seq, Limits(9, 9)) is EMPTY
    seq = told(drafter, [16, 1, 2, 3])
    drafter.forget(seq.id)
    assert ask(drafter, seq, Limits(9, 9)) is EMPTY
    assert ask(drafter, told(drafter, [1, 2, 16]), Limits(9, 9)) is EMPTY


def test_a_model_that_does_not_tell_gets_no_draft() -> None:
    drafter, seq = dense(), sequence([16, 1, 2, 3])
    drafter.observe([seq], [EMPTY], [Verdict((), 3)], [Seen(np.zeros((1, V), np.float32), np.zeros(1, np.int32))])
    assert ask(drafter, seq, Limits(9, 9)) is EMPTY


def test_the_state_is_that_after_the_last_accepted_node() -> None:
    model, drafter = toy(), dense()
    seq = sequence([16, 1, 2, 3])
    hidden = np.stack([model.hidden([16]), model.hidden([16, 1]), model.hidden([1, 2]), model.hidden([2, 5])])
    seen = Seen(np.zeros((4, V), np.float32), np.array([0, 1, 2, 3], np.int32), hidden)
    drafter.observe([seq], [chain([1, 2, 5])], [Verdict((0, 1), 3)], [seen])
    assert ask(drafter, seq, Limits(9, 2)).tokens.tolist() == [4, 5]


def test_sequences_do_not_see_each_other() -> None:
    drafter = dense()
    seqs = [told(drafter, [1, 2, 3], seq_id=0), told(drafter, [8, 2, 3], seq_id=1), sequence([1, 2, 3], seq_id=2)]
    drafts = drafter.propose(seqs, [Limits(2, 2)] * 3)
    assert [draft.tokens.tolist() for draft in drafts] == [[4, 5], [9, 10], []]


def test_a_branch_ends_with_its_document_an_end_of_text_or_an_id_the_target_has_not() -> None:
    seq = [1, 2, 3]
    for options, want in (({}, [4, 5, 6, 7]), ({"eos_ids": (5,)}, [4, 5]), ({"n_valid_ids": 6}, [4, 5])):
        drafter = Dense(dense_store_of(DOCUMENTS, toy()), **{"n_valid_ids": V, "floor": 0.99, **options})
        assert ask(drafter, told(drafter, seq), Limits(9, 9)).tokens.tolist() == want


@pytest.mark.parametrize("documents", [[], [[]], [[1]], [[1, 2]], [[1, 2, 3]]])
def test_small_stores(documents: list[list[int]]) -> None:
    """No key, or one whose transform has no dimension."""
    drafter = dense(documents)
    for limit in LIMITS:
        assert ask(drafter, told(drafter, [1, 2]), limit) is EMPTY
    assert drafter.seconds(4) > 0


@pytest.mark.parametrize("limit", LIMITS)
def test_limits(limit: Limits) -> None:
    drafter = dense(floor=LOW)
    draft = ask(drafter, told(drafter, [1, 2, 3]), limit, vocab_size=V)
    assert (len(draft) > 0) == (min(limit.n_nodes, limit.depth, limit.width) > 0)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, V - 1), max_size=40), max_size=4), st.sampled_from(["any", "pair", "split"]))
def test_every_token_of_the_corpus_is_read_once_where_it_stands(documents, rule) -> None:
    """The toy checks every row of its context; windows of long documents begin anew (22 tokens fit here)."""
    model = ToyModel(V, n_blocks=7, block_size=4, max_rows=5, rows_rule=rule, context_length=22)
    tokens = tokens_of(documents)
    seen: dict[int, np.ndarray] = {}
    told = []
    for at, hidden in hidden_states(model, tokens, progress=lambda *what: told.append(what)):
        assert not set(at.tolist()) & set(seen)
        seen |= {place: row.copy() for place, row in zip(at.tolist(), hidden, strict=True)}
    start = 0
    for document in documents:
        for i in range(len(document)):
            window = i - i % 19  # 7 blocks, 2 of them for padding, and a slot for a row fed again
            if start + i in seen:
                assert np.array_equal(seen[start + i], model.hidden(document[window : i + 1]))
            else:
                assert len(document) < 3 or len(document) - window == 1
        start += len(document) + 1
    assert told[0][1:] == (0, len(seen))
    assert told[-1][1:] == (len(seen), len(seen))


def test_documents_are_read_in_random_order_that_is_always_the_same() -> None:
    tokens = tokens_of([[i, i + 1, i + 2] for i in range(12)])
    first = [at.tolist() for at, _ in hidden_states(toy(), tokens)]
    assert first == [at.tolist() for at, _ in hidden_states(toy(), tokens)]
    assert first != sorted(first)
    assert sorted(place for at in first for place in at) == np.flatnonzero(tokens >= 0).tolist()


def test_a_model_without_hidden_states_is_refused() -> None:
    class Silent(ToyModel):
        def forward(self, batch):
            return Forward(super().forward(batch).logits)

    with pytest.raises(ModelError, match="does not tell its hidden states"):
        list(hidden_states(Silent(V), tokens_of(DOCUMENTS)))


def test_reading_takes_the_memory_from_an_engine() -> None:
    """What its sequences had there is read again."""
    model = toy()
    model.kv_owner = owner = object()
    list(hidden_states(model, tokens_of(DOCUMENTS)))
    assert model.kv_owner is not owner


def test_an_engine_goes_on_after_the_model_was_used() -> None:
    plain = run(toy(), Sampling(max_tokens=12)).tokens
    model = toy()
    store = dense_store_of(plain, model)
    drafter = Dense(store, n_valid_ids=V)
    assert run(model, Sampling(max_tokens=12), drafter=drafter, policy=Fixed(3)).tokens == plain
