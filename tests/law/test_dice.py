"""Real dice: right frequencies, a value of its own for every question, nothing shared with the walk or with drafts.

Every statistical test has a false-alarm rate of 1e-5.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, norm
from test_golden import P, Q, same_everywhere

from wager.proof import Drafts, Pair, emitted, iid, likeliest, n_accepted, random_pair, without_replacement
from wager.sampling import Noise, Stream
from wager.types import F64
from wager.verify import LOSSY, RULES, RuleInfo, rule_named
from wager.verify.dice import NoiseDice, invert


class Recorded(Noise):
    """Noise that remembers what it was asked, and refuses what belongs to the walk and to drafts."""

    __slots__ = ("asked",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.asked: list[tuple[str, int, int, int]] = []

    def exponential(self, position, token_ids=None, *, vocab_size=0) -> F64:  # type: ignore[no-untyped-def]
        raise AssertionError("the token stream belongs to the walk")

    def race(self, stream, start, *, branch=0, depth=0, token_ids=None, vocab_size=0) -> F64:  # type: ignore[no-untyped-def]
        raise AssertionError("races belong to drafts")

    def races(self, stream, start, branches, *, depth=0, token_ids) -> F64:  # type: ignore[no-untyped-def]
        raise AssertionError("races belong to drafts")

    def uniform(self, stream: Stream, start: int, *, branch: int = 0, depth: int = 0, n: int = 1) -> F64:
        assert n == 1
        self.asked.append((stream, start, branch, depth))
        return super().uniform(stream, start, branch=branch, depth=depth, n=n)

    def uniform_at(self, stream: Stream, start: int, *, branch: int = 0, depth: int = 0) -> float:
        return float(self.uniform(stream, start, branch=branch, depth=depth)[0])


def test_accept_has_its_frequency() -> None:
    n = 8000
    for probability in (0.02, 0.3, 0.95):
        found = sum(NoiseDice(Noise(7), start).accept(probability) for start in range(1, n + 1))
        z = (found - n * probability) / np.sqrt(n * probability * (1 - probability))
        assert abs(z) < norm.isf(5e-6)


def test_accept_is_certain_at_the_ends() -> None:
    for start in range(1, 500):
        dice = NoiseDice(Noise(3), start)
        assert dice.accept(1.0)
        assert dice.accept(np.inf)
        assert not dice.accept(0.0)
        assert not dice.accept(-1.0)


def test_draw_has_its_frequencies() -> None:
    weights, n = np.array([0.0, 3.0, 0.0, 1.0, 0.5, 0.0]), 8000
    dice = NoiseDice(Noise(11), 5)  # one round: its questions are independent of each other
    counts = np.bincount([dice.draw(weights) for _ in range(n)], minlength=6)
    assert counts[weights == 0].sum() == 0
    expected = n * weights[weights > 0] / weights.sum()
    assert ((counts[weights > 0] - expected) ** 2 / expected).sum() < chi2.isf(1e-5, 2)


def test_questions_of_a_round_are_independent() -> None:
    """Pairs of one acceptance and the draw after it, as in a rejection: four cells."""
    n, counts = 8000, np.zeros((2, 2))
    for start in range(1, n + 1):
        dice = NoiseDice(Noise(2), start)
        counts[int(dice.accept(0.4)), dice.draw(np.array([0.3, 0.7]))] += 1
    expected = n * np.outer([0.6, 0.4], [0.3, 0.7])
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-5, 3)


@pytest.mark.parametrize("n", [1, 5, 1024, 1025, 5000])
def test_inversion_is_that_of_the_running_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    weights = np.where(rng.random(n) < 0.5, rng.random(n), 0.0)
    weights[rng.integers(n)] = 1.0
    sums = np.cumsum(weights)
    for u in [*rng.random(200), 2.0**-53, 1 - 2.0**-53]:
        index = invert(weights, float(u))
        assert weights[index] > 0
        assert sums[index] - weights[index] - 1e-9 <= u * sums[-1] <= sums[index] + 1e-9


def drafts_for(info: RuleInfo, pair: Pair) -> Drafts:
    if "iid" in info.kinds:
        return iid(pair, (2, 2) if info.trees else (2,))
    if "without_replacement" in info.kinds:
        return without_replacement(pair, (2, 1))
    return likeliest(pair, (2, 2))


@pytest.mark.parametrize("name", [*(name for name, info in RULES.items() if info.decide is not None), *LOSSY])
def test_no_question_has_noise_of_another_or_of_the_walk(name: str) -> None:
    """Over all rounds of a request: one question, one address; streams "accept" and "residual" only."""
    info, pair, noise = rule_named(name), random_pair(3, 2, seed=3, style="dense"), Recorded(1)
    for _, draft in drafts_for(info, pair):
        info.rule(pair.rows(draft), draft, noise)
        assert noise.asked, "no rule does without chance"
        assert len(set(noise.asked)) == len(noise.asked)
        assert {stream for stream, *_ in noise.asked} <= {"accept", "residual"}
        assert {start for _, start, *_ in noise.asked} == {pair.rows(draft).start}
        noise.asked.clear()


def test_streams_have_no_value_in_common() -> None:
    """10 000 values of each, told apart to 1e-13: two equal ones come by chance once in 10^4 seeds."""
    noise = Noise(5)
    accept = [float(noise.uniform("accept", start, depth=d)[0]) for start in range(1, 101) for d in range(1, 101)]
    residual = [float(noise.uniform("residual", start, depth=d)[0]) for start in range(1, 101) for d in range(1, 101)]
    walk = np.exp(-np.concatenate([noise.exponential(t, vocab_size=100) for t in range(100)]))
    draft = np.exp(-np.concatenate([noise.race("draft", t, vocab_size=100) for t in range(1, 101)]))
    values = np.round(np.concatenate([accept, residual, walk, draft]), 13)  # exp and log leave an error of 1e-16
    assert len(np.unique(values)) == len(values)


@pytest.mark.parametrize("name", ["standard", "block", "spectr", "traversal"])
def test_acceptance_with_real_noise_is_the_enumerated_one(name: str) -> None:
    """The dice that rules are proved with and those of requests mean the same: 2000 rounds."""
    info, pair, n = RULES[name], same_everywhere(P, Q, 2), 2000
    assert info.decide is not None
    drafts = list(iid(pair, (2, 2) if info.trees else (2,)))
    mean = n_accepted(emitted(info.decide, pair, drafts))
    rng = np.random.default_rng(1)
    picked = rng.choice(len(drafts), n, p=np.array([chance for chance, _ in drafts]))
    found = []
    for seed, i in enumerate(picked.tolist()):
        draft = drafts[i][1]
        found.append(len(info.rule(pair.rows(draft), draft, Noise(seed)).path))
    assert abs(np.mean(found) - mean) < norm.isf(5e-6) * np.std(found) / np.sqrt(n)
