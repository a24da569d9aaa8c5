"""The counted suffix trie against brute force; its drafts against a slow oracle; what outlives a request."""

from __future__ import annotations

import gc
import heapq
import json
import random
from collections import Counter
from itertools import islice
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_tools import LIMITS, ask, check_text, in_preorder, sequence, tree_of
from wager.drafters import make_drafter
from wager.drafters.suffix import FinishedTexts, Suffix
from wager.drafters.suffix_trie import Node, SuffixTrie
from wager.errors import ModelError, OptionError
from wager.types import EMPTY, Limits

TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=25), max_size=5)


def _counts(texts: list[list[int]], depth: int) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(text[i:j])
        for text in texts
        for i in range(len(text))
        for j in range(i + 1, min(len(text), i + depth) + 1)
    )


def _shape(trie: SuffixTrie, node: Node | None = None) -> tuple:
    """Everything about a trie that drafts depend on, the order of children too."""
    node = node or trie.root
    count = None if node is trie.root else node.count
    below = [(k, trie.label(c, node.depth, c.depth), _shape(trie, c)) for k, c in (node.children or {}).items()]
    return node.depth, count, below


def _filled(texts: list[list[int]], depth: int) -> SuffixTrie:
    trie = SuffixTrie(depth)
    for text in texts:
        trie.extend(text)
        trie.close()
    return trie


@given(TEXTS, st.lists(st.integers(0, 2), max_size=25), st.integers(1, 9))
def test_counts_are_those_of_all_substrings(texts, text, depth) -> None:
    """With closed documents and an open one; fails if a token of any of them is counted twice, or across a border."""
    trie = _filled(texts, depth)
    for n, token in enumerate(text, start=1):
        trie.extend([token])
        assert trie.n_open == n
    everything = _counts([*texts, text], depth)
    for string, count in everything.items():
        assert trie.count(list(string)) == count, string
        if len(string) < depth:
            assert trie.count([*string, 9]) == 0
    assert trie.documents == [text for text in texts if text]


@given(TEXTS, st.integers(1, 9))
def test_what_is_taken_out_might_never_have_been_there(texts, depth) -> None:
    trie, texts = _filled(texts, depth), [text for text in texts if text]
    while texts:
        trie.evict()
        texts = texts[1:]
        assert _shape(trie) == _shape(_filled(texts, depth))
        assert trie.documents == texts
    assert trie.n_tokens == 0


@pytest.mark.parametrize("text", [[1] * 3000, [i & 1 for i in range(3000)], list(range(100)) * 30], ids=len)
def test_memory_is_linear_in_repetitive_text(text) -> None:
    """A trie without compressed edges would have up to 48 nodes a token."""

    def n_nodes(node: Node) -> int:
        return 1 + sum(map(n_nodes, (node.children or {}).values()))

    trie = _filled([text], 48)
    assert n_nodes(trie.root) <= 2 * len(text) + 1


class _Oracle:
    """Drafts from all substrings of the texts, counted by brute force. No trie."""

    def __init__(self, texts: list[list[int]], depth: int, *, is_own: bool) -> None:
        self.texts, self.depth, self.is_own = texts, depth, is_own
        self.counts = _counts(texts, depth)
        self.latest: dict[tuple[int, ...], int] = {}
        for n, text in enumerate(texts):
            for i in range(len(text)):
                for j in range(i + 1, min(len(text), i + depth) + 1):
                    self.latest[tuple(text[i:j])] = n * 1000 + j

    def next(self, string: tuple[int, ...], width: int) -> list[tuple[int, int]]:
        """(count, token) of what followed, most frequent first, then latest first."""
        if len(string) >= self.depth:
            return []
        found = [((*string, token), token) for token in range(5) if (*string, token) in self.counts]
        found.sort(key=lambda item: (-self.counts[item[0]], -self.latest[item[0]]))
        return [(self.counts[key], token) for key, token in islice(found, width)]

    def forced(self, string: tuple[int, ...], path: tuple[int, ...]) -> int | None:
        """The token after a string that never went on otherwise; past the text's end the draft goes on as it began."""
        if len(string) >= self.depth:
            return None
        after = self.next(string, 5)
        if not after and self.is_own:
            shown = next(n for n in range(len(path), -1, -1) if self.counts[string[: len(string) - len(path) + n]] > 0)
            return path[len(path) - shown]
        ends = 0 if self.is_own else self.counts[string] - sum(count for count, _ in after)
        return after[0][1] if len(after) == 1 and ends == 0 else None

    def grow(self, context: tuple[int, ...], limit: Limits, n_nodes: int) -> tuple[list[tuple[int, ...]], float, float]:
        """Paths in the order they are made, their summed probability, and the support that the context gives."""
        total = self.counts[context] - self.is_own
        first = self.next(context, limit.width)
        heap = [(-count / (total + 1), i, (), token) for i, (count, token) in enumerate(first)]
        heap = [item for item in heap if -item[0] >= 0.1]
        made: list[tuple[int, ...]] = []
        score, n_seen = 0.0, len(heap)
        while heap and len(made) < n_nodes:
            prob, _, path, token = heapq.heappop(heap)
            while token is not None and len(made) < n_nodes and len(path) < limit.depth:
                path = (*path, token)
                made.append(path)
                score -= prob
                token = self.forced((*context, *path), path)
            if token is not None or len(made) >= n_nodes:
                continue
            string = (*context, *path)
            for count, child in self.next(string, limit.width):
                p = prob * count / self.counts[string]
                if -p >= 0.1:
                    heapq.heappush(heap, (p, n_seen, path, child))
                    n_seen += 1
        count = first[0][0] if first else 0
        return made, score, 2 * len(context) * count / (total - count + 1)


