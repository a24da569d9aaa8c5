"""Lossy rules are lossy, are exact at the neutral value of their knob, and keep the bounds they claim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from test_golden import P, Q, decide, same_everywhere

from wager.errors import OptionError
from wager.proof import bias, distance, emitted, finished, iid, n_accepted, outcomes, random_pair
from wager.sampling import Noise
from wager.types import F64, Sampling
from wager.verify import LOSSY, RULES, rule_named
from wager.verify.base import Decide
from wager.verify.lossy import bernoulli_kl, gamma_exact, gamma_taylor, kl, mentored_law, surrogate

# a value of the knob, and the least total variation from the target there (depth 2, two random models)
BIASED = {
    "lossy-cactus": (0.2, 0.03),
    "lossy-cactus-taylor": (0.2, 0.03),
    "lossy-typical": (0.09, 0.1),
    "lossy-mentored": (0.1, 0.03),
    "lossy-ensemble": (0.5, 0.05),
}
RISING = {  # values along which acceptance must not fall
    "lossy-cactus": (0.0, 1e-3, 0.05, 0.2, 1.0, 20.0, math.inf),
    "lossy-cactus-taylor": (0.0, 1e-3, 0.05, 0.2, 1.0, 20.0, math.inf),
    "lossy-typical": (math.inf, 2.0, 0.5, 0.09, 0.01, 0.0),
    "lossy-mentored": (0.0, 1e-6, 1e-3, 0.05, 0.3, 1.0, 5.0, math.inf),
    "lossy-ensemble": (1.0, 0.9, 0.5, 0.1, 0.0),
}


def lossy(name: str, value: float) -> Decide:
    found = rule_named(f"{name}:{value}").decide
    assert found is not None
    return found


def laws(n: int, sizes: tuple[int, ...] = (2, 3, 4, 8), *, seed: int = 0, style: str = "mixed") -> Iterator[tuple]:
    for i in range(n):
        pair = random_pair(sizes[i % len(sizes)], 0, seed=seed + i, style=style)
        yield pair.p[()], pair.q[()]


def acceptance(rule: Decide, p: F64, q: F64) -> float:
    pair = same_everywhere(p, q, 1)
    return n_accepted(emitted(rule, pair, iid(pair, (1,))))


def first_token(rule: Decide, p: F64, q: F64) -> F64:
    pair = same_everywhere(p, q, 1)
    law = finished(emitted(rule, pair, iid(pair, (1,))), pair.p, 1)
    return np.array([law.get((v,), 0.0) for v in range(len(p))])


def test_every_family_is_here() -> None:
    assert set(BIASED) == set(RISING) == set(LOSSY)
    assert not any(rule_named(name).lossless for name in LOSSY)
    assert not set(LOSSY) & set(RULES)


@pytest.mark.parametrize("name", BIASED)
def test_it_fails_the_proof_of_losslessness(name: str) -> None:
    value, least = BIASED[name]
    for seed in (0, 1):
        pair = random_pair(3, 2, seed=seed, style="dense")
        found = bias(lossy(name, value), pair, iid(pair, (2,)))
        assert found > least, found
        assert bias(decide("standard"), pair, iid(pair, (2,))) < 1e-12


@pytest.mark.parametrize("name", LOSSY)
def test_at_the_neutral_value_it_is_exact(name: str) -> None:
    neutral = lossy(name, LOSSY[name].neutral)
    for seed in (2, 3):
        pair = random_pair(3, 3, seed=seed)
        assert bias(neutral, pair, iid(pair, (3,))) < 1e-12


@pytest.mark.parametrize("name", [name for name in LOSSY if name != "lossy-typical"])
def test_at_the_neutral_value_it_decides_as_standard_does_draw_for_draw(name: str) -> None:
    """With a request's own noise: the same path and token for each of 600 drafts (typical accepts nothing there)."""
    neutral = rule_named(f"{name}:{LOSSY[name].neutral}").rule
    n_long = 0
    for seed in range(3):
        pair = random_pair(4, 2, seed=seed)
        for i, (_, draft) in enumerate(itertools.islice(itertools.cycle(iid(pair, (2,))), 200)):
            noise = Noise(1000 * seed + i)
            verdict = neutral(pair.rows(draft), draft, noise)
            assert verdict == RULES["standard"].rule(pair.rows(draft), draft, noise)
            n_long += len(verdict.path) == 2
    assert 50 < n_long < 550


