"""Every lossless rule gives exactly the target's law: all drafts of every kind it takes, all that its dice can say.

What would break these tests is shown in test_mutants.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from wager.proof import (
    STYLES,
    Context,
    Drafts,
    Pair,
    ScriptedDice,
    all_contexts,
    bias,
    distance,
    emitted,
    finished,
    iid,
    likeliest,
    outcomes,
    random_pair,
    without_replacement,
)
from wager.testing import check_rule
from wager.testing_rules import STOPS, cases
from wager.types import F64, Draft, Law, Sampling
from wager.verify import LOSSY, RULES, Rows, khisti, rule_named

PROVED = [name for name, info in RULES.items() if info.decide is not None]
EXACT = 1e-12


def test_all_rules_but_those_that_hash_noise_themselves_are_here() -> None:
    assert set(RULES) - set(PROVED) == {"walk", "gls"}
    assert all(RULES[name].lossless for name in PROVED)


@pytest.mark.parametrize("name", PROVED)
def test_law_of_the_text_is_the_target_s(name: str) -> None:
    check_rule(RULES[name])


@pytest.mark.parametrize("name", LOSSY)
def test_greedy_text_of_a_lossy_rule_is_the_target_s(name: str) -> None:
    """``check_rule`` asks lossy rules for that and for paths, on trees too where they take them."""
    check_rule(rule_named(name))


def test_nss_ignores_the_laws_it_is_given() -> None:
    for name in ("one path", "two sequences", "2-1 children"):
        for case in cases(replace(RULES["nss"], needs_laws=True), seed=100):
            if case.form.name == name and "coupled" not in case.name:
                assert bias(RULES["nss"].decide, case.pair, case.form.drafts(case.pair)) < EXACT, case.name


# -- other options than temperature 1 ----------------------------------------------------------------------------------

OPTIONS = Sampling(
    temperature=0.8, top_k=2, repetition_penalty=1.5, presence_penalty=0.3, frequency_penalty=0.4, logit_bias={1: 0.7}
)


def _after_options(p: F64, history: Context) -> F64:
    """The options by their definition, token by token; the prompt is token 0."""
    x = np.log(p)
    for token in range(len(p)):
        if token == 0 or token in history:
            x[token] = x[token] / 1.5 if x[token] > 0 else x[token] * 1.5
        n = history.count(token)
        x[token] -= 0.3 * (n > 0) + 0.4 * n
    x[1] += 0.7
    x /= 0.8
    x[np.argsort(-x, kind="stable")[2:]] = -np.inf
    weights = np.exp(x)
    return weights / weights.sum()


def with_options(pair: Pair) -> dict[Context, F64]:
    return {context: _after_options(p, context) for context, p in pair.p.items()}


MAKE: dict[str, Callable[[Pair], Drafts]] = {
    "standard": lambda pair: iid(pair, (2,)),
    "block": lambda pair: iid(pair, (2,)),
    "spectr": lambda pair: iid(pair, (2, 2)),
    "traversal": lambda pair: iid(pair, (2, 2), by_level=True),
    "rrsw": lambda pair: without_replacement(pair, (2, 1)),
    "top-k": lambda pair: likeliest(pair, (2, 2)),
    "nss": lambda pair: without_replacement(pair, (2, 2), kind="coupled"),
}


@pytest.mark.parametrize("name", MAKE)
def test_options_are_those_of_the_node_s_own_history(name: str) -> None:
    """Penalties make every node's law depend on its path; the law wanted is computed by the options' definition."""
    pair = random_pair(3, 2, seed=4, style="dense")
    p = with_options(pair)
    law = finished(emitted(RULES[name].decide, pair, MAKE[name](pair), sampling=OPTIONS), p, 3)
    assert distance(law, finished({(): 1.0}, p, 3)) < EXACT


# -- laws at the edge --------------------------------------------------------------------------------------------------


def _same_everywhere(p: list[float], q: list[float], depth: int) -> Pair:
    known = list(all_contexts(len(p), depth))
    return Pair(len(p), depth, dict.fromkeys(known, np.array(p)), dict.fromkeys(known, np.array(q)))


@pytest.mark.parametrize("name", ["rrsw", "traversal"])
@pytest.mark.parametrize("small", [1e-9, 1e-17, 1e-200])
def test_what_is_left_of_a_peaked_law_is_a_law(name: str, small: float) -> None:
    """The second child comes from what the first left, however little: not normalised, it was accepted always."""
    pair = _same_everywhere([0.2, 0.3, 0.5], [1 - 10 * small, 3 * small, 7 * small], 1)
    assert bias(RULES[name].decide, pair, without_replacement(pair, (2,))) < EXACT


def _rounded(depth: int) -> Pair:
    """Target and draft differ by rounding alone, so that residuals are tiny and yet not zero."""
    rng = np.random.default_rng(5)
    p = {context: rng.dirichlet(np.ones(3)) for context in all_contexts(3, depth)}
    return Pair(3, depth, p, {context: np.nextafter(law, rng.integers(0, 2, 3)) for context, law in p.items()})


@pytest.mark.parametrize("name", PROVED)
def test_laws_equal_to_rounding(name: str) -> None:
    """Traversal's root could be rejected there: (mass + 1) - 1 is not mass."""
    info, pair = RULES[name], _rounded(2)
    if "iid" in info.kinds:
        assert bias(info.decide, pair, iid(pair, (2, 2) if info.trees else (2,))) < EXACT
    if "without_replacement" in info.kinds:
        assert bias(info.decide, pair, without_replacement(pair, (2, 1) if info.trees else (1, 1))) < EXACT


