"""Drafts that end while they are drawn, trunks that change from step to step: what a policy may ask of a drafter."""

from __future__ import annotations

import numpy as np
import pytest

from wager.drafters.drawing import Drawing, Shape, belief, shape_of
from wager.drafters.model import ModelDrafter
from wager.models.toy import ToyModel
from wager.sampling import probabilities, scores
from wager.tree import depths, prune
from wager.types import Draft, Drawn, Limits, Sampling, Sequence

V = 7
WARM = Sampling(temperature=1.2)


class Asked:
    """Remembers what it was told; ends paths as ``before`` and ``after`` say."""

    def __init__(self, *, before=lambda path, entropy: False, after=lambda path: False, n_top: int = 0) -> None:
        self.n_top, self._before, self._after = n_top, before, after
        self.entropies: list[float] = []
        self.levels: list[list[Drawn]] = []

    def before(self, path, entropy):
        self.entropies.append(entropy)
        return self._before(path, entropy)

    def after(self, paths):
        self.levels.append(list(paths))
        return [self._after(path) for path in paths]


def model() -> ToyModel:
    return ToyModel(V, n_blocks=300, scale=2.0)


def drafted(limit: Limits, *, drawing: Drawing = Drawing(), seed: int = 0, sampling: Sampling = WARM) -> Draft:  # noqa: B008
    drafter = ModelDrafter(model(), n_valid_ids=V, drawing=drawing)
    (draft,) = drafter.propose([Sequence(0, [1, 2, 3], 2, sampling, seed)], [limit])
    drafter.check()
    return draft


def law_before(draft: Draft, node: int, sampling: Sampling) -> np.ndarray:
    """The draft model's law at the parent of a node."""
    path, parent = [], int(draft.parents[node])
    while parent >= 0:
        path.append(int(draft.tokens[parent]))
        parent = int(draft.parents[parent])
    tokens = [1, 2, 3, *reversed(path)]
    return probabilities(scores(model().law(tokens), sampling, tokens=tokens, n_prompt=2))


@pytest.mark.parametrize("sampling", [WARM, Sampling(), Sampling(temperature=0.7, top_k=3)], ids=["warm", "0", "top-k"])
@pytest.mark.parametrize("kind", ["coupled", "deterministic", "iid", "without_replacement"])
def test_nodes_tell_the_probability_that_their_model_gave_them(kind: str, sampling: Sampling) -> None:
    stop = Asked()
    draft = drafted(Limits(4, 4, stop=stop), drawing=Drawing(kind), sampling=sampling)
    laws = [law_before(draft, node, sampling) for node in range(4)]
    assert draft.confidence == pytest.approx([q[token] for q, token in zip(laws, draft.tokens, strict=True)], rel=1e-5)
    entropies = [float(-(q[q > 0] * np.log(q[q > 0])).sum()) for q in laws]
    assert stop.entropies == pytest.approx(entropies, rel=1e-5)
    assert stop.levels[-1][0].entropies == pytest.approx(entropies, rel=1e-5)


def test_entropy_of_the_likeliest_tokens_alone() -> None:
    x = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    two = np.array([4, 3]) / 7
    assert belief(x, 2).entropy == pytest.approx(-(two * np.log(two)).sum())
    assert belief(x, 1).entropy == 0
    assert belief(x, 9).entropy == belief(x, 0).entropy == pytest.approx(-(np.exp(x) * x).sum())
    far = np.array([0.0, -9.0, -10.0, -11.0])  # no three are near the best
    some = np.exp(far[:3]) / np.exp(far[:3]).sum()
    assert belief(far, 3).entropy == pytest.approx(-(some * np.log(some)).sum())
    assert belief(x + 5, 1).of(2) == pytest.approx(0.2)
    assert belief(np.array([3.0, -np.inf]), 0).entropy == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", ["coupled", "iid", "without_replacement"])
