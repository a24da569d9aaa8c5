"""Drafts as graphs: links where words come again, trees unrolled from them, and what that saves and leaves as it is."""

from __future__ import annotations

import numpy as np
import pytest

from drafter_tools import tree_of
from engine_tools import EOS, run, toy
from engine_tools import V as V_WIDE
from wager.cost import StepCost
from wager.drafters.drawing import Drawing
from wager.drafters.gsd import GraphDrafter, unrolled
from wager.drafters.model import ModelDrafter
from wager.errors import OptionError
from wager.models.toy import ToyModel
from wager.policies import Tree, policy_named
from wager.testing import check_draft, check_drafter
from wager.types import Draft, Drawn, Limits, Sampling, Sequence
from wager.verify import check_rule_takes, rule_named

V = 5  # few tokens, so that words come again
TREE = Drawing(levels=2)
LIMIT = Limits(9 * 6, 6, 3)


class Counting(ToyModel):
    """Counts rows and forwards, padding left out."""

    n_rows = 0

    def width_for(self, n_rows: int) -> int:
        return n_rows

    def forward(self, batch):
        self.n_rows += len(batch.tokens)
        return super().forward(batch)


def drafted(
    repeat: int | None, *, seed: int = 0, limit: Limits = LIMIT, drawing: Drawing = TREE, temperature: float = 1.0
) -> tuple[Draft, Counting]:
    """One draft, of the plain tree where ``repeat`` is None, and the model that drew it."""
    model = Counting(V, n_blocks=600, scale=2.0)
    if repeat is None:
        drafter = ModelDrafter(model, n_valid_ids=V, drawing=drawing)
    else:
        drafter = GraphDrafter(model, n_valid_ids=V, drawing=drawing, repeat=repeat)
    (draft,) = drafter.propose([Sequence(0, [1, 2, 3], 2, Sampling(temperature=temperature), seed)], [limit])
    drafter.check()
    check_draft(draft, limit, V)
    return draft, model


# -- the pure part -----------------------------------------------------------------------------------------------------


def test_unrolling() -> None:
    """Two ways of a word: what followed the first follows the second; and a link may lead to a link."""
    nodes = [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (5,), (5, 2)]
    draft = unrolled(nodes, {(5, 2): (1, 2)}, Limits(99, 9, 9))
    assert tree_of(draft) == [*nodes, (5, 2, 3), (5, 2, 3, 4)]
    chained = unrolled([*nodes, (6,), (6, 5)], {(5, 2): (1, 2), (6, 5): (5,)}, Limits(99, 9, 9))
    assert tree_of(chained)[-3:] == [(6, 5, 2), (6, 5, 2, 3), (6, 5, 2, 3, 4)]


def test_limits_end_what_leads_round_and_round() -> None:
    nodes, links = [(1,), (1, 2), (1, 2, 3), (4,), (4, 3), (4, 3, 2)], {(1, 2, 3): (4, 3), (4, 3, 2): (1, 2)}
    for limit in (Limits(99, 8, 9), Limits(11, 99, 9)):
        draft = unrolled(nodes, links, limit)
        assert max(map(len, tree_of(draft))) == min(limit.depth, 6) if limit.n_nodes == 11 else limit.depth
        assert len(draft) == (11 if limit.n_nodes == 11 else 16)
    assert set(nodes) <= set(tree_of(draft))


def test_unrolling_is_by_level() -> None:
    """Where there is no room for all, every link gets its next token before any gets a second one."""
    nodes = [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (5,), (5, 2), (6,), (6, 2)]
    draft = unrolled(nodes, {(5, 2): (1, 2), (6, 2): (1, 2)}, Limits(10, 9, 9))
    assert {(5, 2, 3), (6, 2, 3)} <= set(tree_of(draft))


# -- drafts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_nothing_linked_it_is_the_plain_tree(temperature: float) -> None:
    for seed in range(5):
        for drawing in (TREE, Drawing("deterministic", trunk=1)):
            plain, model = drafted(None, seed=seed, drawing=drawing, temperature=temperature)
            for repeat in (-1, 99):
                draft, other = drafted(repeat, seed=seed, drawing=drawing, temperature=temperature)
                assert tree_of(draft) == tree_of(plain)
                assert draft.kind == plain.kind
                assert other.n_rows == model.n_rows


