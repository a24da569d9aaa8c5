"""Figures that others can check by hand: related.md 2.1 to 2.3 and core.md 2, by enumeration and in closed form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from wager.proof import Pair, all_contexts, distance, emitted, iid, n_accepted, outcomes, random_pair
from wager.types import F64, Draft
from wager.verify import RULES
from wager.verify.base import Decide
from wager.verify.transport import (
    beta,
    k_seq_acceptance,
    naive_acceptance,
    nss_acceptance,
    optimum,
    rho_star,
    spec_infer_acceptance,
    spec_tr_acceptance,
)

P = np.array([0.3, 0.4, 0.3])
Q = np.array([0.6, 0.3, 0.1])
IID = [name for name, info in RULES.items() if info.kinds == {"iid"} and info.decide is not None]


def same_everywhere(p: F64, q: F64, depth: int) -> Pair:
    known = list(all_contexts(len(p), depth))
    return Pair(len(p), depth, dict.fromkeys(known, p), dict.fromkeys(known, q))


def decide(name: str) -> Decide:
    found = RULES[name].decide
    assert found is not None
    return found


def acceptance(rule: str, p: F64, q: F64, k: int) -> float:
    """Chance that one of ``k`` drafted tokens is the token."""
    pair = same_everywhere(p, q, 1)
    return n_accepted(emitted(decide(rule), pair, iid(pair, (1,) * k)))


@pytest.mark.parametrize(
    ("gamma", "standard", "block"),
    [(2, 10 / 9, 11 / 9), (3, 1.407407, 1.666667), (4, 1.604938, 2.049383), (8, 1.921963, 3.106844)],
)
def test_accepted_tokens_of_one_path(gamma: int, standard: float, block: float) -> None:
    """p = (1/3, 2/3), q = (2/3, 1/3): the pair for gamma 2 is the paper's own (Sun et al. 2403.10444)."""
    pair = same_everywhere(np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3]), gamma)
    for name, want in (("standard", standard), ("block", block)):
        assert n_accepted(emitted(decide(name), pair, iid(pair, (gamma,)))) == pytest.approx(want, abs=1e-6)


def test_what_block_makes_of_each_draft_of_two() -> None:
    pair = same_everywhere(np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3]), 2)
    want = {
        (1, 0): {2: 0.5, 1: 0.5},
        (0, 0): {2: 0.25, 0: 0.75},
        (0, 1): {2: 1.0},
        (1, 1): {2: 1.0},
    }
    for _, draft in iid(pair, (2,)):
        found: dict[int, float] = {}
        for verdict, chance in outcomes(decide("block"), pair.rows(draft), draft).items():
            found[len(verdict.path)] = found.get(len(verdict.path), 0.0) + chance
            assert len(verdict.path) == 2 or verdict.token == 1, "the residual is (0, 1)"
        assert found == pytest.approx(want[tuple(draft.tokens.tolist())])


# rule: acceptance at k = 1, 2, 3; rrsw on i.i.d. draws whose duplicates are dropped
ONE_STEP = {
    "nss": (0.33, 0.513, 0.6249),
    "naive-tree": (0.70, 0.75, 0.789),
    "specinfer": (0.70, 0.82, 0.848),
    "spectr": (0.70, 0.84, 0.875),
    "rrsw": (0.70, 0.77, 0.817),
    "transport": (0.70, 0.89, 0.971),
}
CLOSED = {
    "nss": nss_acceptance,
    "naive-tree": naive_acceptance,
    "specinfer": spec_infer_acceptance,
    "spectr": spec_tr_acceptance,
    "transport": optimum,
}