@pytest.mark.parametrize("name", RISING)
def test_acceptance_rises_with_the_knob(name: str) -> None:
    for p, q in laws(12, (2, 3, 4)):
        found = [acceptance(lossy(name, value), p, q) for value in RISING[name]]
        assert np.all(np.diff(found) >= -1e-9), (p, q, found)
        if name != "lossy-typical":
            assert found[0] == pytest.approx(np.minimum(p, q).sum(), abs=1e-12)
    found = [acceptance(lossy(name, value), P, Q) for value in RISING[name]]
    assert found[-1] > found[0] + 0.2


@pytest.mark.parametrize("name", LOSSY)
def test_the_law_that_is_reported_is_the_one_that_comes_out(name: str) -> None:
    """``Lossy.law`` is what `wager rules` measures a rule's divergence with; here it meets the rule itself."""
    tolerance = 1e-6 if name == "lossy-mentored" else 1e-10  # its multipliers are found to that
    for value in {RISING[name][1], RISING[name][3], LOSSY[name].default, LOSSY[name].neutral}:
        for p, q in laws(10, (2, 3, 4), seed=30):
            law = LOSSY[name].law(p, q, value)
            assert law.sum() == pytest.approx(1, abs=1e-12)
            assert first_token(lossy(name, value), p, q) == pytest.approx(law, abs=tolerance), (p, q, value)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01, 0.2, 0.75, 3.0])
def test_cactus_keeps_the_budget_of_each_drafted_token(delta: float) -> None:
    """The exact root always, and no larger one does; Taylor's where gamma <= 1/2, but not above."""
    n_over = 0
    for p, _ in laws(80, seed=5):
        for x in np.flatnonzero(p > 0).tolist():
            exact, taylor = (gamma(float(p[x]), delta) for gamma in (gamma_exact, gamma_taylor))
            assert p[x] <= exact <= 1
            assert kl(surrogate(p, x, exact), p) <= delta + 1e-12
            if exact < 1 - 1e-6 and delta >= 1e-6:
                assert bernoulli_kl(exact + 1e-6, p[x]) > delta
            over = kl(surrogate(p, x, taylor), p) > delta + 1e-12
            assert not (over and taylor <= 0.5)
            n_over += over
            assert surrogate(p, x, exact).sum() == pytest.approx(1, abs=1e-12)
    assert n_over > 0 or delta not in (0.2, 0.75)


def test_gammas_of_the_notes() -> None:
    """core.md section 9."""
    assert gamma_exact(0.35, 0.2) == pytest.approx(0.661, abs=5e-4)
    assert gamma_taylor(0.35, 0.2) == pytest.approx(0.652, abs=5e-4)
    assert gamma_exact(0.7, 0.2) == pytest.approx(0.950, abs=5e-4)
    assert gamma_taylor(0.7, 0.2) == pytest.approx(0.990, abs=5e-4)


@pytest.mark.parametrize("gamma", [gamma_taylor, gamma_exact])
def test_gammas_at_the_ends(gamma) -> None:
    """A budget of 0 keeps p to the bit; a token that p forbids stays forbidden, even where the budget is infinite."""
    for p in (0.0, 5e-324, 1e-9, 0.3, 0.999999, 1.0):
        assert gamma(p, 0.0) == p
    assert gamma(0.0, math.inf) == 0
    assert gamma(0.5, math.inf) == 1


@pytest.mark.parametrize("name", ["lossy-cactus", "lossy-cactus-taylor"])
def test_cactus_is_no_further_from_the_target_than_the_draft_is(name: str) -> None:
    """KL(output || p) <= KL(q || p), although it may exceed the budget: a mixture over the drafted token."""
    n_over = 0
    for p, q in laws(150, seed=60):
        for delta in (0.01, 0.2, 1.0):
            far = kl(LOSSY[name].law(p, q, delta), p)
            assert far <= kl(q, p) + 1e-9
            n_over += far > delta + 1e-9
    assert n_over > 0


