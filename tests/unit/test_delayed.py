"""Delayed trees by running averages: the expectation is what happens, the time is what it costs, the best form wins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from wager.cost import StepCost
from wager.policies import delayed
from wager.policies.acceptance import Acceptance
from wager.policies.delayed import Delayed, Form, forms, n_rows
from wager.tree import depths
from wager.types import Draft, Limits, Sampling, Sequence, Verdict

FAST = {2: 0.015, 4: 0.016, 8: 0.018, 16: 0.023, 32: 0.036}
SLOW = {2: 0.015, 4: 0.03, 8: 0.06, 16: 0.12, 32: 0.24}


class Drafter:
    name, kind, has_laws = "simulated", "coupled", False

    def __init__(self, token_s: float) -> None:
        self._token_s = token_s

    def seconds(self, n_tokens: int) -> float:
        return self._token_s * n_tokens


def tree_of(form: Form) -> Draft:
    """The trunk, then branch by branch."""
    parents = list(range(-1, form.trunk - 1))
    for _ in range(form.width if form.branch else 0):
        parents += [form.trunk - 1, *range(len(parents), len(parents) + form.branch - 1)]
    return Draft(np.arange(len(parents), dtype=np.int32), np.array(parents, np.int32))


def n_expected(form: Form, chances: list[list[float]]) -> float:
    (found,) = delayed.n_expected(np.array([form]), np.array(chances))
    return float(found)


def seconds(form: Form, cost: StepCost, drafter: Drafter) -> float:
    """Of a step of one sequence; a draft of one token fills the second row."""
    (rows,) = n_rows(np.array([form]), forks=True)
    return cost.predict(max(2, int(rows)), 1, 1) + drafter.seconds(form.depth)


def fitting(cost: StepCost) -> list[Form]:
    return [form for form in forms(4) if n_rows(np.array([form]), forks=True)[0] <= cost.widths[-1]]


def accepted(draft: Draft, chances: list[list[float]], rng: np.random.Generator) -> Verdict:
    """Walk down: at every node at most one child is the chosen token, child r with chance ``chances[depth][r]``."""
    path: list[int] = []
    while True:
        below = [i for i, parent in enumerate(draft.parents.tolist()) if parent == (path[-1] if path else -1)]
        sums = np.cumsum([chances[len(path)][rank] for rank in range(len(below))])
        hit = int(np.searchsorted(sums, rng.random(), side="right"))
        if hit >= len(below):
            return Verdict(tuple(path), 0)
        path.append(below[hit])


def calibrated(curve: dict[int, float]) -> StepCost:
    cost = StepCost(curve)
    cost.calibrate([(w, c, curve[w]) for w, c in cost.calibration_plan()])
    return cost


def test_forms() -> None:
    found = forms(4)
    assert len(set(found)) == len(found) == 17 + 3 * 9 * 8
    assert found[0] == Form(1, 0, 0)
    assert {f.width for f in found} == {1, 2, 3, 4}
    assert forms(1) == [Form(1, 0, n) for n in range(17)]


@pytest.mark.parametrize("form", [Form(1, 0, 0), Form(1, 0, 5), Form(2, 0, 3), Form(3, 2, 2), Form(4, 8, 1)])
def test_the_expectation_is_what_happens(form: Form) -> None:
    """20000 rounds, seed 0: five standard errors of the mean."""
    rng = np.random.default_rng(0)
    chances = [[0.6 - 0.02 * d, 0.2, 0.1, 0.05] for d in range(16)]
    draft = tree_of(form)
    counts = [1 + len(accepted(draft, chances, rng).path) for _ in range(20000)]
    error = np.std(counts) / len(counts) ** 0.5
    assert n_expected(form, chances) == pytest.approx(np.mean(counts), abs=5 * error + 1e-9)


def test_the_expectation_in_closed_form() -> None:
    even = [[0.5, 0.25]] * 16
    assert n_expected(Form(1, 0, 3), even) == 1 + 0.5 + 0.25 + 0.125
    assert n_expected(Form(2, 1, 2), even) == 1 + 0.5 + 0.5 * 0.75 * (1 + 0.5)
    assert n_expected(Form(1, 0, 0), even) == 1


def test_the_expectation_is_the_sum_over_nodes() -> None:
    """Every form by the product over each node's path."""
    rng = np.random.default_rng(0)
    chances = (rng.random((16, 4)) / 4).tolist()
    chances[5][0] = 1e-9  # hardly anything is accepted below
    for form in forms(4):
        want, trunk = 1.0, [chances[d][0] for d in range(form.trunk)]
        want += sum(np.cumprod(trunk))
        for rank in range(form.width):
            path = [chances[form.trunk][rank], *(chances[d][0] for d in range(form.trunk + 1, form.depth))]
            want += float(np.prod(trunk) * sum(np.cumprod(path[: form.branch])))
        assert n_expected(form, chances) == pytest.approx(want), form


