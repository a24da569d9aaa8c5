"""The ten mistakes of speculative decoders (related.md section 1, R1 to R10), each caught by the harness.

Every mutant stands next to the right variant on the same drafts: that one is exact to 1e-12, the mutant's text is
further from the target than a stated total variation. Figures to three digits are those of related.md on its models.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from test_exact import OPTIONS, with_options
from test_golden import P, Q, decide, same_everywhere

from wager.pack import paths
from wager.proof import (
    PLAIN,
    Context,
    Drafts,
    Pair,
    all_contexts,
    bias,
    distance,
    emitted,
    finished,
    iid,
    keep_then_stop,
    likeliest,
    outcomes,
    stop_before,
    stop_unsure,
    without_replacement,
)
from wager.tree import children, contexts, merged
from wager.types import F64, Draft, Sampling, Verdict
from wager.verify import Dice, Rows, lists
from wager.verify.base import Decide
from wager.verify.local import Local, local, normalised, positive, ratio, without

EXACT = 1e-12


def dirichlet(vocab_size: int, depth: int, seed: int) -> Pair:
    """The models of related.md's checks."""
    rng = np.random.default_rng(seed)
    p, q = {}, {}
    for context in all_contexts(vocab_size, depth):
        p[context] = rng.dirichlet(np.ones(vocab_size))
        q[context] = rng.dirichlet(np.ones(vocab_size))
    return Pair(vocab_size, depth, p, q)


MODEL = dirichlet(3, 3, 2)


def cut(draft: Draft, n: int) -> Draft:
    """The first ``n`` nodes of a chain."""
    assert draft.laws is not None
    return Draft(draft.tokens[:n], draft.parents[:n], draft.laws[:n], draft.kind)


# -- R1, R2: which draft is verified -----------------------------------------------------------------------------------


def drop_by_value(pair: Pair, least: float) -> Drafts:
    for chance, draft in iid(pair, (pair.depth,)):
        text = tuple(draft.tokens.tolist())
        small = [i for i in range(len(text)) if pair.q[text[:i]][text[i]] < least]
        yield chance, cut(draft, small[0] if small else len(text))


@pytest.mark.parametrize("rule", ["standard", "block"])
def test_r1_dropping_a_token_for_its_own_value(rule: str) -> None:
    dropped = bias(decide(rule), MODEL, drop_by_value(MODEL, 0.3))
    assert dropped > 0.15
    if rule == "standard":
        assert dropped == pytest.approx(0.179, abs=5e-4)
    q = MODEL.q[()]
    root = q.max() - 1e-9, -(q * np.log(q)).sum() + 1e-9  # the root drafts, and some of what follows does not
    for more in (keep_then_stop(0.3), stop_before(root[0]), stop_unsure(root[1])):
        drafts = list(iid(MODEL, (3,), more=more))
        assert len({len(draft) for _, draft in drafts}) > 1
        assert bias(decide(rule), MODEL, drafts) < EXACT


def most_promising(one: Pair, other: Pair, n: int, *, by_own_value: bool) -> Drafts:
    """TETRIS: of two requests' drafts together the ``n`` tokens with the largest scores; the first request's part."""

    def scores(pair: Pair, text: Context) -> list[float]:
        found, product = [], 1.0
        for i, token in enumerate(text):
            q = pair.q[text[:i]]
            found.append(product * float(q[token] if by_own_value else q.max()))
            product *= float(q[token])
        return found

    for chance, draft in iid(one, (one.depth,)):
        for other_chance, other_draft in iid(other, (other.depth,)):
            mine = scores(one, tuple(draft.tokens.tolist()))
            theirs = scores(other, tuple(other_draft.tokens.tolist()))
            ranked = sorted([(-s, 0, i) for i, s in enumerate(mine)] + [(-s, 1, i) for i, s in enumerate(theirs)])
            yield chance * other_chance, cut(draft, sum(request == 0 for _, request, _ in ranked[:n]))