@pytest.mark.parametrize("name", [name for name in PROVED if "iid" in RULES[name].kinds])
def test_a_drafted_token_whose_q_underflows(name: str) -> None:
    """Whatever was drafted, a rule answers; a token that p forbids never comes."""
    pair = _same_everywhere([0.6, 0.4, 0.0], [1.0, 5e-324, 1e-300], 2)
    n = 2 if RULES[name].trees else 1
    for tokens in ([1, 1], [1, 2], [2, 1], [2, 2]):
        nodes = [node for _ in range(n) for node in tokens]
        parents = [-1, 0, -1, 2][: len(nodes)]
        laws = tuple(pair.law(()) for _ in nodes)
        draft = Draft(np.array(nodes, np.int32), np.array(parents, np.int32), laws, "iid")
        found = outcomes(RULES[name].decide, pair.rows(draft), draft)
        assert sum(found.values()) == pytest.approx(1, abs=1e-12)
        assert all(verdict.token != 2 and 2 not in draft.tokens[list(verdict.path)] for verdict in found)


@pytest.mark.parametrize("name", [name for name in PROVED if RULES[name].trees and "iid" in RULES[name].kinds])
def test_all_sequences_equal_and_a_law_of_one_token(name: str) -> None:
    pair = random_pair(3, 2, seed=8, style="certain-draft")
    assert len(list(iid(pair, (2, 2, 2)))) == 1
    assert bias(RULES[name].decide, pair, iid(pair, (2, 2, 2))) < EXACT


