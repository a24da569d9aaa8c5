"""GLS hashes its noise itself, so it cannot be gone through: frequencies over many seeds, with drafts that raced on the
same noise. Every chi-square has a false-alarm rate of 1e-5; every rate a tolerance of 4.5 standard deviations (7e-6).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chi2
from test_golden import P, Q, same_everywhere

from wager.proof import Context, More, Pair, always, finished, keep_then_stop, random_pair, texts
from wager.sampling import Noise
from wager.types import Draft, Law, Sampling, Sequence, Verdict
from wager.verify import RULES, Rows, shared_noise
from wager.verify.shared_noise import gls, sequences


def raced(
    pair: Pair,
    before: Context,
    noise: Noise,
    k: int,
    depth: int,
    *,
    trunk: int = 0,
    more: More = always,
    by_level: bool = False,
) -> Draft:
    """Sequence j takes argmin E / q at every level, E the stream "draft" at (start, branch j, level)."""
    drawn: list[list[int]] = [[] for _ in range(k)]
    for level in range(depth):
        for j, text in enumerate(drawn):
            if len(text) == level and more(pair, (*before, *text)):
                law = pair.law((*before, *text))
                branch = j if level >= trunk else 0  # so all share what the trunk's sequence draws
                race = noise.race("draft", 1 + len(before), branch=branch, depth=level, token_ids=law.ids)
                text.append(int(law.ids[np.argmin(race / law.probs)]))
    own = [(j, level) for j, text in enumerate(drawn) for level in range(len(text)) if level >= trunk or j == 0]
    if by_level:
        own.sort(key=lambda place: (place[1], place[0]))
    at = {place: node for node, place in enumerate(own)}
    parents = [at[j if level > trunk else 0, level - 1] if level else -1 for j, level in own]
    tokens = [drawn[j][level] for j, level in own]
    laws = tuple(pair.law((*before, *drawn[j][:level])) for j, level in own)
    return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), laws, "iid")


def rows_after(pair: Pair, before: Context, draft: Draft) -> Rows:
    with np.errstate(divide="ignore"):
        logits = np.log([pair.p[*before, *text] for text in ((), *texts(draft))])
    seq = Sequence(0, [0, *before], 1, Sampling(temperature=1.0), seed=0)
    return Rows(logits, range(len(draft) + 1), seq, draft)


def check_frequencies(counts: dict[Context, int], law: dict[Context, float]) -> None:
    n = sum(counts.values())
    assert not {text for text in counts if law.get(text, 0.0) <= 0}, "an impossible text"
    cells = [(counts.get(text, 0), n * chance) for text, chance in law.items() if chance > 0]
    assert min(expected for _, expected in cells) >= 5
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    assert statistic < chi2.isf(1e-5, len(cells) - 1), (statistic, len(cells))


FORMS = {
    "one sequence": {"k": 1},
    "three sequences": {"k": 3},
    "two after a trunk": {"k": 2, "trunk": 1},
    "levels side by side, some stop early": {"k": 3, "more": keep_then_stop(0.4), "by_level": True},
}


def two_tokens(pair: Pair, n: int, form: str) -> tuple[dict[Context, int], int]:
    """How often each text of two tokens came in ``n`` seeds, and the rounds that took, each with its own draft."""
    counts: dict[Context, int] = {}
    n_rounds = 0
    for seed in range(n):
        text: Context = ()
        noise = Noise(seed)
        while len(text) < 2:
            draft = raced(pair, text, noise, depth=2, **FORMS[form])
            verdict = gls(rows_after(pair, text, draft), draft, noise)
            text = (*text, *draft.tokens[list(verdict.path)].tolist(), verdict.token)
            n_rounds += 1
        counts[text[:2]] = counts.get(text[:2], 0) + 1
    return counts, n_rounds


@pytest.mark.parametrize("form", FORMS)
def test_two_tokens_have_the_target_s_law(form: str) -> None:
    pair = random_pair(3, 5, seed=48, style="dense")
    counts, n_rounds = two_tokens(pair, 1200, form)
    check_frequencies(counts, finished({(): 1.0}, pair.p, 2))
    assert n_rounds < 2200, "drafts hardly ever match: no second token of a round was looked at"


def test_frequencies_would_show_noise_that_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second level with the noise of the first."""
    monkeypatch.setattr(shared_noise, "depths", lambda draft: [0] * len(draft))
    pair = random_pair(3, 5, seed=48, style="dense")
    with pytest.raises(AssertionError):
        check_frequencies(two_tokens(pair, 600, "three sequences")[0], finished({(): 1.0}, pair.p, 2))


def test_tokens_outside_the_draft_law_have_their_share() -> None:
    p, q = np.array([0.2, 0.3, 0.1, 0.4]), np.array([0.7, 0.3, 0.0, 0.0])
    pair = same_everywhere(p, q, 1)
    counts: dict[Context, int] = {}
    for seed in range(2000):
        draft = raced(pair, (), noise := Noise(seed), 2, 1)
        verdict = gls(rows_after(pair, (), draft), draft, noise)
        token = int(draft.tokens[verdict.path[0]]) if verdict.path else verdict.token
        counts[(token,)] = counts.get((token,), 0) + 1
    check_frequencies(counts, {(v,): float(p[v]) for v in range(4)})


