"""Packing: rows, positions, forks and masks of one ragged batch."""

from __future__ import annotations

import numpy as np

from wager.cache import Fork
from wager.pack import Feed, Slots, extra_rows, leading, n_fork_blocks, pack, paths, tree_rows
from wager.types import EMPTY, Draft, Sampling, Sequence, chain

TREE = Draft(np.array([5, 6, 7, 8], np.int32), np.array([-1, 0, -1, 2], np.int32))


def seq(n, n_cached=0, n_prompt=None):
    return Sequence(0, list(range(n)), n if n_prompt is None else n_prompt, Sampling(), 0, n_cached=n_cached)


def packed(feed, table, forks=(), width=0):
    return pack([feed], [Slots(table, forks)], width_for=lambda n: width or n, pad_blocks=[90, 91], block_size=4)


def test_paths_are_root_to_leaf():
    assert paths(EMPTY) == [()]
    assert paths(chain([1, 2])) == [(0, 1)]
    assert paths(TREE) == [(0, 1), (2, 3)]
    assert tree_rows(TREE, 3) == 10
    assert leading(TREE, 1, 0).tokens.tolist() == [5, 6]


def test_as_many_leading_paths_as_rows_hold():
    tree = Draft(np.array([5, 6, 7, 8, 9], np.int32), np.array([-1, 0, 0, -1, 3], np.int32), support=2, source="a")
    assert leading(tree, 1, 9).tokens.tolist() == [5, 6, 7, 8, 9]
    some = leading(tree, 1, 8)  # three rows a path
    assert some.tokens.tolist() == [5, 6, 7]
    assert some.parents.tolist() == [-1, 0, 0]
    assert (some.support, some.source) == (2, "a")
    assert leading(tree, 3, 8).tokens.tolist() == [5, 6]


def test_blocks_are_counted_for_every_draw_even_where_equal_ones_are_fed_once():
    three = Draft(np.array([5, 6] * 3, np.int32), np.array([-1, 0, -1, 2, -1, 4], np.int32), None, "iid")
    assert n_fork_blocks(Feed(seq(7, 6), 7, chain([5, 6])), three, 4) == 2 * 2  # rows 4 … 8 of two more paths
    assert n_fork_blocks(Feed(seq(7, 6), 7, chain([5, 6]), masked=True), three, 4) == 1  # rows 0 … 12 in place of 0 … 8
    assert n_fork_blocks(Feed(seq(7, 6), 7, three, masked=True), three, 4) == 0


def test_feeding_starts_early_enough_for_the_rule():
    assert Feed(seq(7, 6), 7).start == 5
    assert Feed(seq(7, 6), 7, chain([1])).start == 6
    assert Feed(seq(7, 3), 7).start == 3
    assert Feed(seq(1), 1).start == 0
    assert Feed(seq(1), 1).n_slots == 2
    assert Feed(seq(7, 6), 7, rule="any").start == 6
    assert Feed(seq(7, 6), 7, rule="split").start == 5  # the end of a prompt is read in twos
    assert Feed(seq(7, 6, n_prompt=3), 7, rule="split").start == 6
    assert Feed(seq(7, 2, n_prompt=3), 7, rule="split").start == 1
    assert Feed(seq(1), 1, rule="split").n_padding == 0  # a prompt of one token counts as output
    assert extra_rows(seq(7), 1, 0, "split") == 1


def test_split_feeds_output_tokens_one_by_one():
    feed = Feed(seq(7, 2, n_prompt=4), 7, chain([11, 12]), rule="split")
    batch = packed(feed, [3, 4, 5])
    assert batch.batch.tokens.tolist() == [2, 3, 4, 5, 6, 11, 12]
    assert batch.batch.positions.tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert batch.batch.starts.tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert batch.batch.past.tolist() == [2, 4, 5, 6, 7, 8]
    assert batch.rows[0].tolist() == [0, 1, 2]
    assert batch.batch.rows.tolist() == [4, 5, 6]


