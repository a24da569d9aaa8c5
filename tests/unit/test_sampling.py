"""Log-weights, options and the choice of a token, against slow definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wager.errors import OptionError
from wager.sampling import (
    Noise,
    arrivals,
    check_ids,
    choose,
    logprobs,
    probabilities,
    race_plainly,
    scores,
    top_indices,
)
from wager.types import Sampling

RNG = np.random.default_rng(1)
LOGITS = (RNG.normal(size=40) * 2).astype(np.float32)


def _scores(sampling: Sampling, logits: np.ndarray = LOGITS, tokens=(1, 2), n_prompt: int = 2, banned=()) -> np.ndarray:
    return np.asarray(scores(logits, sampling, tokens=list(tokens), n_prompt=n_prompt, banned=banned))


def _law(sampling: Sampling, logits: np.ndarray = LOGITS) -> np.ndarray:
    return probabilities(_scores(sampling, logits))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max())
    return e / e.sum()


def test_greedy_without_options_costs_no_copy() -> None:
    assert np.shares_memory(_scores(Sampling()), LOGITS)


def test_inputs_are_never_written() -> None:
    before = LOGITS.copy()
    _scores(Sampling(temperature=0.5, top_k=3, top_p=0.8, min_p=0.1, repetition_penalty=2, logit_bias={0: 1.0}))
    assert np.array_equal(before, LOGITS)


def test_temperature() -> None:
    np.testing.assert_allclose(_law(Sampling(temperature=0.7)), _softmax(LOGITS / 0.7), rtol=1e-6)


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-3])
def test_tiny_temperature_is_greedy(temperature: float) -> None:
    x = _scores(Sampling(temperature=temperature))
    assert choose(x, Noise(3), 0, temperature) == int(np.argmax(LOGITS))


@pytest.mark.parametrize("k", [1, 3, 39, 40, 99])
def test_top_k(k: int) -> None:
    kept = np.flatnonzero(_law(Sampling(temperature=1, top_k=k)))
    assert set(kept) == set(np.argsort(-LOGITS)[:k])


def test_top_k_ties_keep_the_lowest_ids() -> None:
    logits = np.array([0, 1, 2, 1, 1, 0], np.float32)
    assert np.flatnonzero(_law(Sampling(temperature=1, top_k=3), logits)).tolist() == [1, 2, 3]
    assert top_indices(logits, 4).tolist() == [2, 1, 3, 4]
    assert top_indices(np.zeros(5, np.float32), 2).tolist() == [0, 1]
    assert top_indices(logits, 0).tolist() == []


def _nucleus(weights: np.ndarray, top_p: float) -> set[int]:
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    goal = top_p * math.fsum(weights)
    return set(order[: next(n for n in range(1, len(weights) + 1) if math.fsum(weights[order[:n]]) >= goal)])


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("scale", [0.0, 0.1, 2.0, 30.0])
def test_top_p_is_the_smallest_set(top_p: float, scale: float) -> None:
    for seed in range(5):
        logits = (np.random.default_rng(seed).normal(size=60) * scale).astype(np.float32)
        kept = set(np.flatnonzero(_law(Sampling(temperature=1, top_p=top_p), logits)).tolist())
        assert kept == _nucleus(np.exp(logits.astype(np.float64) - logits.max()), top_p)


def test_top_p_counts_mass_after_top_k() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    # of the two left (4/7, 3/7) the first has 0.57: enough for 0.5, not for 0.6
    assert np.flatnonzero(_law(Sampling(temperature=1, top_k=2, top_p=0.5), logits)).tolist() == [0]
    assert np.flatnonzero(_law(Sampling(temperature=1, top_k=2, top_p=0.6), logits)).tolist() == [0, 1]


@pytest.mark.parametrize("min_p", [0.05, 0.5, 1.0])
def test_min_p(min_p: float) -> None:
    p = _softmax(LOGITS)
    kept = np.flatnonzero(_law(Sampling(temperature=1, min_p=min_p)))
    assert set(kept) == set(np.flatnonzero(p >= min_p * p.max() * (1 - 1e-9)))


def test_repetition_penalty_sees_prompt_and_output() -> None:
    logits = np.array([2, -2, 2, 2], np.float32)
    x = _scores(Sampling(repetition_penalty=2), logits, tokens=[0, 0, 1, 2], n_prompt=2)
    assert x.tolist() == [1, -4, 1, 2]


def test_presence_and_frequency_see_the_output_only() -> None:
    logits = np.zeros(4, np.float32)
    x = _scores(Sampling(presence_penalty=1, frequency_penalty=0.5), logits, tokens=[0, 0, 1, 2, 2], n_prompt=2)
    assert x.tolist() == [0, -1.5, -2, 0]


def test_bias_bans_and_forces() -> None:
    assert choose(_scores(Sampling(logit_bias={7: 1e4})), Noise(0), 0, 0) == 7
    best = int(np.argmax(LOGITS))
    assert choose(_scores(Sampling(logit_bias={best: -math.inf})), Noise(0), 0, 0) == int(np.argsort(-LOGITS)[1])
    forced = Sampling(temperature=1, logit_bias={5: math.inf})
    assert all(choose(_scores(forced), Noise(s), 0, 1) == 5 for s in range(20))


def test_min_tokens_bans_until_reached() -> None:
    sampling = Sampling(min_tokens=2, temperature=1)
    assert _scores(sampling, tokens=[1, 2, 3], banned=[4, 5])[[4, 5]].tolist() == [-math.inf] * 2
    assert np.all(np.isfinite(_scores(sampling, tokens=[1, 2, 3, 4], banned=[4, 5])))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_left_is_an_error(temperature: float) -> None:
    sampling = Sampling(temperature=temperature, logit_bias={0: -math.inf}, min_tokens=1)
    with pytest.raises(OptionError, match="no token is left"):
        choose(_scores(sampling, np.zeros(2, np.float32), banned=[1]), Noise(0), 0, temperature)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(OptionError, match="`logit_bias` names token 40"):
        _scores(Sampling(logit_bias={40: 1.0}))
    with pytest.raises(OptionError, match="`stop_token_ids` names token -1"):
        check_ids(Sampling(stop_token_ids=(-1,)), 40)
    check_ids(Sampling(stop_token_ids=(39,), logit_bias={0: 1.0}), 40)


def test_nan_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="NaN"):
        choose(np.array([0, np.nan, 1], np.float32), Noise(0), 0, 0)


def test_greedy_ties_go_to_the_lowest_id() -> None:
    logits = np.array([0, 3, 3, 1], np.float32)
    assert choose(_scores(Sampling(), logits), Noise(0), 0, 0) == 1
    assert choose(_scores(Sampling(logit_bias={2: 0.0}), logits), Noise(0), 0, 0) == 1


@pytest.mark.parametrize("alive", [0.001, 0.4, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 1e4])
def test_fast_race_is_the_plain_race(scale: float, alive: float) -> None:
    rng = np.random.default_rng(2)
    for position in range(25):
        x = rng.normal(size=20_000) * scale
        x[rng.random(len(x)) >= alive] = -np.inf
        x[7] = 0
        assert choose(x, Noise(1), position, 1) == race_plainly(x, Noise(1), position)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_arrivals_start_with_the_choice(temperature: float) -> None:
    x = _scores(Sampling(temperature=temperature, top_k=5, logit_bias={3: -math.inf}))
    for position in range(50):
        first = arrivals(x, Noise(2), position, temperature, 3).tolist()
        assert len(set(first)) == 3
        for i, token in enumerate(first):  # each is the choice among what the earlier ones left
            left = np.array(x)
            left[first[:i]] = -np.inf
            assert choose(left, Noise(2), position, temperature) == token
        assert arrivals(x, Noise(2), position, temperature, 1).tolist() == first[:1]
    assert len(arrivals(_scores(Sampling(temperature=1, top_k=2)), Noise(0), 0, 1, 9)) == 2


def test_only_surviving_tokens_matter() -> None:
    x = RNG.normal(size=30_000)
    token = choose(x, Noise(4), 9, 1)
    few = np.full(len(x), -np.inf)
    few[[token, 5, 6]] = x[[token, 5, 6]]
    assert choose(few, Noise(4), 9, 1) == token


def test_choice_has_the_law_of_the_scores() -> None:
    """Chi-square over 20000 seeds and 6 tokens; false-alarm rate 1e-4 (5 degrees of freedom)."""
    sampling = Sampling(temperature=0.8, top_k=6)
    x, p = _scores(sampling), _law(sampling)
    counts = np.zeros(len(p))
    for seed in range(20_000):
        counts[choose(x, Noise(seed), 3, 0.8)] += 1
    kept = p > 0
    assert counts[~kept].sum() == 0
    expected = 20_000 * p[kept]
    assert ((counts[kept] - expected) ** 2 / expected).sum() < 25.7


def test_choices_at_two_positions_are_independent() -> None:
    """Chi-square of the joint counts over 20000 samples; false-alarm rate 1e-4 (8 degrees of freedom)."""
    p = np.array([0.5, 0.3, 0.2])
    joint = np.zeros((3, 3))
    for sample in range(20_000):
        noise = Noise(0, sample)
        joint[choose(np.log(p), noise, 0, 1), choose(np.log(p), noise, 1, 1)] += 1
    expected = 20_000 * np.outer(p, p)
    assert ((joint - expected) ** 2 / expected).sum() < 31.9


def test_logprobs_are_the_log_softmax_of_raw_logits() -> None:
    got = logprobs(LOGITS, 3, 4)
    want = np.log(_softmax(LOGITS))
    assert got.token == 3
    assert got.logprob == pytest.approx(want[3])
    order = np.argsort(-want)[:4]
    assert [i for i, _ in got.top] == order.tolist()
    assert [v for _, v in got.top] == pytest.approx(want[order].tolist())
    assert logprobs(LOGITS, 3, 0).top == ()


def test_one_number_and_many_races_at_once_are_those_of_one_by_one() -> None:
    for seed, start, depth in ((0, 1, 0), (2**64 - 1, 77, 3), (12345, 10**6, 9)):
        noise = Noise(seed, 4)
        assert noise.uniform_at("accept", start, branch=2, depth=depth) == noise.uniform(
            "accept", start, branch=2, depth=depth
        )
        ids = np.array([0, 3, 49151])
        rows = noise.races("draft", start, [0, 5, 2], depth=depth, token_ids=ids)
        for row, branch in zip(rows, (0, 5, 2), strict=True):
            assert np.array_equal(row, noise.race("draft", start, branch=branch, depth=depth, token_ids=ids))
