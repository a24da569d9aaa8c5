"""How a model drafter draws: laws, addresses of the noise, forms that are settled beforehand, one row a context."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from wager.drafters.drawing import (
    MAX_LAW,
    Drawing,
    Shape,
    draw_iid,
    draw_without_replacement,
    law_of,
    shape_of,
    topped_up,
)
from wager.drafters.model import ModelDrafter
from wager.errors import OptionError
from wager.models.toy import ToyModel
from wager.pack import paths
from wager.sampling import Noise, arrivals, scores
from wager.tree import children, contexts, depths
from wager.types import Draft, DraftKind, Law, Limits, Sampling, Sequence
from wager.verify import Rows, rule_named

V = 7
WARM = Sampling(temperature=1.2)
PROMPT = [1, 2, 3]
KINDS: tuple[DraftKind, ...] = ("coupled", "deterministic", "iid", "without_replacement")
PAIRS = ((1, 0.5), (4, 0.3), (6, 0.2))
LAW = Law(np.array([a for a, _ in PAIRS]), np.array([p for _, p in PAIRS]))


class Counting(ToyModel):
    """Counts the rows of each forward, padding left out."""

    def __init__(self, **options) -> None:
        super().__init__(V, **{"n_blocks": 300, "scale": 2.0, **options})
        self.n_rows: list[int] = []

    def width_for(self, n_rows: int) -> int:
        return n_rows

    def forward(self, batch):
        self.n_rows.append(len(batch.tokens))
        return super().forward(batch)


def sequence(seed: int = 0, sampling: Sampling = WARM, tokens: list[int] = PROMPT) -> Sequence:
    return Sequence(0, list(tokens), 2, sampling, seed)


def drafted(drawing: Drawing, limit: Limits, seq: Sequence, model: ToyModel | None = None, **options) -> Draft:
    drafter = ModelDrafter(model or Counting(), n_valid_ids=V, drawing=drawing, **options)
    (draft,) = drafter.propose([seq], [limit])
    drafter.check()
    return draft


def context(draft: Draft, seq: Sequence, node: int) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.append(int(draft.tokens[node]))
        node = int(draft.parents[node])
    return [*seq.tokens, *reversed(path)]


def scores_at(draft: Draft, seq: Sequence, node: int):
    tokens = context(draft, seq, node)
    return scores(Counting().law(tokens), seq.sampling, tokens=tokens, n_prompt=seq.n_prompt)


# -- the pure functions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "greedy"}, "`kind` is 'greedy'"),
        ({"trunk": -1}, "`trunk` is -1"),
        ({"levels": 0}, "`levels` is 0"),
        ({"max_law": 1.5}, "`max_law` is 1.5"),
        ({"kind": "deterministic", "laws": True}, "`laws` is True"),
    ],
)
def test_drawings_that_make_no_sense_are_refused(given, message) -> None:
    with pytest.raises(OptionError, match=message):
        Drawing(**given)


def test_who_has_laws() -> None:
    assert [Drawing(kind).has_laws for kind in KINDS] == [False, False, True, True]
    assert Drawing("coupled", laws=True).has_laws
    assert Drawing("iid").n_ids == MAX_LAW
    assert Drawing("iid", max_law=9).n_ids == 9


@pytest.mark.parametrize(
    ("drawing", "limit", "n_leaves", "shape"),
    [
        (Drawing(), Limits(12, 4, 3), 3, Shape(4, 0, 1, 3)),
        (Drawing(), Limits(12, 4, 3), 2, Shape(4, 0, 1, 2)),
        (Drawing(), Limits(12, 4, 3), 0, Shape(4, 0, 1, 1)),
        (Drawing(levels=2), Limits(99, 4, 3), 9, Shape(4, 0, 2, 3)),
        (Drawing(levels=2), Limits(99, 4, 3), 8, Shape(4, 0, 1, 3)),
        (Drawing(levels=9), Limits(99, 4, 2), 99, Shape(4, 0, 4, 2)),
        (Drawing(trunk=3, levels=2), Limits(99, 4, 2), 99, Shape(4, 3, 1, 2)),
        (Drawing(trunk=9), Limits(99, 4, 2), 99, Shape(4, 4, 0, 1)),
        (Drawing("iid", levels=3, trunk=1), Limits(99, 4, 5), 7, Shape(4, 1, 1, 5)),
        (Drawing("iid", trunk=4), Limits(99, 4, 5), 7, Shape(4, 4, 0, 1)),
        (Drawing("without_replacement", max_law=2), Limits(99, 4, 5), 7, Shape(4, 0, 1, 2)),
    ],
)
def test_the_largest_form_that_fits(drawing: Drawing, limit: Limits, n_leaves: int, shape: Shape) -> None:
    assert shape_of(drawing, limit, n_leaves=n_leaves, greedy=False) == shape
    assert shape.n_leaves <= max(1, n_leaves)
    assert [shape.n_children(i) > 1 for i in range(limit.depth)] == [
        shape.width > 1 and shape.trunk <= i < shape.trunk + shape.levels for i in range(limit.depth)
    ]


def test_without_replacement_nothing_but_the_best_can_be_drawn_greedily() -> None:
    limit = Limits(99, 4, 3)
    assert shape_of(Drawing("without_replacement"), limit, n_leaves=9, greedy=True).width == 1
    assert shape_of(Drawing("iid"), limit, n_leaves=9, greedy=True).width == 3


def test_a_law_is_cut_to_its_largest_ids() -> None:
    x = np.log(np.array([0.1, 0.4, 0.2, 0.25, 0.05]))
    law = law_of(x, 1.0, 3)
    assert law.ids.tolist() == [1, 2, 3]
    assert law.probs == pytest.approx(np.array([0.4, 0.2, 0.25]) / 0.85)
    assert law_of(x, 1.0, 99).probs == pytest.approx(np.exp(x))
    assert law_of(np.array([-np.inf, 0.0, -np.inf, -2000.0]), 1.0, 3).ids.tolist() == [1]  # exp(-2000) is 0
    assert law_of(np.array([1.0, 3.0, 3.0], np.float32), 0.0, 3).ids.tolist() == [1]
    with pytest.raises(AssertionError):
        law_of(np.array([1.0, np.nan]), 1.0, 2)


def test_a_short_law_is_topped_up_with_the_best_of_what_options_dropped() -> None:
    raw = np.array([5.0, 9.0, 7.0, -np.inf, 8.0])
    law = topped_up(Law(np.array([1]), np.ones(1)), raw, 3)
    assert law.ids.tolist() == [1, 2, 4]
    assert law.probs.sum() == pytest.approx(1)
    assert law.probs[0] > 0.99999
    assert topped_up(LAW, raw, 3) is LAW
    assert topped_up(Law(np.array([1]), np.ones(1)), raw, 9).ids.tolist() == [0, 1, 2, 4]  # banned ids stay out


def test_i_i_d_draws_have_the_law_and_are_independent() -> None:
    """2000 rounds, chi-square of pairs over 9 cells below 33.5: false-alarm rate 5e-5."""
    pairs = Counter(tuple(draw_iid(LAW, Noise(1), start, [0, 1], 2)) for start in range(2000))
    law = {(a, b): p * q for a, p in PAIRS for b, q in PAIRS}
    assert sum((pairs[k] - 2000 * p) ** 2 / (2000 * p) for k, p in law.items()) < 33.5


def test_draws_without_replacement_come_in_the_order_of_successive_draws() -> None:
    """2000 rounds, chi-square of the first two over 6 cells below 27.9: false-alarm rate 4e-5."""
    pairs = Counter(tuple(draw_without_replacement(LAW, Noise(1), start, 3, 2, 2)) for start in range(2000))
    law = {(a, b): p * q / (1 - p) for a, p in PAIRS for b, q in PAIRS if a != b}
    assert set(pairs) == set(law)
    assert sum((pairs[k] - 2000 * p) ** 2 / (2000 * p) for k, p in law.items()) < 27.9
    assert sorted(draw_without_replacement(LAW, Noise(1), 0, 0, 0, 9)) == [1, 4, 6]


# -- what is drawn ----------------------------------------------------------------------------------------------------

TREES = [(0, 1, 3), (1, 2, 2), (2, 1, 3)]  # trunk, levels, width


@pytest.mark.parametrize(("trunk", "levels", "width"), TREES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_form_of_a_draft(kind: DraftKind, trunk: int, levels: int, width: int) -> None:
    n_leaves = width if kind == "iid" else width**levels
    draft = drafted(Drawing(kind, trunk=trunk, levels=levels), Limits(4 * n_leaves, 4, width), sequence())
    assert draft.kind == kind
    assert [len(path) for path in paths(draft)] == [4] * n_leaves
    at = Counter(draft.parents.tolist())
    where = {-1: 0, **dict(enumerate(depths(draft)))}
    branching = 1 if kind == "iid" else levels
    for node, n in at.items():
        assert n == (width if trunk <= where[node] < trunk + branching else 1)
    assert paths(draft)[0] == (0, 1, 2, 3)  # so that a mask has the first path in place
    if kind == "iid":  # sequences side by side, whatever they hold
        tail = 4 - trunk
        starts = [trunk + k * tail for k in range(width)]
        assert [i for i, parent in enumerate(draft.parents) if parent == trunk - 1] == starts


@pytest.mark.parametrize("sampling", [WARM, Sampling(temperature=0.7, top_k=4), Sampling(temperature=2.0, top_p=0.4)])
@pytest.mark.parametrize("kind", ["coupled", "iid", "without_replacement"])
def test_every_node_carries_the_law_of_its_context(kind: DraftKind, sampling: Sampling) -> None:
    for seed in range(10):
        seq = sequence(seed, sampling)
        draft = drafted(Drawing(kind, laws=True, trunk=1, levels=2), Limits(32, 4, 2), seq)
        for node, parent in enumerate(draft.parents.tolist()):
            want = law_of(scores_at(draft, seq, parent), sampling.temperature, 99)
            law = draft.laws[node]
            assert set(want.ids) <= set(law.ids)
            assert law.probs[np.isin(law.ids, want.ids)] == pytest.approx(want.probs, abs=1e-5)
            assert draft.tokens[node] in law.ids


def test_laws_are_cut_and_hold_what_is_drawn() -> None:
    for kind in ("coupled", "iid", "without_replacement"):
        for seed in range(20):
            draft = drafted(Drawing(kind, laws=True, max_law=2), Limits(8, 4, 2), sequence(seed))
            assert all(len(law.ids) == 2 for law in draft.laws)
            assert all(token in law.ids for token, law in zip(draft.tokens, draft.laws, strict=True))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_coupled_and_deterministic_children(temperature: float) -> None:
    """The earliest arrivals with the target's noise, the best scores: at every level, not only the first."""
    seq = sequence(5, Sampling(temperature=temperature))
    for kind in ("coupled", "deterministic"):
        for laws in (False, kind == "coupled"):
            draft = drafted(Drawing(kind, laws=laws, trunk=1, levels=2), Limits(16, 4, 2), seq)
            assert (draft.laws is not None) == laws
            for node, below in children(draft).items():
                position = seq.n_output + (depths(draft)[node] if node >= 0 else 0)
                heat = temperature if kind == "coupled" else 0.0
                want = arrivals(scores_at(draft, seq, node), Noise(5), position, heat, len(below))
                assert draft.tokens[below].tolist() == want.tolist()


