"""The suffix automaton against brute force, and the drafts made from it."""

from __future__ import annotations

import random

import pytest

from wager.drafters.lookup import Lookup
from wager.drafters.suffix_automaton import SuffixAutomaton
from wager.types import Limits, Sampling, Sequence


def _longest_repeat(text: list[int]) -> tuple[int, list[int]]:
    """Longest suffix that ends earlier too, and the exclusive ends of its earlier occurrences."""
    n = len(text)
    for length in range(n - 1, 0, -1):
        ends = [end for end in range(length, n) if text[end - length : end] == text[n - length :]]
        if ends:
            return length, ends
    return 0, []


def _random_text(rng: random.Random) -> list[int]:
    letters = rng.choice([1, 2, 3, 6])
    text = [rng.randrange(letters) for _ in range(rng.randrange(1, 40))]
    return text + text[: rng.randrange(10)] * rng.randrange(3)


def test_match_is_the_longest_earlier_suffix() -> None:
    rng = random.Random(0)
    for _ in range(600):
        text = _random_text(rng)
        automaton = SuffixAutomaton()
        for i, token in enumerate(text):
            automaton.extend([token])
            length, ends = _longest_repeat(text[: i + 1])
            assert automaton.match == length, text[: i + 1]
            assert not ends or automaton.match_end in ends, text[: i + 1]
        assert automaton.n_states <= 2 * len(text) + 1


def test_match_end_is_the_latest_occurrence() -> None:
    """Exact where no suffix link chain is deeper than the climb: texts without long periods."""
    rng = random.Random(1)
    for _ in range(200):
        text = [rng.randrange(4) for _ in range(60)]
        automaton = SuffixAutomaton()
        automaton.extend(text)
        _, ends = _longest_repeat(text)
        assert not ends or automaton.match_end == ends[-1], text


def test_built_at_once_or_token_by_token() -> None:
    rng = random.Random(2)
    for _ in range(100):
        text = _random_text(rng)
        at_once, by_token = SuffixAutomaton(), SuffixAutomaton()
        at_once.extend(text)
        for token in text:
            by_token.extend([token])
        assert (at_once.match, at_once.match_end) == (by_token.match, by_token.match_end)


@pytest.mark.parametrize("text", [[1] * 8000, list(range(50)) * 160, [i & 1 for i in range(8000)]])
def test_work_is_linear_in_periodic_text(text: list[int]) -> None:
    """Steps along links are what could go quadratic: counted, not timed."""
    steps = 0

    class Counting(list):
        def __getitem__(self, index):
            nonlocal steps
            steps += 1
            return super().__getitem__(index)

    automaton = SuffixAutomaton()
    automaton._link = Counting(automaton._link)
    automaton.extend(text)
    assert steps < 20 * len(text)


def _draft(tokens: list[int], n: int, **options: int) -> tuple[list[int], int]:
    draft = Lookup(**options).propose([Sequence(0, tokens, 1, Sampling(), 0)], [Limits(n, n)])[0]
    assert draft.is_chain
    return draft.tokens.tolist(), draft.support


def test_drafts_what_followed_last_time() -> None:
    assert _draft([1, 2, 3, 4, 5, 9, 1, 2, 3], 3) == ([4, 5, 9], 3)


def test_prefers_the_latest_occurrence() -> None:
    assert _draft([1, 2, 7, 0, 1, 2, 8, 0, 5, 1, 2], 1) == ([8], 2)


def test_goes_on_with_a_period_past_the_end_of_the_text() -> None:
    assert _draft([7, 1, 2, 3, 1, 2, 3, 1, 2], 8) == ([3, 1, 2, 3, 1, 2, 3, 1], 5)
    assert _draft([4] * 9, 6)[0] == [4] * 6


def test_length_grows_with_the_match_within_the_limits() -> None:
    text = [*range(30), 50, 51, 52, 2]
    assert len(_draft(text, 20, growth=2)[0]) == 3
    assert len(_draft([*text, 3, 4], 20, growth=2)[0]) == 7
    assert len(_draft([*text, 3, 4], 5, growth=2)[0]) == 5


def test_short_matches_draft_nothing() -> None:
    assert _draft([1, 2, 3, 1], 4, min_match=2) == ([], 0)
    assert _draft([1, 2, 3, 1], 4, min_match=1)[0] == [2, 3, 1]
    assert _draft([1, 2, 3], 4) == ([], 0)
    assert _draft([1], 4) == ([], 0)


def test_a_shorter_text_under_the_same_id_starts_again() -> None:
    lookup = Lookup()
    lookup.propose([Sequence(0, [1, 2, 3, 1, 2], 1, Sampling(), 0)], [Limits(4, 4)])
    draft = lookup.propose([Sequence(0, [5, 6, 5], 1, Sampling(), 0)], [Limits(1, 1)])[0]
    assert draft.tokens.tolist() == [6]
