"""Drafts that end by the draft model's own doubts leave the law of the text as it is: every outcome gone through."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from wager.drafters.drawing import belief
from wager.policies.adaedl import Unlikely
from wager.policies.threshold import Unsure
from wager.proof import Context, More, Pair, bias, iid, random_pair, without_replacement
from wager.types import SAMPLED, Draft, Drawn, Stop
from wager.verify import RULES

EXACT = 1e-12
STOPS: dict[str, Stop] = {
    **{f"threshold {t}": Unsure(t) for t in (0.0, 0.2, 0.4, 0.7, 1.1)},
    **{f"adaedl {t}": Unlikely(t) for t in (-math.inf, 0.55, 0.58, 0.62, math.inf)},
}
# What takes drawn drafts, and can be gone through: the walk and gls decide by noise that the draft was drawn with.
RULES_OF_DICE = [name for name, info in RULES.items() if info.decide is not None and info.kinds & SAMPLED]


def by(stop: Stop) -> More:
    """What a drafter that asks ``stop`` does after a context, as ``ModelDrafter`` asks it."""

    def more(pair: Pair, context: Context) -> bool:
        path = Drawn()
        for n, token in enumerate(context):
            seen = believed(pair, context[:n], stop)
            path = Drawn((*path.probs, seen.of(token)), (*path.entropies, seen.entropy))
        if context and stop.after([path])[0]:
            return False
        return not stop.before(path, believed(pair, context, stop).entropy)

    return more


def believed(pair: Pair, context: Context, stop: Stop):
    with np.errstate(divide="ignore"):
        return belief(np.log(pair.q[context]), stop.n_top)


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("name", RULES_OF_DICE)
def test_single_paths_that_end_early(name: str, stop: Stop) -> None:
    info = RULES[name]
    for seed, style in enumerate(("mixed", "dense", "peaked", "zeros")):
        pair = random_pair(3, 3, seed=seed, style=style)
        if "iid" in info.kinds:
            assert bias(info.decide, pair, iid(pair, (3,), more=by(stop))) < EXACT
        if "without_replacement" in info.kinds:
            assert bias(info.decide, pair, without_replacement(pair, (1, 1, 1), more=by(stop))) < EXACT


def test_no_rule_that_takes_a_drawn_path_is_left_out() -> None:
    """Two throw no dice, and top-k takes undrawn drafts only."""
    assert set(RULES) - set(RULES_OF_DICE) == {"walk", "gls", "top-k"}


def test_they_end_early_and_late() -> None:
    """In between the extremes there are drafts of every length; at the ends all have one."""
    pair = random_pair(3, 3, seed=1, style="dense")
    found = {name: {len(draft) for _, draft in iid(pair, (3,), more=by(stop))} for name, stop in STOPS.items()}
    assert found["threshold 0.0"] == found["adaedl -inf"] == {3}
    assert found["threshold 1.1"] == {1}
    assert found["adaedl inf"] == {0}
    assert found["threshold 0.4"] == {1, 2, 3}
    assert found["adaedl 0.58"] == {1, 2, 3}


@dataclass(frozen=True, slots=True)
class Dropping:
    """The mistake: a token below the threshold ends the draft and is not in it."""

    least: float

    def drafts(self, pair: Pair):
        for chance, draft in iid(pair, (3,)):
            probs = [float(law.probs[law.ids == t][0]) for law, t in zip(draft.laws, draft.tokens, strict=True)]
            n = next((i for i, prob in enumerate(probs) if prob < self.least), 3)
            yield chance, Draft(draft.tokens[:n], draft.parents[:n], draft.laws[:n], draft.kind)


@pytest.mark.parametrize("name", ["standard", "block"])
def test_dropping_the_token_would_show(name: str) -> None:
    pair = random_pair(3, 3, seed=1, style="dense")
    assert bias(RULES[name].decide, pair, Dropping(0.4).drafts(pair)) > 0.02
