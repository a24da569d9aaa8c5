"""Minimum Bayes risk over texts: the matrix, the adapter for mbrs, and libraries that are missing."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from wager.decide import mbr as module
from wager.decide.law import Law
from wager.decide.mbr import every_pair, exact, from_mbrs, mbr, pair_named
from wager.decide.options import Options
from wager.decide.rules import decide, mode, rule_for
from wager.errors import OptionError


def test_with_exact_match_it_is_the_mode() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = [str(i) for i in rng.permutation(5)[: rng.integers(1, 6)]]
        weights = rng.integers(1, 4, len(values))
        assert mbr(values, weights, utility=every_pair(exact)) == mode(values, weights)


def test_a_candidate_beyond_the_law_may_win_and_the_law_wins_ties() -> None:
    law = Law.of(["ab", "cd"])
    assert decide(law, rule_for("edit")).value == "ab"
    assert decide(law, rule_for("edit"), options=Options(candidates=("ad",))).value == "ab"
    three = Law.of(["axc", "abx", "xbc"])
    assert decide(three, rule_for("edit")).value == "axc"
    assert decide(three, rule_for("edit"), options=Options(candidates=("abc",))).value == "abc"


class Scores:
    """As mbrs has it: (hypotheses, references) -> a tensor (H, R)."""

    def __init__(self, *, higher: bool) -> None:
        self.HIGHER_IS_BETTER = higher
        self.sources: list[str | None] = []

    def pairwise_scores(self, hypotheses: list[str], references: list[str], source: str | None = None) -> Any:
        self.sources.append(source)
        return np.array([[float(len(h) - len(r)) for r in references] for h in hypotheses])


def test_a_metric_of_mbrs_is_adapted() -> None:
    texts = ["a", "bbb", "cc"]
    longest, shortest = Scores(higher=True), Scores(higher=False)
    assert mbr(texts, [1, 1, 1], utility=from_mbrs(longest, source="src")) == "bbb"
    assert mbr(texts, [1, 1, 1], utility=from_mbrs(shortest)) == "a"
    assert longest.sources == ["src"]
    utility = from_mbrs(longest)
    assert utility(["a"], ["bbb", "cc"]).tolist() == [[2.0, 1.0]]  # one row per target
    with pytest.raises(OptionError, match="object has no `pairwise_scores`"):
        from_mbrs(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "package", "top"),
    [("chrf", "sacrebleu", "sacrebleu"), ("rouge-l", "rouge-score", "rouge_score"), ("edit", "rapidfuzz", "rapidfuzz")],
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, metric: str, package: str, top: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == top]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, top, None)
    with pytest.raises(OptionError, match=rf"needs {package}, .*pip install 'wager\[decide\]'"):
        decide(Law.of(["a", "b"]), rule_for(metric))


def test_unknown_utilities_are_refused() -> None:
    with pytest.raises(OptionError, match="token-f1"):
        pair_named("meteor")
    assert set(module.PAIRS) == {"exact", "token-f1", "chrf", "rouge-l", "bleu", "edit"}