@pytest.mark.parametrize(("k", "rate"), [(1, 0.667), (2, 0.792), (4, 0.895)])
def test_match_rate(k: int, rate: float) -> None:
    """The golden vector: simulated figures of related.md, and above the bound; independent noise would give nss's."""
    pair, n = same_everywhere(P, Q, 1), 1500
    n_matched, firsts = 0, {}
    for seed in range(n):
        draft = raced(pair, (), noise := Noise(seed), k, 1)
        n_matched += len(gls(rows_after(pair, (), draft), draft, noise).path)
        first = (int(draft.tokens[0]),)
        firsts[first] = firsts.get(first, 0) + 1
    check_frequencies(firsts, {(v,): float(Q[v]) for v in range(3)})
    slack = 4.5 * np.sqrt(rate * (1 - rate) / n)
    assert abs(n_matched / n - rate) < slack + 5e-4
    others = [k / (sum(max(P[i] / P[j], Q[i] / Q[j]) for i in range(3)) + (k - 1) / P[j]) for j in range(3)]
    assert n_matched / n > sum(others) - slack
    assert n_matched / n - slack > (P * (1 - (1 - Q) ** k)).sum() + 0.03


def test_the_draft_s_probabilities_do_not_matter() -> None:
    """Given tokens and noise: another law over the same ids gives the same text (drafter invariance)."""
    pair = random_pair(3, 3, seed=5, style="dense")
    n_long = 0
    for seed in range(200):
        draft = raced(pair, (), noise := Noise(seed), 3, 3)
        other = tuple(Law(law.ids, law.probs[::-1].copy()) for law in draft.laws or ())
        swapped = Draft(draft.tokens, draft.parents, other, draft.kind)
        verdict = gls(rows_after(pair, (), draft), draft, noise)
        assert gls(rows_after(pair, (), swapped), swapped, noise) == verdict
        n_long += len(verdict.path) == 3
    assert n_long > 20


def test_a_draft_that_raced_on_other_noise_still_gives_the_target_s_law() -> None:
    pair = random_pair(3, 2, seed=6, style="dense")
    counts: dict[Context, int] = {}
    for seed in range(2000):
        draft = raced(pair, (), Noise(seed + 10**6), 2, 1)
        verdict = gls(rows_after(pair, (), draft), draft, Noise(seed))
        token = int(draft.tokens[verdict.path[0]]) if verdict.path else verdict.token
        counts[(token,)] = counts.get((token,), 0) + 1
    check_frequencies(counts, finished({(): 1.0}, pair.p, 1))


def test_equal_models_always_match_with_one_sequence() -> None:
    pair = random_pair(4, 3, seed=2, style="equal")
    for seed in range(50):
        draft = raced(pair, (), noise := Noise(seed), 1, 3)
        assert gls(rows_after(pair, (), draft), draft, noise).path == (0, 1, 2)


def test_greedy_requests_get_the_target_s_choice() -> None:
    pair = random_pair(4, 2, seed=4, style="dense")
    for seed in range(50):
        draft = raced(pair, (), noise := Noise(seed), 3, 2)
        verdict = RULES["gls"].rule(pair.rows(draft, Sampling()), draft, noise)
        text = (*draft.tokens[list(verdict.path)].tolist(), verdict.token)
        assert all(token == pair.p[text[:i]].argmax() for i, token in enumerate(text))


def test_an_empty_draft_gives_a_token_of_the_target() -> None:
    pair = random_pair(3, 0, seed=1, style="dense")
    empty = Draft(np.empty(0, np.int32), np.empty(0, np.int32), (), "iid")
    verdicts = {gls(rows_after(pair, (), empty), empty, Noise(seed)) for seed in range(200)}
    assert verdicts == {Verdict((), token) for token in range(3)}


def test_sequences_are_numbered_by_where_they_part() -> None:
    """Not by how far they go: where sequence 0 stops first, it is still 0, whatever the order of nodes."""

    def numbers(parents: list[int]) -> list[int]:
        return sequences(Draft(np.zeros(len(parents), np.int32), np.array(parents, np.int32), None, "iid"))

    assert numbers([-1, 0, -1, 2, -1, 4]) == [0, 0, 1, 1, 2, 2]
    assert numbers([-1, -1, -1, 0, 1, 2]) == [0, 1, 2, 0, 1, 2]
    assert numbers([-1, -1, -1, 1, 2, 3]) == [0, 1, 2, 1, 2, 1]  # sequence 0 has one token, 1 has three
    assert numbers([-1, 0, 1, 0, 3]) == [0, 0, 0, 1, 1]  # a trunk of one
    for lengths in itertools.product((1, 2, 3), repeat=3):
        own = sorted(((level, j) for j, n in enumerate(lengths) for level in range(n)))
        at = {place: node for node, place in enumerate(own)}
        assert numbers([at[level - 1, j] if level else -1 for level, j in own]) == [j for _, j in own]