@pytest.mark.parametrize(("capacity", "figure"), [(1, 0.127), (2, 0.038), (3, 0.038)])
def test_r2_choosing_among_requests_by_sampled_values(capacity: int, figure: float) -> None:
    one, other = dirichlet(3, 2, 5), dirichlet(3, 2, 6)
    wrong = most_promising(one, other, capacity, by_own_value=True)
    assert bias(decide("standard"), one, wrong) == pytest.approx(figure, abs=5e-4)
    right = most_promising(one, other, capacity, by_own_value=False)
    assert bias(decide("standard"), one, right) < EXACT


# -- R3, R4: which branch, and whose samples ---------------------------------------------------------------------------


def likely_branch(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """Of the first tokens the one with the largest p, verified as if it had been drawn alone."""
    below = children(draft)[-1]
    here = local(rows, draft, -1, below)
    best = max(range(len(below)), key=lambda i: here.p[here.drafted[i]])
    alone = Local(-1, here.ids, here.p, here.q, (here.drafted[best],))
    token = here.token(lists.naive(alone, dice), rows, dice)
    found = [node for node in below if draft.tokens[node] == token]
    return Verdict(tuple(found[:1]), dice.draw(rows.weights(found[0]))) if found else Verdict((), token)


def test_r3_taking_the_branch_that_the_target_likes() -> None:
    pair = same_everywhere(P, Q, 1)
    laws = (pair.law(()),) * 2
    best_two = Draft(np.array([0, 1], np.int32), np.array([-1, -1], np.int32), laws, "without_replacement")
    assert bias(likely_branch, pair, [(1.0, best_two)]) == pytest.approx(0.6, abs=1e-9)
    assert bias(likely_branch, pair, iid(pair, (1, 1))) > 0.15
    for rule in ("naive-tree", "spectr"):
        assert bias(decide(rule), pair, iid(pair, (1, 1))) < EXACT


def sample_per_row(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """A target sample for every row and position; the longest row that matches, as in published code."""
    first, best = contexts(draft), []
    for path in paths(draft):
        matched: list[int] = []
        for node in path:
            if dice.draw(rows.weights(matched[-1] if matched else -1)) != draft.tokens[node]:
                break
            matched.append(first[node])
        best = matched if len(matched) > len(best) else best
    return Verdict(tuple(best), dice.draw(rows.weights(best[-1] if best else -1)))


def test_r4_a_target_sample_per_row() -> None:
    pair = same_everywhere(P, Q, 1)
    laws = (pair.law(()),) * 2
    draft = Draft(np.array([0, 1], np.int32), np.array([-1, -1], np.int32), laws, "iid")
    law = finished(emitted(sample_per_row, pair, [(1.0, draft)]), pair.p, 1)
    assert [law[(v,)] for v in range(3)] == pytest.approx([0.426, 0.448, 0.126])
    pair = dirichlet(3, 2, 2)
    assert bias(sample_per_row, pair, iid(pair, (2, 2))) > 0.05
    assert bias(decide("nss"), pair, iid(pair, (2, 2))) < EXACT


# -- R5 to R7: block verification --------------------------------------------------------------------------------------


def wrong_block(*, token_residual: bool = False, stop_at_failure: bool = False, clip_at_end: bool = False) -> Decide:
    def rule(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        at = [local(rows, draft, node - 1, [node]) for node in range(len(draft))]
        n, weight, carried = len(at), 1.0, [1.0]
        for here in at:
            weight *= ratio(here.p, here.q, here.drafted[0])
            weight = weight if clip_at_end else min(1.0, weight)
            carried.append(min(1.0, weight))
        best = 0
        for i in range(1, n + 1):
            passes = carried[n]
            if i < n:
                mass = positive(carried[i] * at[i].p - at[i].q).sum()
                passes = mass / (mass + 1 - carried[i]) if mass + 1 - carried[i] > 1e-15 else 1.0
            if dice.accept(passes):
                best = i
            elif stop_at_failure:
                break
        if best == n:
            return Verdict(tuple(range(n)), dice.draw(rows.weights(n - 1)))
        here = at[best]
        weight = 1.0 if token_residual else carried[best]
        symbol = dice.draw(normalised(positive(weight * here.p - here.q), here.p))
        return Verdict(tuple(range(best)), here.token(symbol, rows, dice))

    return rule


@pytest.mark.parametrize(
    ("mutant", "figure"),
    [
        (wrong_block(token_residual=True), 0.0068),
        (wrong_block(stop_at_failure=True), 0.2414),
        (wrong_block(clip_at_end=True), 0.0811),
    ],
    ids=["r5 token residual", "r6 stop at the first failure", "r7 clip at the end"],
)
def test_r5_r6_r7_block(mutant: Decide, figure: float) -> None:
    """R5 is .007: no statistical test of a usual size would see it."""
    assert bias(mutant, MODEL, iid(MODEL, (3,))) == pytest.approx(figure, abs=5e-5)
    assert bias(wrong_block(), MODEL, iid(MODEL, (3,))) < EXACT
    assert bias(decide("block"), MODEL, iid(MODEL, (3,))) < EXACT


# -- R8: traversal -----------------------------------------------------------------------------------------------------


def wrong_traversal(after: str) -> Decide:
    """Traversal whose weight after a rejection is "right", the residual over what is left of the draft, or itself."""

    def rule(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        below = children(draft)

        def visit(path: Context, weight: float) -> Verdict | None:
            node = path[-1] if path else -1
            if weight <= 0:
                return None
            if node not in below:
                return Verdict(path, dice.draw(rows.weights(node))) if dice.accept(weight) else None
            here = local(rows, draft, node, below[node])
            p, q, whole = here.p, here.q, 1.0
            for x, child in zip(here.drafted, below[node], strict=True):
                found = visit((*path, child), min(1.0, weight * ratio(p, q, x)))
                if found is not None:
                    return found
                residual = positive(weight * p - q)
                mass, left = float(residual.sum()), 1 - float(q[x])
                right = mass / (mass + (1 - weight)) if mass > 0 else 0.0
                weight = {"right": right, "over": min(1.0, mass / left) if left > 1e-12 else 0.0, "mass": mass}[after]
                p, q, whole = normalised(residual, p), without(q, x), whole * left
            return Verdict(path, here.token(dice.draw(p), rows, dice)) if dice.accept(weight) else None

        return visit((), 1.0) or Verdict((), dice.draw(rows.weights(-1)))

    return rule


def distinct(pair: Pair) -> Drafts:
    """Two i.i.d. sequences with equal nodes merged, as if drawn without replacement (which is right too)."""
    for chance, draft in iid(pair, (2, 2)):
        tree, _ = merged(draft)
        yield chance, Draft(tree.tokens, tree.parents, tree.laws, "without_replacement")


@pytest.mark.parametrize(("after", "least"), [("over", 0.05), ("mass", 0.05)])
def test_r8_weight_after_a_rejection(after: str, least: float) -> None:
    pair = dirichlet(3, 2, 2)
    assert bias(wrong_traversal(after), pair, distinct(pair)) > least
    for right in (wrong_traversal("right"), decide("traversal"), decide("rrsw")):
        assert bias(right, pair, distinct(pair)) < EXACT


# -- R9, R10: what p and q are -----------------------------------------------------------------------------------------


def certain_target(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
    """Retrieved tokens with q = 1 against the one-hot of the target's arg max: found in published code."""
    path: list[int] = []
    for node in range(len(draft)):
        token = int(rows[node - 1].argmax())
        if token != draft.tokens[node]:
            return Verdict(tuple(path), token)
        path.append(node)
    return Verdict(tuple(path), dice.draw(rows.weights(len(draft) - 1)))


def as_if_drawn(pair: Pair) -> Drafts:
    """The draft model's best tokens, with its law as if they had been drawn from it."""
    for chance, draft in likeliest(pair, (1,) * pair.depth):
        text = tuple(draft.tokens.tolist())
        laws = tuple(pair.law(text[:i]) for i in range(len(text)))
        yield chance, Draft(draft.tokens, draft.parents, laws, "iid")


def test_r9_drafts_that_nobody_drew() -> None:
    chain = list(likeliest(MODEL, (1, 1, 1)))
    assert bias(certain_target, MODEL, chain) > 0.8
    assert bias(decide("standard"), MODEL, as_if_drawn(MODEL)) > 0.7
    for rule in ("standard", "block", "nss", "top-k"):
        assert bias(decide(rule), MODEL, chain) < EXACT
    greedy = {context: np.eye(3)[int(p.argmax())] for context, p in MODEL.p.items()}
    law = emitted(certain_target, MODEL, chain, sampling=Sampling())
    assert distance(finished(law, greedy, 4), finished({(): 1.0}, greedy, 4)) == 0, "right at temperature 0 only"


def far_from_options(pair: Pair, sampling: Sampling) -> float:
    p = with_options(pair)
    law = finished(emitted(decide("standard"), pair, iid(pair, (2,)), sampling=sampling), p, 3)
    return distance(law, finished({(): 1.0}, p, 3))


def test_r10_verifying_with_another_p(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = dirichlet(3, 2, 2)
    assert far_from_options(pair, OPTIONS) < EXACT
    assert far_from_options(pair, PLAIN) > 0.4, "p before its options"
    monkeypatch.setattr(Rows, "_history", lambda self, node: list(self._seq.tokens))
    assert far_from_options(pair, OPTIONS) > 0.15, "penalties that do not see the node's own path"


def test_r10_a_q_that_was_not_drawn_from() -> None:
    """Drawn from the two likeliest tokens, verified with the law before they were cut."""
    pair = dirichlet(3, 2, 2)
    kept = {context: normalised(np.where(q > q.min(), q, 0), q) for context, q in pair.q.items()}
    cut_pair = Pair(3, 2, pair.p, kept)

    def uncut() -> Iterator[tuple[float, Draft]]:
        for chance, draft in iid(cut_pair, (2,)):
            text = tuple(draft.tokens.tolist())
            laws = tuple(pair.law(text[:i]) for i in range(len(text)))
            yield chance, Draft(draft.tokens, draft.parents, laws, "iid")

    for rule in ("standard", "block"):
        assert bias(decide(rule), pair, uncut()) > 0.03
        assert bias(decide(rule), pair, iid(cut_pair, (2,))) < EXACT


# -- and some of lists -------------------------------------------------------------------------------------------------


def distinct_only(here: Local, dice: Dice) -> int:
    """K-SEQ that forgets how often a token was drawn."""
    return lists.k_seq(Local(here.node, here.ids, here.p, here.q, tuple(dict.fromkeys(here.drafted))), dice)


def nothing_taken_out(here: Local, dice: Dice) -> int:
    """Recursive rejection of draws without replacement as if they had been put back."""
    p = here.p
    for x in here.drafted:
        if dice.accept(ratio(p, here.q, x)):
            return x
        p = normalised(positive(p - here.q), p)
    return dice.draw(p)


def by_size(here: Local, dice: Dice) -> int:
    """Naive selection on the child with the largest q, not on the first."""
    best = max(here.drafted, key=lambda x: here.q[x])
    return lists.naive(Local(here.node, here.ids, here.p, here.q, (best,)), dice)


def test_lists_with_the_wrong_count_or_order() -> None:
    pair = dirichlet(3, 2, 2)
    assert bias(lists.top_down(distinct_only), pair, iid(pair, (2, 2))) > 0.015
    assert bias(lists.top_down(by_size), pair, iid(pair, (2, 2))) > 0.15
    assert bias(decide("spectr"), pair, iid(pair, (2, 2))) < EXACT
    pair = dirichlet(4, 1, 0)
    assert bias(lists.top_down(nothing_taken_out), pair, without_replacement(pair, (2,))) > 0.03
    assert bias(decide("rrsw"), pair, without_replacement(pair, (2,))) < EXACT


def test_outcomes_of_a_mutant_are_still_a_law() -> None:
    """So that what is measured is bias, not mass that was lost."""
    pair = dirichlet(3, 2, 2)
    law: F64 = pair.p[()]
    assert law.sum() == pytest.approx(1)
    for _, draft in distinct(pair):
        for after in ("right", "over", "mass"):
            found = outcomes(wrong_traversal(after), pair.rows(draft), draft)
            assert sum(found.values()) == pytest.approx(1, abs=1e-12)
