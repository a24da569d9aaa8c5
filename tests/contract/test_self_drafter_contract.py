"""Drafters made of the target keep the contract, on a target that has read nothing itself."""

from __future__ import annotations

import pytest

from wager.cache import BlockPool
from wager.drafters.drawing import Drawing
from wager.drafters.scratch import ScratchDrafter
from wager.models.toy import ToyModel
from wager.pack import n_pad_blocks
from wager.testing import check_drafter
from wager.types import Limits, Sampling, Sequence


class Lender:
    """A view whose sequences have no rows of the target's."""

    def __init__(self, model):
        n_pad = n_pad_blocks(model, model.max_rows)
        self.model, self._pool = model, BlockPool(model.n_blocks - n_pad, model.block_size, first=n_pad)

    def scratch(self, seq, n_rows):
        if not self._pool.is_open(seq.id):
            self._pool.open(seq.id, [])
        return self._pool.table(seq.id) if self._pool.reserve(seq.id, n_rows) else None


def made(drawing: Drawing, vocab_size: int, **options) -> ScratchDrafter:
    model = ToyModel(vocab_size, n_blocks=600, **options)
    drafter = ScratchDrafter(
        model, n_valid_ids=vocab_size, eos_ids=frozenset((3,)), drawing=drawing, name="toy", max_pending=1000
    )
    drafter.attach(Lender(model))
    return drafter


@pytest.mark.parametrize("vocab_size", [5, 50])
@pytest.mark.parametrize(
    "drawing",
    [Drawing(), Drawing(laws=True), Drawing("deterministic"), Drawing("iid", trunk=2), Drawing("without_replacement")],
    ids=lambda drawing: drawing.kind + "+laws" * drawing.laws,
)
def test_contract(drawing: Drawing, vocab_size: int) -> None:
    check_drafter(lambda: made(drawing, vocab_size), vocab_size=vocab_size, context_length=48)


@pytest.mark.parametrize("kind", ["iid", "without_replacement"])
def test_every_round_has_noise_of_its_own(kind: str) -> None:
    """A model that looks at nothing: with one noise for all rounds it would draw one token in all of them."""
    drafter, drawn = made(Drawing(kind), 50, order=0, scale=0.1), set()
    for n in range(1, 20):
        (draft,) = drafter.propose([Sequence(0, [1] * n, 1, Sampling(temperature=1.0), seed=0)], [Limits(1, 1)])
        drawn.add(int(draft.tokens[0]))
    assert len(drawn) > 5