def test_rows() -> None:
    table = np.array([Form(3, 2, 2), Form(1, 0, 0), Form(1, 0, 4)])
    assert n_rows(table, forks=True).tolist() == [15, 1, 5]
    assert n_rows(table, forks=False).tolist() == [9, 1, 5]


def test_a_step_takes_longer_the_more_it_drafts() -> None:
    cost = calibrated(FAST)
    times = {form: seconds(form, cost, Drafter(0.001)) for form in fitting(cost)}
    for form, other in itertools.product(times, times):
        if all(a <= b for a, b in zip(form, other, strict=True)):
            assert times[form] <= times[other] + 1e-12


def test_limits_of_a_form() -> None:
    """Where a second branch is accepted as often as the first, and rows cost nothing, it is drafted."""
    policy, seqs = Delayed(calibrated(dict.fromkeys(FAST, 0.02)), width=2), [Sequence(0, [1], 1, Sampling(), 0)]
    rng, chances = np.random.default_rng(0), [[0.45, 0.45]] * 16
    for _ in range(400):
        (limit,) = policy.limits(seqs, Drafter(1e-6))
        draft = tree_of(Form(limit.width, limit.trunk, limit.depth - limit.trunk))
        assert limit.n_nodes == limit.width * limit.depth
        policy.observe(seqs, policy.cut(seqs, [draft]), [accepted(draft, chances, rng)])
    assert limit.width == 2
    assert limit.depth > limit.trunk


@pytest.mark.parametrize("curve", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("chance", [[0.1, 0.05, 0.02, 0.01], [0.5, 0.3, 0.1, 0.05], [0.9, 0.05, 0.02, 0.01]], ids=str)
def test_within_eight_percent_of_the_best_form(curve: dict[int, float], chance: list[float]) -> None:
    """500 steps after 100; step times as measured, a token drafted in a tenth of the shortest. Seed 0."""
    cost, drafter, rng = calibrated(curve), Drafter(0.0015), np.random.default_rng(0)
    policy, seqs, chances = Delayed(cost, width=4), [Sequence(0, [1], 1, Sampling(), 0)], [chance] * 16
    n_tokens, time_s = 0.0, 0.0
    for round_ in range(600):
        (limit,) = policy.limits(seqs, drafter)
        form = Form(limit.width, limit.trunk, limit.depth - limit.trunk)
        draft = tree_of(form)
        assert max(depths(draft), default=0) == limit.depth
        policy.observe(seqs, [draft], [accepted(draft, chances, rng)])
        if round_ >= 100:
            n_tokens, time_s = n_tokens + n_expected(form, chances), time_s + seconds(form, cost, drafter)
    best = max(n_expected(form, chances) / seconds(form, cost, drafter) for form in fitting(cost))
    assert n_tokens / time_s > 0.92 * best


def test_nothing_is_drafted_where_nothing_is_accepted_and_it_is_tried_again() -> None:
    policy, seqs = Delayed(calibrated(SLOW), width=4), [Sequence(0, [1], 1, Sampling(), 0)]
    asked = []
    for _ in range(300):
        (limit,) = policy.limits(seqs, Drafter(0.005))
        asked.append(limit.n_nodes)
        policy.observe(seqs, [tree_of(Form(limit.width, limit.trunk or 0, limit.depth))], [Verdict((), 0)])
    assert asked[100:].count(0) > 150
    assert sum(asked[100:]) > 0


def test_a_drafter_of_unknown_speed_is_asked_for_one_token() -> None:
    policy = Delayed(calibrated(FAST), width=4)
    seqs = [Sequence(i, [1], 1, Sampling(), 0) for i in range(2)]
    assert policy.limits(seqs, Drafter(0.0)) == [Limits(1, 1, 1, trunk=0)] * 2


def test_many_sequences_share_the_rows() -> None:
    policy = Delayed(calibrated(FAST), width=4)
    for n in (1, 4, 8, 16, 40):
        seqs = [Sequence(i, [1], 1, Sampling(), 0) for i in range(n)]
        limits = policy.limits(seqs, Drafter(1e-6))
        assert all(limit.n_nodes == 0 or (limit.n_nodes + limit.width) * n <= 32 for limit in limits)


def test_chances_by_rank_are_those_of_nodes() -> None:
    """What a form is worth follows from the same table as the value of its nodes."""
    acceptance, rng = Acceptance(), np.random.default_rng(0)
    form = Form(3, 2, 2)
    draft, chances = tree_of(form), [[0.6, 0.2, 0.1]] * 16
    for _ in range(300):
        acceptance.next_round()
        acceptance.observe("d", 7, draft, accepted(draft, chances, rng))
    grid = acceptance.chances_by_rank("d", 7, 4, 3)
    assert 1 + sum(acceptance.values("d", 7, draft)) == pytest.approx(n_expected(form, grid), rel=1e-9)
