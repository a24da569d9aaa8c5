"""The longest match and the trie of what follows against brute force, and the limits of a corpus."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_tools import Documents, store_of, tokens_of
from wager import stores
from wager.corpus import Corpus
from wager.drafters import make_drafter
from wager.drafters.frozen import Frozen
from wager.drafters.retrieval import Retrieval, longest_match
from wager.drafters.retrieval import most_frequent as most_frequent_draft
from wager.errors import OptionError, VocabularyError
from wager.text import Text
from wager.types import Draft, Limits, Sampling, Sequence

V = 5
DOCUMENTS = st.lists(st.lists(st.integers(0, 3), max_size=25), max_size=6)
CONTEXT = st.lists(st.integers(0, V - 1), min_size=1, max_size=20)


def continuations(documents: Documents, context: list[int], longest: int, shortest: int) -> tuple[int, list[list[int]]]:
    """The length of the longest match that goes on, and the rest of the document after every place of it."""
    for n in range(min(longest, len(context)), shortest - 1, -1):
        query = context[-n:]
        rests = [list(d[i + n :]) for d in documents for i in range(len(d) - n) if list(d[i : i + n]) == query]
        if rests:
            return n, rests
    return 0, []


def most_frequent(rests: list[list[int]], limit: Limits, n_valid_ids: int) -> list[tuple[int, ...]]:
    """Paths of the trie, chosen one by one: the most frequent whose parent is there and which is among the first
    ``width`` of its siblings; shorter ones first, then by the ranks on the path."""
    counts: Counter[tuple[int, ...]] = Counter()
    for rest in rests:
        for depth in range(1, limit.depth + 1):
            if len(rest) >= depth and all(token < n_valid_ids for token in rest[:depth]):
                counts[tuple(rest[:depth])] += 1

    def rank(path: tuple[int, ...]) -> int:
        siblings = sorted((p for p in counts if len(p) == len(path) and p[:-1] == path[:-1]), key=lambda p: -counts[p])
        return sorted(siblings, key=lambda p: (-counts[p], p)).index(path)

    ranks = {path: tuple(rank(path[:d]) for d in range(1, len(path) + 1)) for path in counts}
    fine = [path for path in counts if max(ranks[path]) < limit.width]
    fine.sort(key=lambda path: (-counts[path], len(path), ranks[path]))
    return sorted(fine[: limit.n_nodes], key=lambda path: ranks[path])


def propose(retrieval: Retrieval, context: list[int], limit: Limits) -> Draft:
    return retrieval.propose([Sequence(0, list(context), 1, Sampling(), 0)], [limit])[0]


def paths(draft: Draft) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


@settings(deadline=None)
@given(DOCUMENTS, st.lists(st.integers(1, 4), min_size=9, max_size=9), st.sets(st.integers(0, 3)))
def test_a_weight_is_so_many_texts_and_nothing_follows_an_end(documents, weights, ends) -> None:
    """Weights in halves, so that their sums are exact; an end is where every text is cut, itself included."""
    store = store_of(documents, V)
    follow = store.suffixes[store.starts[0] :: 3][:9].astype(np.int64)
    weights = np.array(weights[: len(follow)])
    if not len(follow):
        return
    for limit in (Limits(9, 4, 3), Limits(5, 5, 1), Limits(20, 2, 9)):
        weighted = most_frequent_draft(store.tokens, follow, limit, V, support=1, weights=weights / 2)
        repeated = most_frequent_draft(store.tokens, np.repeat(follow, weights), limit, V, support=1)
        assert paths(weighted) == paths(repeated)
        ended = most_frequent_draft(store.tokens, follow, limit, V, support=1, ends=ends)
        rests = [store.tokens[at:].tolist() for at in follow]
        rests = [rest[: rest.index(-1)] for rest in rests]
        rests = [rest[: next((i + 1 for i, t in enumerate(rest) if t in ends), len(rest))] for rest in rests]
        assert paths(ended) == most_frequent(rests, limit, V)


@settings(deadline=None)
@given(DOCUMENTS, CONTEXT, st.integers(1, 3))
def test_longest_match_is_that_of_all_places(documents: list[list[int]], context: list[int], shortest: int) -> None:
    store = store_of(documents, V)
    n, low, high = longest_match(store, context, shortest=shortest)
    expected, rests = continuations(documents, context, len(context), shortest)
    assert n == expected
    found = []
    for at in store.suffixes[low:high].tolist():
        rest = store.tokens[at + n :].tolist()
        found.append(rest[: rest.index(-1)])
    assert sorted(found) == sorted(rests)


@settings(max_examples=300, deadline=None)
@given(
    DOCUMENTS,
    CONTEXT,
    st.builds(Limits, st.integers(1, 14), st.integers(1, 5), st.integers(1, 4)),
    st.integers(1, V),
)
def test_drafts_are_the_most_frequent_prefixes(
    documents: list[list[int]], context: list[int], limit: Limits, n_valid_ids: int
) -> None:
    """Order included: depth first, the most frequent child first: the first path is the chain to fall back to."""
    retrieval = Retrieval(store_of(documents, V), n_valid_ids=n_valid_ids, shortest=1, longest=3)
    draft = propose(retrieval, context, limit)
    n, rests = continuations(documents, context, 3, 1)
    assert paths(draft) == most_frequent(rests, limit, n_valid_ids)
    assert draft.support == n or not len(draft)


def test_a_chain_is_the_most_frequent_path() -> None:
    documents = [[1, 2, 3, 4, 0]] * 3 + [[1, 2, 3, 0, 0]] * 2 + [[1, 2, 4, 4, 4]] * 4
    draft = propose(Retrieval(store_of(documents, V), n_valid_ids=V), [1, 2], Limits(3, 3, 1))
    assert (draft.tokens.tolist(), draft.is_chain, draft.support) == ([3, 4, 0], True, 2)


def test_nothing_crosses_the_border_of_documents() -> None:
    """As one text the corpus has 1 2 3 4: the match would be three long, and 3 would be followed by 4."""
    retrieval = Retrieval(store_of([[1, 2, 3], [4, 4], [2, 3, 0]], V), n_valid_ids=V)
    draft = propose(retrieval, [1, 2, 3], Limits(8, 8, 4))
    assert (paths(draft), draft.support) == ([(0,)], 2)


def test_a_match_is_at_most_the_longest_asked_for() -> None:
    text = list(range(40))
    store = store_of([text, [*text[20:36], 49, 49]], 50)
    draft = propose(Retrieval(store, n_valid_ids=50), text[:36], Limits(2, 1, 2))
    assert (sorted(draft.tokens.tolist()), draft.support) == ([36, 49], 16)
    draft = propose(Retrieval(store, n_valid_ids=50, longest=17), text[:36], Limits(2, 1, 2))
    assert (draft.tokens.tolist(), draft.support) == ([36], 17)


def test_samples_are_spread_over_all_places() -> None:
    """The places are sorted by what follows: the first seven of them would all be followed by 2."""
    documents = [[0, 1, 2]] * 100 + [[0, 1, 3]] * 50
    retrieval = Retrieval(store_of(documents, V), n_valid_ids=V, n_samples=7)
    assert paths(propose(retrieval, [0, 1], Limits(4, 1, 4))) == [(2,), (3,)]


def test_of_many_equals_the_lowest_ids_are_taken() -> None:
    """Sixty children, those above 40 twice: a sort that is not stable would mix the equal ones."""
    documents = [[0, 1, token] for token in (*range(2, 62), *range(40, 62))]
    draft = propose(Retrieval(store_of(documents, 62), n_valid_ids=62), [0, 1], Limits(99, 1, 30))
    assert draft.tokens.tolist() == [*range(40, 62), *range(2, 10)]


def test_no_more_places_than_samples_are_read() -> None:
    """Two samples of a hundred places, each followed by another token: a trie of two leaves."""
    documents = [[0, 1, token] for token in range(2, 102)]
    retrieval = Retrieval(store_of(documents, 102), n_valid_ids=102, n_samples=2)
    assert propose(retrieval, [0, 1], Limits(99, 1, 99)).tokens.tolist() == [2, 52]


@pytest.mark.parametrize("documents", [[], [[]], [[1]], [[1, 2]], [[0, 1, 2]]])
def test_a_corpus_shorter_than_the_context_drafts_nothing(documents: Documents) -> None:
    """Empty, shorter than a match, or ending where something should follow."""
    retrieval = Retrieval(store_of(documents, V), n_valid_ids=V)
    assert len(propose(retrieval, [4, 3, 4, 3, 0, 1, 2], Limits(8, 8, 2))) == 0


def test_one_token_is_no_match() -> None:
    retrieval = Retrieval(store_of([[1, 2, 1, 2]], V), n_valid_ids=V)
    assert len(propose(retrieval, [1], Limits(8, 8, 2))) == 0
    assert len(propose(retrieval, [0, 1], Limits(8, 8, 2))) == 0
    assert propose(retrieval, [1, 2], Limits(1, 1, 1)).tokens.tolist() == [1]


def test_ids_the_store_does_not_know_match_nothing() -> None:
    retrieval = Retrieval(store_of([[1, 2, 1, 2]], V), n_valid_ids=V)
    assert len(propose(retrieval, [V, V + 7], Limits(8, 8, 2))) == 0
    assert propose(retrieval, [V + 7, 1, 2], Limits(1, 1, 1)).support == 2


@pytest.mark.parametrize("limit", [Limits(0, 4, 1), Limits(4, 0, 1), Limits(4, 4, 0)])
def test_limits_of_nothing_give_nothing(limit: Limits) -> None:
    assert len(propose(Retrieval(store_of([[1, 2, 1, 2]], V), n_valid_ids=V), [1, 2], limit)) == 0


def test_a_search_reads_few_places() -> None:
    """Counted, not timed: 40 000 tokens of two letters (seed 0), where a scan would read half of them."""
    store = store_of([np.random.default_rng(0).integers(0, 2, 40_000).tolist()], 2)
    reads = 0

    class Counting:
        def item(self, place: int) -> int:
            nonlocal reads
            reads += 1
            return store.suffixes.item(place)

    counting = SimpleNamespace(tokens=store.tokens, suffixes=Counting(), starts=store.starts)
    n, low, high = longest_match(counting, store.tokens[500:516].tolist(), shortest=2)  # type: ignore[arg-type]
    assert (n, low < high) == (16, True)
    assert reads < 6 * (2 + np.log2(40_000))


def _target(folder: Path, n_valid_ids: int) -> SimpleNamespace:
    return SimpleNamespace(text=Text(folder), ir_dir=folder, n_valid_ids=n_valid_ids)


def test_suffixes_out_of_order_lead_nowhere_outside_the_corpus() -> None:
    """A damaged store may draft what it likes, within its corpus (400 of them, seed 0)."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        tokens = rng.integers(0, 3, (4, 6)).tolist()
        store = store_of(tokens, V)
        damaged = replace(store, suffixes=rng.integers(0, len(store.tokens), len(store.tokens)).astype(np.int32))
        seq = Sequence(0, rng.integers(0, 3, 6).tolist(), 1, Sampling(), seed=0)
        (draft,) = Retrieval(damaged, n_valid_ids=V).propose([seq], [Limits(8, 4, 2)])
        assert len(draft) <= 8
        assert all(len(follower) <= 3 for follower in Frozen(damaged, n_valid_ids=V)(tuple(seq.tokens[-1:])))


def test_made_by_name_for_a_target(tiny_llama: Path) -> None:
    target = _target(tiny_llama, 8)
    for spec in ("retrieval", "retrieval:mine"):
        with pytest.raises(OptionError, match="build one with `wager store build NAME --model MODEL FILES`"):
            make_drafter(spec, target)
    stores.build("mine", Corpus(tokens_of([[1, 2, 3, 8], [1, 2, 9]]), ()), target.text, model="tiny")
    for spec in ("retrieval", "retrieval:other"):
        with pytest.raises(OptionError, match="give one of mine, or build one"):
            make_drafter(spec, target)
    drafter = make_drafter("retrieval:mine", target)
    assert drafter.name == "retrieval:mine"
    draft = drafter.propose([Sequence(0, [1, 2], 1, Sampling(), 0)], [Limits(9, 9, 9)])[0]
    assert draft.tokens.tolist() == [3], "8 and 9 are no ids of the target"
    with pytest.raises(VocabularyError, match="`tiny-qwen3` has others"):
        make_drafter("retrieval:mine", _target(tiny_llama.with_name("tiny-qwen3"), 8))