def test_a_token_stays_and_the_path_ends(kind: str) -> None:
    lengths = set()
    for seed in range(20):
        drawing = Drawing(kind)
        whole = drafted(Limits(6, 6, stop=Asked()), drawing=drawing, seed=seed)
        draft = drafted(Limits(6, 6, stop=Asked(after=lambda p: p.probs[-1] < 0.3)), drawing=drawing, seed=seed)
        n = next((i + 1 for i, prob in enumerate(whole.confidence) if prob < 0.3), 6)
        assert draft.tokens.tolist() == whole.tokens[:n].tolist()
        lengths.add(n)
    assert len(lengths) > 2


def test_nothing_is_drawn_where_the_law_says_so() -> None:
    lengths = set()
    for seed in range(20):
        watch = Asked()
        whole = drafted(Limits(6, 6, stop=watch), seed=seed)
        limit = Limits(6, 6, stop=Asked(before=lambda path, entropy: len(path.probs) > 0 and entropy > 1.7))
        draft = drafted(limit, seed=seed)
        n = next((i for i, entropy in enumerate(watch.entropies) if i and entropy > 1.7), 6)
        assert draft.tokens.tolist() == whole.tokens[:n].tolist()
        lengths.add(n)
    assert len(lengths) > 1


def test_branches_end_one_by_one_and_are_told_together() -> None:
    watch = Asked(after=lambda path: path.probs[-1] < 0.2)
    draft = drafted(Limits(20, 5, 4, stop=watch))
    assert len(watch.levels[0]) == 4
    assert all(len({len(path.probs) for path in level}) == 1 for level in watch.levels)
    where = depths(draft)
    for node in range(len(draft)):
        is_leaf = node not in draft.parents
        assert is_leaf == (draft.confidence[node] < 0.2 or where[node] == 5)
    assert len({where[node] for node in range(len(draft)) if node not in draft.parents}) > 1


def test_what_was_kept_of_a_stopped_draft_serves_the_next_one() -> None:
    """Token by token with stops in between, and at once: the same draft."""
    drafter = ModelDrafter(model(), n_valid_ids=V)
    seq = Sequence(0, [1, 2, 3], 2, WARM, 0)
    for token in (4, 0, 6, 2):
        drafter.propose([seq], [Limits(12, 4, 3, stop=Asked(after=lambda path: path.probs[-1] < 0.4))])
        drafter.check()
        seq.tokens.append(token)
    (grown,) = drafter.propose([seq], [Limits(12, 4, 3)])
    fresh = ModelDrafter(model(), n_valid_ids=V).propose([Sequence(0, seq.tokens, 2, WARM, 0)], [Limits(12, 4, 3)])[0]
    assert grown.tokens.tolist() == fresh.tokens.tolist()
    assert grown.confidence is None


@pytest.mark.parametrize("kind", ["iid", "without_replacement"])
def test_drawn_paths_side_by_side_are_not_stopped(kind: str) -> None:
    """Where rules rely on the chance in a draft its form must not tell what was drawn."""
    with pytest.raises(AssertionError, match="stop by what others hold"):
        drafted(Limits(8, 4, 2, stop=Asked()), drawing=Drawing(kind))


def test_limits_may_set_the_trunk() -> None:
    assert shape_of(Drawing(trunk=3), Limits(99, 4, 2, trunk=1), n_leaves=9, greedy=False) == Shape(4, 1, 1, 2)
    assert shape_of(Drawing(trunk=1), Limits(99, 4, 2, trunk=9), n_leaves=9, greedy=False) == Shape(4, 4, 0, 1)
    for trunk in range(4):
        draft = drafted(Limits(12, 4, 3, trunk=trunk), drawing=Drawing("iid", trunk=2))
        assert draft.parents.tolist().count(trunk - 1) == 3


def test_a_pruned_draft_keeps_the_probabilities_of_its_nodes() -> None:
    draft = drafted(Limits(12, 4, 3, stop=Asked()))
    kept = [0, 1, 4]
    assert prune(draft, kept).confidence.tolist() == draft.confidence[kept].tolist()