def _slow_draft(
    text: list[int], texts: list[list[int]], depth: int, limit: Limits
) -> tuple[list[tuple[int, ...]], int]:
    best: list[tuple[int, ...]] = []
    most, support = 0.0, 0
    for oracle, weight in ((_Oracle([text], depth, is_own=True), 1.0), (_Oracle(texts, depth, is_own=False), 0.5)):
        for m in range(min(len(text), depth - 1), 0, -1):
            n_nodes = min(limit.n_nodes, limit.width * (2 * m + 1))
            made, score, strength = oracle.grow(tuple(text[-m:]), limit, n_nodes)
            if made and weight * score > most + 1e-9:
                best, most, support = made, weight * score, max(1, round(weight * strength))
    return in_preorder(best), support


def test_drafts_are_those_of_the_slow_oracle() -> None:
    rng = random.Random(0)
    n_drafted = n_from_others = 0
    for _ in range(250):
        letters, depth = rng.choice([1, 2, 3, 4]), rng.choice([2, 5, 9, 48])
        texts = [[rng.randrange(letters) for _ in range(rng.randrange(1, 20))] for _ in range(rng.randrange(4))]
        text = [rng.randrange(letters) for _ in range(rng.randrange(1, 25))]
        text += text[: rng.randrange(8)] * rng.randrange(3)
        shared = FinishedTexts(depth=depth)
        for other in texts:
            shared.add(other)
        drafter, seq = Suffix(shared=shared, depth=depth), sequence(text[:1])
        for token in text[1:]:
            ask(drafter, seq, Limits(3, 3))
            seq.tokens.append(token)
        for limit in rng.sample(LIMITS, 8):
            draft = ask(drafter, seq, limit, vocab_size=letters)
            assert (tree_of(draft), draft.support) == _slow_draft(text, texts, depth, limit), (
                text,
                texts,
                depth,
                limit,
            )
            n_drafted += len(draft)
            n_from_others += tree_of(draft) != _slow_draft(text, [], depth, limit)[0]
    assert n_drafted > 2000
    assert n_from_others > 20


def test_length_grows_with_the_match_within_the_limits() -> None:
    text = [*range(30), 50, 51, 52, 2]
    assert ask(Suffix(), text, Limits(20, 20)).tokens.tolist() == [3, 4, 5]
    assert ask(Suffix(), [*text, 3, 4], Limits(20, 20)).tokens.tolist() == [*range(5, 12)]
    assert ask(Suffix(), [*text, 3, 4], Limits(20, 5)).tokens.tolist() == [*range(5, 10)]


def test_goes_on_with_a_period_past_the_end_of_the_text() -> None:
    assert ask(Suffix(), [7, 1, 2, 3, 1, 2, 3, 1, 2], Limits(8, 8)).tokens.tolist() == [3, 1, 2, 3, 1, 2, 3, 1]
    assert ask(Suffix(), [4] * 100, Limits(20, 20)).tokens.tolist() == [4] * 20


