"""The toy model notices every mistake in block tables that it is there to notice."""

from __future__ import annotations

import numpy as np
import pytest

from wager.models.toy import ToyModel
from wager.types import Batch, Sampling


def _batch(
    *feeds: tuple[list[int], int, list[int]], rows: list[int] | None = None, masks=None, positions=None
) -> Batch:
    """Feeds are (tokens, past, blocks)."""
    tokens = [t for ts, _, _ in feeds for t in ts]
    return Batch(
        np.array(tokens, np.int64),
        np.array(positions or [past + i for ts, past, _ in feeds for i in range(len(ts))], np.int64),
        np.array([past for _, past, _ in feeds], np.int32),
        np.cumsum([0] + [len(ts) for ts, _, _ in feeds]).astype(np.int32),
        np.array([b for _, _, bs in feeds for b in bs], np.int32),
        np.cumsum([0] + [len(bs) for _, _, bs in feeds]).astype(np.int32),
        np.array(range(len(tokens)) if rows is None else rows, np.int64),
        masks,
    )


@pytest.fixture
def model() -> ToyModel:
    return ToyModel(9, n_blocks=8, block_size=4)


TEXT = [1, 2, 3, 4, 5, 6]


def test_logits_do_not_depend_on_grouping_or_blocks(model: ToyModel) -> None:
    whole = model.forward(_batch((TEXT, 0, [3, 5]))).logits.copy()
    model.forward(_batch((TEXT[:4], 0, [0])))
    rest = model.forward(_batch((TEXT[3:], 3, [0, 7]))).logits
    assert np.array_equal(whole[3:], rest)
    assert np.array_equal(whole[5], model.law(TEXT))


def test_a_forward_may_mix_sequences_and_share_a_prefix(model: ToyModel) -> None:
    model.forward(_batch((TEXT[:4], 0, [2])))
    logits = model.forward(_batch(([5, 6], 4, [2, 3]), ([7, 8], 4, [2, 4]), ([1, 1], 0, [6]))).logits
    want = [[*TEXT[:4], 5], TEXT, [*TEXT[:4], 7], [*TEXT[:4], 7, 8], [1], [1, 1]]
    assert np.array_equal(logits, [model.law(w) for w in want])


def test_rollback_overwrites(model: ToyModel) -> None:
    model.forward(_batch((TEXT, 0, [0, 1])))
    logits = model.forward(_batch(([8, 7], 3, [0, 1]))).logits
    assert np.array_equal(logits[1], model.law([1, 2, 3, 8, 7]))


def test_copy_makes_a_fork(model: ToyModel) -> None:
    model.forward(_batch((TEXT, 0, [0, 1])))
    model.copy([1], [2])
    logits = model.forward(
        _batch(([7, 8], 6, [0, 1]), ([8, 8], 6, [0, 2])),
    ).logits
    assert np.array_equal(logits[3], model.law([*TEXT, 8, 8]))


def test_masked_trees_see_their_own_path(model: ToyModel) -> None:
    model.forward(_batch((TEXT[:3], 0, [0, 1])))
    mask = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], np.uint8)
    logits = model.forward(_batch(([4, 5, 6], 3, [0, 1]), masks=(mask,), positions=[3, 4, 4])).logits
    assert np.array_equal(logits, [model.law([3, 4]), model.law([4, 5]), model.law([4, 6])])


def _fill(model: ToyModel) -> None:
    model.forward(_batch((TEXT, 0, [0, 1])))
    model.forward(_batch(([7, 7, 7, 7, 7, 7], 0, [2, 3])))


@pytest.mark.parametrize(
    "batch",
    [
        _batch(([1, 1], 6, [0, 3])),  # the other sequence's block
        _batch(([1, 1], 6, [1, 0])),  # order
        _batch(([1, 1], 6, [0, 4])),  # a block never written
        _batch(([1, 1], 7, [0, 1, 5])),  # a hole
        _batch(([1, 1], 6, [0, 1]), positions=[5, 6]),
        _batch(([1, 1, 1], 6, [0, 1])),  # past the table's end
        _batch(([1, 9], 6, [0, 1])),  # outside the vocabulary
        _batch(([1, 1], 0, [5, 5])),
        _batch(([1, 1], 6, [0, 1]), ([2, 2], 6, [0, 1])),  # two writers of one slot
        _batch(([1, 1], 6, [0, 1]), rows=[2]),
    ],
    ids=range(10),
)
def test_mistakes_trip(model: ToyModel, batch: Batch) -> None:
    _fill(model)
    with pytest.raises((AssertionError, IndexError)):
        model.forward(batch)


def test_a_stale_prefix_trips_although_its_last_tokens_agree() -> None:
    model = ToyModel(9, n_blocks=8, block_size=2, order=1)
    model.forward(_batch(([1, 2, 3, 4], 0, [0, 1])))
    model.forward(_batch(([5, 2], 0, [2])))
    with pytest.raises(AssertionError, match="another text"):
        model.forward(_batch(([6, 6], 4, [2, 1, 3])))


def test_poisoned_blocks_trip(model: ToyModel) -> None:
    _fill(model)
    model.poison([0])
    with pytest.raises(AssertionError):
        model.forward(_batch(([1, 1], 6, [0, 1])))


def test_fewest_rows_are_checked() -> None:
    model = ToyModel(9, rows_rule="pair")
    with pytest.raises(AssertionError, match="feeds 1 rows"):
        model.forward(_batch(([1], 0, [0])))


def test_logits_are_gone_after_the_next_forward(model: ToyModel) -> None:
    first = model.forward(_batch((TEXT, 0, [0, 1]))).logits
    model.forward(_batch(([7, 7], 0, [2])))
    assert np.all(np.isnan(first))


def test_exact_law_is_a_law() -> None:
    model = ToyModel(3, order=1, seed=1)
    law = model.exact_law([0], 2, Sampling(temperature=1))
    p = np.exp(model.law([0]).astype(float))
    q = np.exp(model.law([2]).astype(float))
    assert law[(2, 1)] == pytest.approx(p[2] / p.sum() * q[1] / q.sum())
    assert sum(law.values()) == pytest.approx(1)
    greedy = model.exact_law([0], 2, Sampling())
    assert list(greedy.values()) == [1.0]