@pytest.mark.parametrize("n_weighed", [0, 1, 2, 3])
def test_tournament_with_tokens_beyond_its_program(n_weighed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs with a token outside the linear program go by rank; the law of the winner counts them in."""
    monkeypatch.setattr(khisti, "_N_WEIGHED", n_weighed)
    for seed in (500, 501):
        pair = random_pair(4, 1, seed=10 * seed + n_weighed, style="dense")
        assert bias(RULES["khisti"].decide, pair, iid(pair, (1, 1, 1))) < EXACT
        assert bias(RULES["khisti"].decide, pair, iid(pair, (1, 1))) < EXACT


@pytest.mark.parametrize("rest", [1e-3, 1e-7, 1e-20, 1e-300])
def test_the_mass_outside_a_law_is_right_however_small(rest: float) -> None:
    pair = _same_everywhere([0.5, 0.5 - rest, rest / 4, rest - rest / 4], [0.3, 0.7, 0.0, 0.0], 0)
    rows = pair.rows(Draft(np.empty(0, np.int32), np.empty(0, np.int32), (), "iid"))
    assert rows.at(-1, pair.law(()).ids)[2] == pytest.approx(rest, rel=1e-9)
    assert rows.at(-1, np.arange(4))[4] == 0


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.7), Sampling(temperature=1.0, top_k=2), Sampling()])
def test_entropy_of_a_row(sampling: Sampling) -> None:
    for style in ("dense", "zeros", "certain"):
        pair = random_pair(5, 0, seed=2, style=style)
        rows = pair.rows(Draft(np.empty(0, np.int32), np.empty(0, np.int32), (), "iid"), sampling)
        some = rows[-1][rows[-1] > 0]
        assert rows.entropy(-1) == pytest.approx(-float((some * np.log(some)).sum()), abs=1e-12)


# -- the harness itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["standard", "traversal", "rrsw", "top-k"])
def test_chances_of_drafts_sum_to_one(name: str) -> None:
    for case in cases(RULES[name]):
        drafts = list(case.form.drafts(case.pair))
        assert sum(chance for chance, _ in drafts) == pytest.approx(1, abs=1e-12), case.name
        assert all(chance > 0 for chance, _ in drafts)


def test_policies_stop_early_and_late() -> None:
    """Each of them sees drafts of several lengths in the very cases that prove rules."""
    for stop in [stop for stop in STOPS if stop]:
        lengths = {
            len(draft)
            for case in cases(RULES["standard"])
            if stop in case.name and case.name.startswith("iid")
            for _, draft in case.form.drafts(case.pair)
        }
        assert len(lengths) >= 3, (stop, lengths)


def test_models_hold_every_style() -> None:
    pair = random_pair(4, 3, seed=1)
    laws = [(pair.p[context], pair.q[context]) for context in all_contexts(4, 3)]
    assert any(np.array_equal(p, q) for p, q in laws)
    assert any(np.minimum(p, q).sum() == 0 for p, q in laws)
    assert any(p.max() == 1 for p, _ in laws)
    assert any(q.max() == 1 for _, q in laws)
    assert set(STYLES) == {"dense", "peaked", "zeros", "equal", "disjoint", "certain", "certain-draft"}


def test_dice_say_everything_once() -> None:
    seen = {}
    todo: list[Context] = [()]
    while todo:
        dice = ScriptedDice(todo.pop())
        said = [dice.draw(np.array([1.0, 0.0, 3.0]))]
        if said[0]:
            said.append(int(dice.accept(0.25)))
        said.append(int(dice.accept(1.5)))
        seen[tuple(said)] = dice.chance
        todo += dice.others
    assert seen == {(0, 1): 0.25, (2, 0, 1): 0.75 * 0.75, (2, 1, 1): 0.75 * 0.25}


def test_dice_refuse_nonsense() -> None:
    with pytest.raises(AssertionError, match="NaN"):
        ScriptedDice(()).accept(float("nan"))
    for weights in ([0.0, 0.0], [-1.0, 2.0], [np.inf, 1.0], [np.nan, 1.0]):
        with pytest.raises(AssertionError, match="draw was asked"):
            ScriptedDice(()).draw(np.array(weights))


def test_rows_are_the_pair_s_laws() -> None:
    pair = random_pair(3, 2, seed=3, style="zeros")
    for _, draft in iid(pair, (2, 1), by_level=True):
        rows = pair.rows(draft)
        assert isinstance(rows, Rows)
        assert rows[-1] == pytest.approx(pair.p[()], abs=1e-15)
        last = len(draft) - 1
        text = tuple(draft.tokens[rows.path(last)].tolist())
        assert rows[last] == pytest.approx(pair.p[text], abs=1e-15)
        laws: tuple[Law, ...] = draft.laws or ()
        assert np.array_equal(laws[last].probs, pair.law(text[:-1]).probs)