@pytest.mark.parametrize("repeat", [0, 1, 2])
def test_links_save_rows_and_never_cost_any(repeat: int) -> None:
    saved = []
    for seed in range(20):
        _, model = drafted(None, seed=seed)
        draft, other = drafted(repeat, seed=seed)
        assert other.n_forwards <= model.n_forwards
        assert other.n_rows <= model.n_rows
        saved.append(model.n_rows - other.n_rows)
        assert len(draft) <= LIMIT.n_nodes
    assert sum(saved) > 20


def test_a_link_goes_to_the_same_words_off_its_own_path() -> None:
    """A node that was not drawn follows words which stand elsewhere with that very token after them."""
    n_copied = 0
    for seed in range(20):
        plain, graph = (set(tree_of(drafted(repeat, seed=seed)[0])) for repeat in (None, 1))
        for path in graph - plain:
            n_copied += 1
            words = (3, *path)[-3:]
            twins = [other for other in graph if (3, *other)[-3:] == words and other != path]
            assert twins, path
    assert n_copied > 20


def test_a_word_that_comes_again_on_its_own_path_is_no_link() -> None:
    for seed in range(10):
        limit = Limits(12, 12, 1)
        assert tree_of(drafted(0, seed=seed, limit=limit)[0]) == tree_of(drafted(None, seed=seed, limit=limit)[0])


class Watching:
    """Ends nothing."""

    n_top = 0

    def before(self, path: Drawn, entropy: float) -> bool:
        return False

    def after(self, paths):
        return [False] * len(paths)


def test_copied_nodes_tell_the_probability_that_they_were_drawn_with() -> None:
    limit = Limits(9 * 6, 6, 3, stop=Watching())
    draft, _ = drafted(1, seed=3, limit=limit)
    plain, _ = drafted(None, seed=3, limit=limit)
    free, _ = drafted(1, seed=3)
    assert tree_of(draft) == tree_of(free)
    assert free.confidence is None
    told = dict(zip(tree_of(plain), plain.confidence.tolist(), strict=True))
    probs = dict(zip(tree_of(draft), draft.confidence.tolist(), strict=True))
    assert all(probs[path] == pytest.approx(told[path]) for path in probs.keys() & told.keys() if len(path) < 3)
    assert len(probs.keys() - told.keys()) > 0
    assert set(np.round(list(probs.values()), 5)) <= set(np.round(list(told.values()), 5))


@pytest.mark.parametrize(
    "drawing", [Drawing(), Drawing(levels=2), Drawing("iid", trunk=1), Drawing(laws=True)], ids=str
)
def test_contract(drawing: Drawing) -> None:
    def make() -> GraphDrafter:
        return GraphDrafter(ToyModel(V, n_blocks=600), n_valid_ids=V, eos_ids=frozenset((3,)), drawing=drawing)

    check_drafter(make, vocab_size=V, context_length=48)


def test_which_rules_take_it() -> None:
    def made(kind) -> GraphDrafter:
        return GraphDrafter(ToyModel(V), n_valid_ids=V, drawing=Drawing(kind))

    assert made("coupled").kind == "coupled"
    assert made("iid").kind == made("without_replacement").kind == "deterministic"
    for rule in ("walk", "nss", "top-k", "standard"):
        check_rule_takes(rule_named(rule), made(rule_named(rule).draws))
    with pytest.raises(OptionError, match="iid"):
        check_rule_takes(rule_named("spectr"), made("iid"))
    assert isinstance(made("coupled").redrawn(Drawing("iid")), GraphDrafter)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("policy", ["fixed:5", "threshold:0.2", "heterospec", "delayed"])
def test_the_text_is_that_of_plain_decoding(policy: str, temperature: float) -> None:
    sampling, info = Sampling(max_tokens=30, temperature=temperature), policy_named(policy)
    tree = Tree(3, 0, 2) if info.takes_tree else Tree()
    plain = run(toy(), sampling).tokens
    drafter = GraphDrafter(
        toy(scale=2.0), n_valid_ids=V_WIDE, eos_ids=frozenset((EOS,)), drawing=Drawing(levels=tree.levels), repeat=0
    )
    made = info.policy(n_tokens=None, tree=tree, cost=StepCost([2, 4, 8, 16, 32, 64]))
    check = lambda *_: drafter.check()  # noqa: E731
    outcome = run(toy(), sampling, drafter=drafter, policy=made, after_step=check)
    assert outcome.tokens == plain
    assert sum(stats.n_accepted for stats in outcome.stats) > 10