@pytest.mark.parametrize("trunk", [0, 1, 2])
def test_gls_meets_the_noise_that_sequences_were_drawn_with(trunk: int) -> None:
    """With the target as draft model the winner of min E_k / p is the draw of its sequence: everything is accepted.

    An address (branch, depth, start) that is not the one the rule looks at breaks this within a few seeds.
    """
    for seed in range(30):
        seq = sequence(seed)
        draft = drafted(Drawing("iid", trunk=trunk), Limits(12, 4, 3), seq)
        logits = np.array([Counting().law(context(draft, seq, node)) for node in range(-1, len(draft))])
        rows = Rows(logits, list(range(len(logits))), seq, draft)
        verdict = rule_named("gls").rule(rows, draft, Noise(seed))
        assert len(verdict.path) == 4


def test_sibling_races_do_not_share_noise() -> None:
    """Two nodes of one level with equal laws (order 0: no context) must not draw the same order every time."""
    equal = 0
    for seed in range(40):
        model = Counting(order=0)
        draft = drafted(Drawing("without_replacement", levels=2), Limits(8, 2, 2), sequence(seed), model)
        first, second = (draft.tokens[below].tolist() for node, below in children(draft).items() if node >= 0)
        equal += first == second
    assert equal < 20


def test_greedy_draws() -> None:
    greedy = Sampling()
    best = int(np.argmax(Counting().law(PROMPT)))
    iid = drafted(Drawing("iid"), Limits(12, 4, 3), sequence(0, greedy))
    assert len(paths(iid)) == 3
    assert len({tuple(iid.tokens[list(path)]) for path in paths(iid)}) == 1
    assert iid.tokens[0] == best
    assert all(law.ids.tolist() == [token] for law, token in zip(iid.laws, iid.tokens, strict=True))
    single = drafted(Drawing("without_replacement", levels=2), Limits(99, 4, 3), sequence(0, greedy))
    assert single.is_chain
    assert single.tokens.tolist() == iid.tokens[:4].tolist()