@pytest.mark.parametrize("budget", [1e-6, 0.01, 0.1, 0.5, 2.5])
def test_mentored_keeps_its_budget(budget: float) -> None:
    for p, q in laws(80, seed=90):
        law = mentored_law(p, q, budget)
        assert law.sum() == pytest.approx(1, abs=1e-12)
        assert np.all(law >= 0)
        assert kl(p, law) <= budget + 1e-9, (p, q)
        assert np.minimum(q, law).sum() >= np.minimum(q, p).sum() - 1e-9


@pytest.mark.parametrize("budget", [0.01, 0.1, 0.5, 2.5])
def test_mentored_is_the_best_within_its_budget(budget: float) -> None:
    """Against all laws of three tokens on a grid of 1/200 that keep the budget; with tokens that p or q forbid too."""
    grid = np.array([(a, b, 200 - a - b) for a in range(201) for b in range(201 - a)]) / 200
    n_spent = 0
    for style in ("dense", "peaked", "zeros", "disjoint", "certain-draft"):
        for p, q in laws(6, (3,), seed=11, style=style):
            some = p > 0
            with np.errstate(divide="ignore"):
                far = (p[some] * np.log(p[some] / grid[:, some])).sum(axis=1)
            best = np.minimum(q, grid[far <= budget]).sum(axis=1).max()
            law = mentored_law(p, q, budget)
            assert np.minimum(q, law).sum() >= best - 1e-7, (p, q)
            assert kl(p, law) <= budget + 1e-9
            n_spent += kl(p, law) > 0.99 * budget
    assert n_spent > 5


def test_mentored_uses_tokens_that_the_target_forbids_once_they_cost_nothing() -> None:
    """The budget is about p's tokens only; (.495, .5, .005) is the best law, and mass on the first is not wasted."""
    p, q = np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.5, 0.0])
    law = mentored_law(p, q, 0.5 * math.log(100))
    assert law == pytest.approx([0.495, 0.5, 0.005], abs=1e-4)


def test_ensemble_is_a_mixture() -> None:
    assert first_token(lossy("lossy-ensemble", 0.25), P, Q) == pytest.approx(0.25 * P + 0.75 * Q)


@pytest.mark.parametrize("value", [0.09, 0.01, 0.3])
def test_typical_takes_the_longest_accepted_path_of_a_tree(value: float) -> None:
    """By its definition: every node whose path is typical all along is a candidate."""
    for seed in range(4):
        pair = random_pair(3, 2, seed=seed, style="dense")
        for _, draft in iid(pair, (2, 2)):
            rows = pair.rows(draft)
            passed: dict[int, float] = {-1: 0.0}
            for node in range(len(draft)):
                parent = int(draft.parents[node])
                p = rows[parent]
                chance = p[draft.tokens[node]]
                if parent in passed and chance > min(value, math.sqrt(value) * math.exp((p * np.log(p)).sum())):
                    passed[node] = passed[parent] + math.log(chance)
            deepest = max(len(rows.path(node)) for node in passed)
            likely = max(passed[node] for node in passed if len(rows.path(node)) == deepest)
            for verdict in outcomes(lossy("lossy-typical", value), rows, draft):
                node = verdict.path[-1] if verdict.path else -1
                assert len(verdict.path) == deepest
                assert passed[node] == pytest.approx(likely)


@pytest.mark.parametrize("name", LOSSY)
def test_greedy_text_is_the_same_whatever_the_knob(name: str) -> None:
    pair = random_pair(4, 2, seed=3)
    greedy = {context: np.eye(4)[int(p.argmax())] for context, p in pair.p.items()}
    for value in RISING[name]:
        law = finished(emitted(lossy(name, value), pair, iid(pair, (2,)), sampling=Sampling()), greedy, 3)
        assert distance(law, finished({(): 1.0}, greedy, 3)) < 1e-12


def test_a_knob_outside_its_range_is_refused() -> None:
    for spec in ("lossy-cactus:-1", "lossy-ensemble:1.5", "lossy-typical:nan", "lossy-mentored:much"):
        with pytest.raises(OptionError, match="give"):
            rule_named(spec)