def without_duplicates(pair: Pair, k: int) -> Iterator[tuple[float, Draft]]:
    """I.i.d. draws with every token once: also right for rules without replacement, which then accept less."""
    for chance, draft in iid(pair, (1,) * k):
        tokens = list(dict.fromkeys(draft.tokens.tolist()))
        laws = (pair.law(()),) * len(tokens)
        yield (
            chance,
            Draft(np.array(tokens, np.int32), np.full(len(tokens), -1, np.int32), laws, "without_replacement"),
        )


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("rule", ONE_STEP)
def test_one_step_vector(rule: str, k: int) -> None:
    pair = same_everywhere(P, Q, 1)
    drafts = without_duplicates(pair, k) if rule == "rrsw" else iid(pair, (1,) * k)
    assert n_accepted(emitted(decide(rule), pair, drafts)) == pytest.approx(ONE_STEP[rule][k - 1], abs=6e-4)
    if rule in CLOSED:
        assert CLOSED[rule](P, Q, k) == pytest.approx(ONE_STEP[rule][k - 1], abs=6e-4)


@pytest.mark.parametrize(("k", "rho"), [(1, 1.0), (2, 1.4), (3, 1.75)])
def test_rho_of_the_one_step_vector(k: int, rho: float) -> None:
    assert rho_star(P, Q, k) == pytest.approx(rho, abs=1e-12)


def test_rho_of_the_worked_example() -> None:
    p, q = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    rho = rho_star(p, q, 2)
    assert rho == pytest.approx(1.5, abs=1e-12)
    assert beta(p, q, rho) == pytest.approx(0.5, abs=1e-12)
    assert k_seq_acceptance(beta(p, q, rho), 2) == pytest.approx(0.75, abs=1e-12)
    assert optimum(p, q, 2) == pytest.approx(0.75, abs=1e-12)
    assert acceptance("spectr", p, q, 2) == pytest.approx(0.75, abs=1e-12)


def test_traversal_tree() -> None:
    """a with children b and c, then c with child a, drawn without replacement."""
    pair = same_everywhere(P, Q, 2)
    laws = (pair.law(()),) * 5
    tokens, parents = np.array([0, 2, 1, 2, 0], np.int32), np.array([-1, -1, 0, 0, 1], np.int32)
    draft = Draft(tokens, parents, laws, "without_replacement")
    found: dict[tuple[int, ...], F64] = {}
    for verdict, chance in outcomes(decide("traversal"), pair.rows(draft), draft).items():
        text = tuple(tokens[list(verdict.path)].tolist())
        found.setdefault(text, np.zeros(3))[verdict.token] += chance
    mass = {text: float(law.sum()) for text, law in found.items()}
    want = {(0, 1): 2 / 3, (0, 2): 0.212121, (2, 0): 0.060606, (2,): 0.060606}
    assert mass == pytest.approx(want, abs=1e-6)
    assert found[2,] / mass[2,] == pytest.approx([0, 1 / 3, 2 / 3])
    assert found[0, 1] / mass[0, 1] == pytest.approx(P)


@pytest.mark.parametrize("seed", range(4))
def test_traversal_of_one_path_is_block(seed: int) -> None:
    """The same law of paths and tokens, although the tests are others."""
    pair = random_pair(3, 3, seed=seed)
    one, other = (emitted(decide(name), pair, iid(pair, (3,))) for name in ("block", "traversal"))
    assert distance(one, other) < 1e-12


@pytest.mark.parametrize("rule", [*IID, "traversal", "block"])
def test_with_one_draft_every_rule_accepts_what_standard_does(rule: str) -> None:
    for seed in range(8):
        p, q = (random_pair(4, 0, seed=seed).p[()], random_pair(4, 0, seed=seed).q[()])
        assert acceptance(rule, p, q, 1) == pytest.approx(np.minimum(p, q).sum(), abs=1e-12)


@pytest.mark.parametrize("rule", [name for name in IID if name not in ("greedy-paths", "transport")])
def test_with_one_path_rules_for_lists_are_standard(rule: str) -> None:
    pair = random_pair(3, 3, seed=9)
    one, other = (emitted(decide(name), pair, iid(pair, (3,))) for name in (rule, "standard"))
    assert distance(one, other) < 1e-12


def test_block_accepts_no_less_than_standard() -> None:
    for seed in range(12):
        pair = random_pair(3, 3, seed=seed, style="dense")
        block, standard = (n_accepted(emitted(decide(n), pair, iid(pair, (3,)))) for n in ("block", "standard"))
        assert block >= standard - 1e-12
