"""Every registered drafter that needs no model keeps the contract; the contract catches drafters that break it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wager.drafters import make_drafter
from wager.drafters.blend import Blend
from wager.drafters.drawing import Drawing
from wager.drafters.lookup import Lookup
from wager.drafters.model import ModelDrafter
from wager.drafters.prior import ask
from wager.errors import OptionError
from wager.models.toy import ToyModel
from wager.testing import check_draft, check_drafter
from wager.types import Draft, Law, Limits, chain

LEARNS = {
    "lookup": False,
    "suffix:local": False,
    "suffix": True,
    "cacheback": True,
    "cacheback:2,2": True,
    "recycling": True,
    "lookahead": True,
}


@pytest.mark.parametrize("vocab_size", [1, 2, 50])
@pytest.mark.parametrize("spec", LEARNS)
def test_contract(spec: str, vocab_size: int) -> None:
    check_drafter(lambda: make_drafter(spec, None), vocab_size=vocab_size, learns=LEARNS[spec])


@pytest.mark.parametrize("vocab_size", [1, 2, 50])
@pytest.mark.parametrize("coupled", [False, True])
def test_contract_of_blended_evidence(coupled: bool, vocab_size: int) -> None:
    def make() -> Blend:
        return Blend(
            Lookup(), coupled=coupled, prior=ask(ToyModel(vocab_size), [0], n_ids=vocab_size, n_valid_ids=vocab_size)
        )

    check_drafter(make, vocab_size=vocab_size, learns=True)


@pytest.mark.parametrize(
    ("drawing", "vocab_size"),
    [
        (Drawing(), 5),
        (Drawing(laws=True, levels=2), 50),
        (Drawing("deterministic", trunk=1), 5),
        (Drawing("iid"), 50),
        (Drawing("iid", trunk=2), 5),
        (Drawing("without_replacement"), 50),
        (Drawing("without_replacement", trunk=1, levels=2, max_law=3), 5),
    ],
)
def test_contract_of_a_draft_model(drawing: Drawing, vocab_size: int) -> None:
    def make() -> ModelDrafter:
        model = ToyModel(vocab_size, n_blocks=400)
        return ModelDrafter(model, n_valid_ids=vocab_size, eos_ids=frozenset((3,)), drawing=drawing)

    check_drafter(make, vocab_size=vocab_size, context_length=48)


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


class _Sampled(ModelDrafter):
    drawn: tuple[Drawing, ...] = (Drawing("iid"), Drawing("without_replacement"))

    def __init__(self, drawing: Drawing) -> None:
        super().__init__(ToyModel(5, n_blocks=400), n_valid_ids=5, drawing=drawing)


class _DropsByValue(_Sampled):
    """Leaves out a whole path where it ends in token 2."""

    def _draft(self, state):
        draft = super()._draft(state)
        last = int(np.flatnonzero(draft.parents < 0)[-1])
        return _head(draft, last if draft.tokens[-1] == 2 and last else len(draft))


class _StopsAtAnEnd(_Sampled):
    """Drafts no further than token 3, a single path."""

    def _draft(self, state):
        draft = super()._draft(state)
        ends = np.flatnonzero(draft.tokens == 3)
        return _head(draft, int(ends[0]) + 1 if len(ends) and draft.is_chain else len(draft))


class _LawsOfTheirOwn(_Sampled):
    def _draft(self, state):
        draft = super()._draft(state)
        return replace(draft, laws=tuple(Law(law.ids, law.probs) for law in draft.laws))


class _TellsNoLaws(_Sampled):
    def _draft(self, state):
        return replace(super()._draft(state), laws=None)


class _SaysAnotherKind(_Sampled):
    def _draft(self, state):
        return replace(super()._draft(state), kind="coupled")


class _TooManyPaths(_Sampled):
    """Room for the nodes is not room for the paths: what they share is fed again with each."""

    drawn = (Drawing("iid", trunk=2), Drawing("without_replacement", trunk=2))

    def propose(self, seqs, limits):
        return super().propose(seqs, [replace(limit, n_nodes=limit.n_nodes + limit.depth) for limit in limits])


def _head(draft: Draft, n: int) -> Draft:
    return Draft(draft.tokens[:n], draft.parents[:n], draft.laws[:n], draft.kind)


@pytest.mark.parametrize(
    "broken", [_DropsByValue, _StopsAtAnEnd, _LawsOfTheirOwn, _TellsNoLaws, _SaysAnotherKind, _TooManyPaths]
)
def test_contract_catches_what_rules_could_not_bear(broken: type[_Sampled]) -> None:
    for drawing in broken.drawn:
        with pytest.raises(AssertionError):
            check_drafter(lambda drawing=drawing: broken(drawing), vocab_size=5, context_length=32)


ONE, TWO = Law(np.array([1]), np.ones(1)), Law(np.array([1, 2]), np.array([0.5, 0.5]))


def _pair(tokens: tuple[int, int], laws: tuple[Law, Law] | None, kind: str = "iid") -> Draft:
    return Draft(np.array(tokens, np.int32), np.array([-1, -1], np.int32), laws, kind)


@pytest.mark.parametrize(
    ("draft", "limit"),
    [
        (chain([1, 2, 3]), Limits(2, 9)),
        (chain([1, 2, 3]), Limits(9, 2)),
        (chain([1, 9]), Limits(9, 9)),
        (chain([-1]), Limits(9, 9)),
        (Draft(np.array([1, 2], np.int32), np.array([-1, -1], np.int32)), Limits(9, 9, 1)),
        (Draft(np.array([1, 1], np.int32), np.array([-1, -1], np.int32)), Limits(9, 9, 2)),
        (_pair((1, 1), (TWO, TWO)), Limits(9, 9, 1)),
        (_pair((1, 1), (TWO, TWO), "without_replacement"), Limits(9, 9, 2)),
        (_pair((1, 2), (ONE, ONE)), Limits(9, 9, 2)),
        (_pair((1, 1), (ONE, TWO)), Limits(9, 9, 2)),
        (_pair((1, 9), (Law(np.array([1, 9]), np.array([0.5, 0.5])),) * 2), Limits(9, 9, 2)),
        (_pair((1, 2), (Law(np.array([1, 2]), np.array([0.5, 0.4])),) * 2), Limits(9, 9, 2)),
        (_pair((1, 2), (Law(np.array([2, 1]), np.array([0.5, 0.5])),) * 2), Limits(9, 9, 2)),
        (_pair((1, 2), (Law(np.array([0, 1, 2]), np.array([0.0, 0.5, 0.5])),) * 2), Limits(9, 9, 2)),
    ],
)
def test_bad_drafts_are_caught(draft: Draft, limit: Limits) -> None:
    with pytest.raises(AssertionError):
        check_draft(draft, limit, 9)


def test_i_i_d_duplicates_are_fine() -> None:
    check_draft(_pair((1, 1), (TWO, TWO)), Limits(2, 1, 2), 9)


@pytest.mark.parametrize("spec", ["look-up", "", "lookup:5", "none:x"])
def test_unknown_names_and_arguments_are_refused(spec: str) -> None:
    with pytest.raises(OptionError, match="`drafter` is"):
        make_drafter(spec, None)
