"""``check_rule``, the contract for rules of one's own: it passes right ones and says what wrong ones break."""

from __future__ import annotations

import numpy as np
import pytest
from test_mutants import nothing_taken_out, wrong_block

from wager.testing import check_rule
from wager.tree import contexts
from wager.types import Draft, Verdict
from wager.verify import RULES, Dice, Rows, RuleInfo, lists
from wager.verify.base import Decide


def info_of(decide_: Decide, like: str) -> RuleInfo:
    known = RULES[like]
    return RuleInfo(name="mine", rule=known.rule, decide=decide_, kinds=known.kinds, trees=known.trees)


def test_check_rule_passes_a_good_rule_and_names_what_a_bad_one_breaks() -> None:
    check_rule(info_of(wrong_block(), "block"))
    with pytest.raises(AssertionError, match=r"rule 'mine', iid drafts, one path.*total variation"):
        check_rule(info_of(wrong_block(token_residual=True), "block"))
    with pytest.raises(AssertionError, match=r"rule 'mine', without_replacement drafts, 2-1 children, dense laws"):
        check_rule(info_of(lists.top_down(nothing_taken_out), "rrsw"))


def test_check_rule_sees_paths_that_are_none_and_text_that_is_not_greedy() -> None:
    def skips(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        return Verdict((1,) if len(draft) > 1 else (), dice.draw(rows.weights(-1)))

    def names_the_second(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        first = contexts(draft)
        again = [node for node in range(len(draft)) if first[node] != node and draft.parents[node] < 0]
        return Verdict(tuple(again[:1]), dice.draw(rows.weights(again[0] if again else -1)))

    def hot(rows: Rows, draft: Draft, dice: Dice) -> Verdict:
        return Verdict((), dice.draw(np.ones(len(rows.weights(-1)))))

    with pytest.raises(AssertionError, match="is no path"):
        check_rule(info_of(skips, "block"))
    with pytest.raises(AssertionError, match="names a duplicate"):
        check_rule(info_of(names_the_second, "spectr"))
    lossy = RuleInfo(name="hot", rule=RULES["nss"].rule, decide=hot, lossless=False)
    with pytest.raises(AssertionError, match="at temperature 0"):
        check_rule(lossy)


def test_check_rule_takes_only_rules_over_dice() -> None:
    info = RuleInfo(name="mine", rule=RULES["walk"].rule)
    with pytest.raises(AssertionError, match="no `decide`"):
        check_rule(info)