def test_the_more_frequent_continuation_is_drafted() -> None:
    often = [1, 2, 5, 0, 1, 2, 5, 9, 1, 2, 6, 8, 1, 2]
    assert ask(Suffix(), often, Limits(1, 1)).tokens.tolist() == [5]
    assert tree_of(ask(Suffix(), often, Limits(2, 1, 2))) == [(5,), (6,)]


def _ended(drafter: Suffix, tokens: list[int], n_prompt: int, seq_id: int) -> None:
    ask(drafter, sequence(tokens, seq_id=seq_id, n_prompt=n_prompt), Limits(2, 2))
    drafter.forget(seq_id)


def test_an_answer_that_was_hardly_drafted_for_is_not_counted_at_its_end() -> None:
    shared = FinishedTexts()
    drafter, seq = Suffix(shared=shared), sequence(list(range(100)))
    assert drafter.propose([seq], [Limits(0, 0)]) == [EMPTY]
    n_all = drafter.prices(seq, 3)[1]
    ask(drafter, seq, Limits(3, 3))
    assert drafter.prices(seq, 3)[1] == 0
    seq.tokens += [7] * 50
    assert drafter.prices(seq, 3)[1] == pytest.approx(n_all / 2)
    drafter.forget(seq.id)
    assert shared.trie.n_tokens == 0
    assert not drafter._requests


def test_the_answer_is_shared_with_the_end_of_its_prompt() -> None:
    shared = FinishedTexts()
    drafter = Suffix(shared=shared)
    seq = sequence([*range(100, 130), 1, 2, 3], n_prompt=30, seq_id=5)
    ask(drafter, seq, Limits(2, 2))
    assert shared.trie.n_tokens == 0
    seq.tokens.append(4)  # committed after the last draft
    drafter.forget(5)
    assert shared.trie.documents == [[*range(114, 130), 1, 2, 3, 4]]
    assert ask(drafter, [7, 8, 129], Limits(3, 3)).tokens.tolist() == [1, 2, 3]
    _ended(drafter, [1, 2], 2, 6)  # nothing was answered
    assert len(shared.trie.documents) == 1


def test_own_text_comes_first_where_both_say_as_much() -> None:
    shared = FinishedTexts()
    shared.add([1, 9, 9])
    assert ask(Suffix(shared=shared), [1, 5, 5, 1], Limits(1, 1)).tokens.tolist() == [5]
    for _ in range(9):
        shared.add([1, 5, 1, 9, 9])
    assert ask(Suffix(shared=shared), [0, 5, 1], Limits(1, 1)).tokens.tolist() == [9]


def test_another_sequence_under_the_same_id_starts_afresh() -> None:
    drafter = Suffix()
    ask(drafter, [1, 5, 2, 1], Limits(1, 1))
    assert ask(drafter, [0, 1, 7, 3, 1], Limits(1, 1)).tokens.tolist() == [7]


def test_the_oldest_answers_make_room() -> None:
    shared = FinishedTexts(max_tokens=10)
    for i in range(6):
        shared.add([i, i, i, i])
    assert shared.trie.documents == [[4] * 4, [5] * 4]
    shared.add(list(range(25)))
    assert shared.trie.documents == [list(range(15, 25))]


def test_a_long_request_leaves_a_short_one_its_own_text() -> None:
    """Fails if what A said shows in B's counts, or if B's drafts depend on how long A was where they share nothing."""
    drafter, fresh = Suffix(shared=FinishedTexts()), Suffix()
    _ended(drafter, [random.Random(0).randrange(100) for _ in range(5000)], 1, 0)
    text = [200, 201, 202, 200, 201, 203, 200, 201, 202, 200]
    for n in range(1, len(text) + 1):
        for limit in (Limits(6, 6), Limits(9, 4, 3)):
            ours, theirs = ask(drafter, text[:n], limit), ask(fresh, text[:n], limit)
            assert (tree_of(ours), ours.support) == (tree_of(theirs), theirs.support)
    assert len(ours) > 0


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("vocab_size", [1, 3])
def test_limits(limit: Limits, vocab_size: int) -> None:
    text = [i * i % vocab_size for i in range(40)]
    draft = ask(Suffix(), text, limit, vocab_size=vocab_size)
    assert (len(draft) > 0) == (min(limit.n_nodes, limit.depth, limit.width) > 0)


def test_text_is_the_plain_one() -> None:
    check_text(Suffix)
    check_text(lambda: Suffix(shared=FinishedTexts(max_tokens=300)))


