"""Texts: how alike two are, and the text that is most like what the model would say (minimum Bayes risk).

A pair utility takes (target, prediction) and gives a number, 1 for equal texts and 0 for unlike ones. Libraries are
imported when first used: ``pip install 'wager[decide]'``.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wager.decide.arrays import first_best, shares
from wager.errors import OptionError
from wager.types import F64

Pair = Callable[[str, str], float]
# (n targets, m predictions) -> (n, m), larger is better.
Pairwise = Callable[[ListLike[str], ListLike[str]], F64]


def mbr(
    values: ListLike[str], weights: npt.ArrayLike, *, utility: Pairwise, candidates: ListLike[str] | None = None
) -> str:
    """The text of ``values`` or ``candidates`` with the largest expected ``utility``; the first of equally good ones.

    ``values`` are n texts with ``weights`` (n,). n x (n + candidates) utilities are computed.
    Source: Lukasik et al. 2403.04182.
    """
    w = shares(weights, len(values))
    pool = list(dict.fromkeys([*values, *(candidates or ())]))
    return pool[first_best(w @ utility(values, pool))]


def every_pair(pair: Pair) -> Pairwise:
    """The matrix of a pair utility."""

    def utility(targets: ListLike[str], predictions: ListLike[str]) -> F64:
        return np.array([[pair(y, x) for x in predictions] for y in targets], dtype=np.float64)

    return utility


class MbrsMetric(Protocol):
    """What is used of a metric of the mbrs library (or any object like it)."""

    HIGHER_IS_BETTER: bool

    def pairwise_scores(self, hypotheses: list[str], references: list[str], source: str | None = None) -> Any: ...


def from_mbrs(metric: MbrsMetric, *, source: str | None = None) -> Pairwise:
    """A utility from a metric of mbrs (COMET, BLEURT, ...; install it yourself, it brings torch).

    ``source`` is the text that was translated, for metrics that read it. Raises ``OptionError`` for anything that has
    no ``pairwise_scores``.
    """
    if not callable(getattr(metric, "pairwise_scores", None)):
        raise OptionError(f"{type(metric).__name__} has no `pairwise_scores`: give a reference-based metric of mbrs")
    sign = 1.0 if metric.HIGHER_IS_BETTER else -1.0

    def utility(targets: ListLike[str], predictions: ListLike[str]) -> F64:
        scores = metric.pairwise_scores(list(predictions), list(targets), source)
        return sign * np.asarray(scores, dtype=np.float64).T

    return utility


def exact(target: str, prediction: str) -> float:
    """1 for equal texts."""
    return float(target == prediction)


def words(text: str) -> list[str]:
    """Words as SQuAD compares them: lower case, without punctuation and the articles a, an, the."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def token_f1(target: str, prediction: str) -> float:
    """F1 of the two bags of words, as in SQuAD (1606.05250): 1 where both are empty, 0 where one is."""
    y, x = words(target), words(prediction)
    if not y or not x:
        return float(y == x)
    return 2 * sum((Counter(y) & Counter(x)).values()) / (len(y) + len(x))


def _chrf() -> Pair:
    chrf = _library("sacrebleu", "sacrebleu").sentence_chrf
    return lambda target, prediction: float(chrf(prediction, [target]).score) / 100


def _bleu() -> Pair:
    # The sentence's own BLEU: orders longer than the text are left out, zero counts are smoothed (sacrebleu's "exp").
    scorer = _library("sacrebleu.metrics", "sacrebleu").BLEU(effective_order=True)
    return lambda target, prediction: float(scorer.sentence_score(prediction, [target]).score) / 100


def _rouge_l() -> Pair:
    scorer = _library("rouge_score.rouge_scorer", "rouge-score").RougeScorer(["rougeL"], use_stemmer=False)
    return lambda target, prediction: float(scorer.score(target, prediction)["rougeL"].fmeasure)


def _edit() -> Pair:
    similarity = _library("rapidfuzz.distance", "rapidfuzz").Levenshtein.normalized_similarity
    return lambda target, prediction: float(similarity(target, prediction))


# Name -> what makes the pair utility, importing its library.
PAIRS: dict[str, Callable[[], Pair]] = {
    "exact": lambda: exact,
    "token-f1": lambda: token_f1,
    "chrf": _chrf,
    "rouge-l": _rouge_l,
    "bleu": _bleu,
    "edit": _edit,
}


def pair_named(name: str) -> Pair:
    """A pair utility by name. Raises ``OptionError`` for an unknown one, or where its library is not installed."""
    if name not in PAIRS:
        raise OptionError(f"the utility is {name!r}: give one of {', '.join(PAIRS)}")
    return PAIRS[name]()


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise OptionError(
            f"this metric needs {package}, which is not installed: pip install 'wager[decide]'"
        ) from error