# -- one row a context, and forms that tell nothing -------------------------------------------------------------------


def test_sequences_that_agree_are_one_row() -> None:
    for seed in range(10):
        model = Counting()
        draft = drafted(Drawing("iid"), Limits(16, 4, 4), sequence(seed), model)
        context_of, where = contexts(draft), depths(draft)
        n_contexts = [sum(c == i and where[i] == d for i, c in enumerate(context_of)) for d in (1, 2, 3)]
        assert model.n_rows == [len(PROMPT), *n_contexts]
    greedy = Counting()
    drafted(Drawing("iid"), Limits(16, 4, 4), sequence(0, Sampling()), greedy)
    assert greedy.n_rows == [len(PROMPT), 1, 1, 1]


def test_duplicates_share_the_law_object_at_their_context() -> None:
    draft = drafted(Drawing("iid"), Limits(16, 4, 4), sequence(3))
    for below in children(draft).values():
        assert len({id(draft.laws[node]) for node in below}) == 1


def test_sampled_drafts_go_on_past_an_end_of_text() -> None:
    ends = frozenset((0, 1, 2, 3, 4, 5, 6))
    for kind, n in (("coupled", 1), ("deterministic", 1), ("iid", 4), ("without_replacement", 4)):
        draft = drafted(Drawing(kind), Limits(8, 4, 2), sequence(1), eos_ids=ends)
        assert max(depths(draft)) == n, kind