def test_answers_survive_as_a_file(tmp_path) -> None:
    shared, path = FinishedTexts(), tmp_path / "made" / "texts.json"
    for text in ([1, 2, 3, 4], [2, 3, 9], [2, 3, 9, 1]):
        shared.add(text)
    shared.save(path)
    assert path.parent.stat().st_mode & 0o077 == 0
    again = FinishedTexts()
    again.load(path, n_valid_ids=10)
    assert _shape(again.trie) == _shape(shared.trie)
    less = FinishedTexts(max_tokens=8)
    less.load(path, n_valid_ids=10)
    assert less.trie.documents == [[2, 3, 9], [2, 3, 9, 1]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1, "documents": [[1, 2',
        b"[]",
        b'{"format": 2, "documents": []}',
        b'{"format": 1}',
        b'{"format": 1, "documents": [[1, -2]]}',
        b'{"format": 1, "documents": [[1, 10]]}',
        b'{"format": 1, "documents": [[1, 2.5]]}',
        b'{"format": 1, "documents": [3]}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, content: bytes) -> None:
    path = tmp_path / "texts.json"
    path.write_bytes(content)
    texts = FinishedTexts()
    with pytest.raises(ModelError, match=r"texts\.json.*delete it"):
        texts.load(path, n_valid_ids=10)
    assert texts.trie.n_tokens == 0


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("WAGER_HOME", str(tmp_path / "home"))
    (tmp_path / "openvino_model.xml").write_text("<net/>")
    (tmp_path / "openvino_model.bin").write_bytes(bytes(10))
    return SimpleNamespace(ir_dir=tmp_path, n_valid_ids=100, remember=True)


def test_answers_are_kept_by_model(tmp_path, target) -> None:
    home = tmp_path / "home" / "suffix"
    drafter = make_drafter("suffix", target)
    _ended(drafter, [1, 2, 3, 4], 1, 0)
    assert not home.exists()
    del drafter
    gc.collect()
    assert [json.loads(path.read_text())["documents"] for path in home.iterdir()] == [[[1, 2, 3, 4]]]
    drafter = make_drafter("suffix", target)
    assert ask(drafter, [7, 2], Limits(2, 2)).tokens.tolist() == [3, 4]
    (tmp_path / "openvino_model.bin").write_bytes(bytes(11))  # another model
    assert len(ask(make_drafter("suffix", target), [7, 2], Limits(2, 2))) == 0


def test_what_a_measurement_teaches_is_not_kept(tmp_path, target) -> None:
    """Else one method drafts from the answers of another, and later users from both."""
    _ended(make_drafter("suffix", target), [1, 2, 3, 4], 1, 0)
    gc.collect()
    target.remember = False
    drafter = make_drafter("suffix", target)
    assert len(ask(drafter, [7, 2], Limits(2, 2))) == 0
    (kept,) = (tmp_path / "home" / "suffix").iterdir()
    before = kept.read_text()
    _ended(drafter, [5, 6, 7], 1, 1)
    del drafter
    gc.collect()
    assert kept.read_text() == before


def test_a_long_run_keeps_them_meanwhile(tmp_path, target, monkeypatch) -> None:
    drafter = make_drafter("suffix", target)
    monkeypatch.setattr("wager.drafters.suffix._SAVE_S", -1.0)
    _ended(drafter, [1, 2, 3, 4], 1, 0)
    assert len(list((tmp_path / "home" / "suffix").iterdir())) == 1


def test_local_shares_and_keeps_nothing(tmp_path, target) -> None:
    drafter = make_drafter("suffix:local", target)
    _ended(drafter, [1, 2, 3, 4], 1, 0)
    assert len(ask(drafter, [7, 2], Limits(2, 2))) == 0
    del drafter
    gc.collect()
    assert not (tmp_path / "home").exists()


def test_where_nothing_can_be_kept_drafting_goes_on(tmp_path, target, caplog) -> None:
    (tmp_path / "home").write_text("a file in the way")
    drafter = make_drafter("suffix", target)
    _ended(drafter, [1, 2, 3, 4], 1, 0)
    assert ask(drafter, [7, 2], Limits(2, 2)).tokens.tolist() == [3, 4]
    del drafter
    gc.collect()
    assert "not kept" in caplog.text
    assert "WAGER_HOME" in caplog.text


@pytest.mark.parametrize("argument", ["shared", "local:1", "5"])
def test_other_arguments_are_refused(argument: str) -> None:
    with pytest.raises(OptionError, match="suffix:local"):
        make_drafter(f"suffix:{argument}", None)
