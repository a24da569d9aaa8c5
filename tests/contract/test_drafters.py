"""Every registered drafter that needs no model keeps the contract; the contract catches drafters that break it."""

from __future__ import annotations

import numpy as np
import pytest

from wager.drafters import make_drafter
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.errors import OptionError
from wager.models.toy import ToyModel
from wager.testing import check_draft, check_drafter
from wager.types import Draft, Limits, chain


@pytest.mark.parametrize("vocab_size", [2, 50])
def test_contract(vocab_size: int) -> None:
    check_drafter(lambda: make_drafter("lookup", None), vocab_size=vocab_size)


@pytest.mark.parametrize("vocab_size", [5, 50])
def test_contract_of_a_draft_model(vocab_size: int) -> None:
    def make() -> ModelDrafter:
        return ModelDrafter(ToyModel(vocab_size, n_blocks=400), n_valid_ids=vocab_size)

    check_drafter(make, vocab_size=vocab_size)


class _TooLong(Lookup):
    def propose(self, seqs, limits):
        return super().propose(seqs, [Limits(limit.n_nodes + 1, limit.depth + 1) for limit in limits])


class _Shared(Lookup):
    def _automaton(self, seq):
        self._automata.setdefault(0, super()._automaton(seq))
        return self._automata[0]


class _NeverForgets(Lookup):
    def forget(self, seq_id):
        pass


class _Chops(Lookup):
    def propose(self, seqs, limits):
        return super().propose(seqs, limits)[:1]


@pytest.mark.parametrize("broken", [_TooLong, _Shared, _NeverForgets, _Chops])
def test_contract_catches(broken: type[Lookup]) -> None:
    with pytest.raises(AssertionError):
        check_drafter(broken, vocab_size=5)


@pytest.mark.parametrize(
    ("draft", "limit"),
    [
        (chain([1, 2, 3]), Limits(2, 9)),
        (chain([1, 2, 3]), Limits(9, 2)),
        (chain([1, 9]), Limits(9, 9)),
        (chain([-1]), Limits(9, 9)),
        (Draft(np.array([1, 2], np.int32), np.array([-1, -1], np.int32)), Limits(9, 9, 1)),
        (Draft(np.array([1, 1], np.int32), np.array([-1, -1], np.int32)), Limits(9, 9, 2)),
        (Draft(np.array([1], np.int32), np.array([-1], np.int32), np.full((1, 9), 0.2, np.float32)), Limits(9, 9)),
    ],
)
def test_bad_drafts_are_caught(draft: Draft, limit: Limits) -> None:
    with pytest.raises(AssertionError):
        check_draft(draft, limit, 9)


@pytest.mark.parametrize("spec", ["look-up", "", "lookup:5", "none:x"])
def test_unknown_names_and_arguments_are_refused(spec: str) -> None:
    with pytest.raises(OptionError, match="`drafter` is"):
        make_drafter(spec, None)