def test_every_context_without_replacement_has_as_many_children() -> None:
    """Where options leave a token or two, others join: the form must not depend on the laws of what was drawn."""
    for seed in range(20):
        seq = sequence(seed, Sampling(temperature=1.0, top_p=0.3))
        draft = drafted(Drawing("without_replacement", levels=2), Limits(27, 3, 3), seq)
        assert len(paths(draft)) == 9
        for node, below in children(draft).items():
            assert scores_at(draft, seq, node)[draft.tokens[below[0]]] > -np.inf  # what joins has hardly any weight


@pytest.mark.parametrize("kind", ["iid", "without_replacement"])
def test_forms_do_not_tell_what_was_drawn_where_memory_is_short(kind: DraftKind) -> None:
    """Three sequences over blocks for some of their branches, eight rounds; what is committed is always as long."""

    def forms(seed: int) -> list[tuple[int, ...]]:
        drafter = ModelDrafter(ToyModel(V, n_blocks=16 + 13), n_valid_ids=V, drawing=Drawing(kind, levels=2))
        seqs = [replace(sequence(10 * seed + i), id=i, tokens=[i, *PROMPT]) for i in range(3)]
        found = []
        for round_ in range(8):
            some = [seq for seq in seqs if (seq.id + round_) % 4]
            drafts = drafter.propose(some, [Limits(12, 3, 2)] * len(some))
            drafter.check()
            found += [tuple(draft.parents.tolist()) for draft in drafts]
            for seq, draft in zip(some, drafts, strict=True):
                seq.tokens += [*draft.tokens[:1].tolist(), 0, 0][:2]
        for seq in seqs:
            drafter.forget(seq.id)
        drafter.check()
        return found

    want = forms(0)
    assert len({len(form) for form in want}) > 2  # some whole, some with fewer paths, some empty
    assert all(forms(seed) == want for seed in range(1, 12))


def test_the_branch_that_was_confirmed_is_kept() -> None:
    """After a draft of a tree of forks, only what is new is read: the last token, and the one that nobody drafted."""
    for kind in KINDS:
        model = Counting()
        drafter = ModelDrafter(model, n_valid_ids=V, drawing=Drawing(kind, levels=2))
        seq = sequence(2)
        (draft,) = drafter.propose([seq], [Limits(99, 3, 2)])
        seq.tokens += [*draft.tokens[list(paths(draft)[-1])].tolist(), 0]
        model.n_rows.clear()
        drafter.propose([seq], [Limits(1, 1, 1)])
        assert model.n_rows == [2], kind  # the last draft token was never fed
        drafter.check()


@pytest.mark.parametrize("kind", ["iid", "without_replacement"])
def test_a_law_with_next_to_nothing_in_it_is_drawn_from_in_silence(kind: DraftKind) -> None:
    law = Law(np.array([1, 2]), np.array([1.0, 5e-324]))
    with np.errstate(all="raise", under="ignore"):
        tokens = (
            draw_iid(law, Noise(1), 3, [0, 1], 0)
            if kind == "iid"
            else draw_without_replacement(law, Noise(1), 3, 0, 0, 2)
        )
    assert tokens[0] == 1