def test_split_feeds_every_branch_whole():
    tree = Draft(np.array([5, 6], np.int32), np.array([-1, -1], np.int32))
    batch = packed(Feed(seq(7, 6, n_prompt=4), 7, tree, rule="split"), [3, 4], (Fork((3, 9), 1, ()),))
    assert batch.batch.tokens.tolist() == [6, 5, 6, 6]
    assert batch.batch.blocks.tolist() == [3, 4, 3, 4, 3, 9, 3, 9]
    assert batch.batch.rows.tolist() == [0, 1, 3]


def test_chain_rows_follow_the_last_token():
    batch = packed(Feed(seq(7, 6), 7, chain([11, 12])), [3, 4, 5])
    assert batch.batch.tokens.tolist() == [6, 11, 12]
    assert batch.batch.positions.tolist() == [6, 7, 8]
    assert batch.batch.blocks.tolist() == [3, 4, 5]
    assert batch.rows[0].tolist() == [0, 1, 2]
    assert batch.batch.rows.tolist() == [0, 1, 2]


def test_a_part_of_a_prompt_wants_no_logits():
    batch = packed(Feed(seq(7), 4), [3])
    assert batch.rows == (None,)
    assert batch.batch.rows.tolist() == []


def test_a_sequence_of_one_token_is_padded_in_its_own_slot():
    batch = packed(Feed(seq(1), 1), [3])
    assert batch.batch.tokens.tolist() == [0, 0]
    assert batch.rows[0].tolist() == [0]


def test_padding_is_a_sequence_of_its_own_and_never_wanted():
    batch = packed(Feed(seq(7, 6), 7, chain([11, 12])), [3, 4, 5], width=8).batch
    assert batch.starts.tolist() == [0, 3, 8]
    assert batch.past.tolist() == [6, 0]
    assert batch.blocks.tolist() == [3, 4, 5, 90, 91]
    assert batch.rows.max() < 3


def test_a_tree_is_fed_as_forks_and_shared_nodes_are_wanted_once():
    tree = Draft(np.array([5, 6, 7], np.int32), np.array([-1, 0, 0], np.int32))
    fork = Fork((3, 9, 8), 1, ())
    batch = packed(Feed(seq(7, 6), 7, tree), [3, 4, 5], (fork,))
    assert batch.batch.tokens.tolist() == [6, 5, 6, 6, 5, 7]
    assert batch.batch.positions.tolist() == [6, 7, 8, 6, 7, 8]
    assert batch.batch.blocks.tolist() == [3, 4, 5, 3, 9, 8]
    assert batch.batch.rows.tolist() == [0, 1, 2, 5]
    assert batch.rows[0].tolist() == [0, 1, 2, 3]


def test_a_masked_tree_is_fed_once_and_sees_ancestors_only():
    batch = packed(Feed(seq(7, 6), 7, TREE, masked=True), [3, 4, 5]).batch
    assert batch.tokens.tolist() == [6, 5, 6, 7, 8]
    assert batch.positions.tolist() == [6, 7, 8, 7, 8]
    assert batch.masks is not None
    assert batch.masks[0].tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 1, 1],
    ]


def test_tokens_before_a_masked_tree_are_under_no_mask():
    made = packed(Feed(seq(7, 3), 7, TREE, masked=True, apart=True), [3, 4, 5])
    batch = made.batch
    assert batch.tokens.tolist() == [3, 4, 5, 6, 5, 6, 7, 8]
    assert batch.positions.tolist() == [3, 4, 5, 6, 7, 8, 7, 8]
    assert batch.starts.tolist() == [0, 4, 8]
    assert batch.past.tolist() == [3, 7]
    assert batch.blocks.tolist() == [3, 4, 3, 4, 5]
    assert batch.masks is not None
    assert batch.masks[0] is None
    assert batch.masks[1].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert batch.rows[made.rows[0]].tolist() == [3, 4, 5, 6, 7]
    together = packed(Feed(seq(7, 3), 7, TREE, masked=True), [3, 4, 5]).batch
    assert together.masks is not None
    assert together.masks[0].shape == (8, 8)
    assert together.masks[0][6].tolist() == [1, 1, 1, 1, 0, 0, 1, 0]
