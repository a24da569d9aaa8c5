"""Scores and decisions over HTTP: candidates read by the engine beside everybody else's answers."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Any

from wager.decide.answers import alone, canonical
from wager.decide.candidates import named_labels, parse_labels
from wager.decide.law import Law
from wager.decide.metrics import METRICS, metric_named
from wager.decide.rules import RULES, decide, rule_for
from wager.decide.rules.registry import RuleInfo
from wager.errors import OptionError
from wager.score import Scores
from wager.serve.bodies import DecideBody, ScoreBody
from wager.serve.config import Limits
from wager.serve.errors import ApiError
from wager.types import JSON

# Metrics whose rule needs nothing but the law of a number or a label.
SIMPLE = tuple(m.name for m in METRICS.values() if m.kind in ("numbers", "labels") and not RULES[m.rule].must)


def check_prompt(body: ScoreBody | DecideBody) -> None:
    """Raises ApiError unless exactly one of ``prompt`` and ``messages`` is there."""
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "give either `prompt` or `messages`", param="prompt")


def candidates_of(body: DecideBody, limits: Limits) -> list[tuple[Any, str]]:
    """(value, text) of every label; empty where answers are drawn. Raises ApiError or OptionError."""
    if (body.labels is None) == (body.n is None):
        raise ApiError(400, "give either `labels` or `n`", param="labels")
    if body.labels is None:
        return []
    found = parse_labels(body.labels) if isinstance(body.labels, str) else named_labels(body.labels)
    pairs = list(found.pairs)
    check_count("labels", [text for _, text in pairs], limits)
    return pairs


def check_count(name: str, texts: ListLike[str], limits: Limits) -> None:
    if len(texts) > limits.max_candidates or any(len(t) > limits.max_candidate_chars for t in texts):
        most = f"at most {limits.max_candidates} of at most {limits.max_candidate_chars} characters here"
        raise ApiError(400, f"`{name}` has {len(texts)} texts: {most}", param=name)


def rules_of(body: DecideBody) -> dict[str, RuleInfo]:
    """The best rule of every metric asked for. Raises ApiError or OptionError."""
    rules = {}
    for spec in body.metrics:
        rule = rule_for(metric_named(spec))
        if metric_named(spec).name not in SIMPLE:
            raise ApiError(400, f"`metrics` has {spec!r}: give some of {', '.join(SIMPLE)}", param="metrics")
        rules[spec] = rule
    return rules


def drawn_law(texts: ListLike[str], n_tokens: int) -> Law:
    """Of drawn answers: as numbers if any is one, else as labels."""
    numbers = [alone(text) for text in texts]
    if any(number is not None for number in numbers):
        return Law.of(numbers, n_tokens=n_tokens)
    return Law.of([canonical(text) for text in texts], n_tokens=n_tokens)


def score_answer(head: JSON, scores: Scores) -> JSON:
    entries = [
        {"text": text, "logprob": float(total), "token_logprobs": each.tolist(), "greedy": greedy}
        for text, total, each, greedy in zip(
            scores.candidates, scores.logprobs, scores.token_logprobs, scores.greedy, strict=True
        )
    ]
    usage = {
        "prompt_tokens": scores.n_prompt,
        "completion_tokens": scores.n_tokens,
        "total_tokens": scores.n_prompt + scores.n_tokens,
    }
    return {**head, "object": "scores", "data": entries, "covered": min(1.0, scores.covered), "usage": usage}


def decision_answer(head: JSON, law: Law, rules: dict[str, RuleInfo], usage: JSON) -> JSON:
    predictions: JSON = {}
    for name, rule in rules.items():
        try:
            value = decide(law, rule).value
        except OptionError as error:
            raise ApiError(400, f"`metrics` has {name!r}, but {error}", param="metrics") from error
        predictions[name] = as_json(value)
    entries = [{"value": value, "weight": float(w)} for value, w in zip(law.values, law.weights, strict=True)]
    return {
        **head,
        "object": "decision",
        "law": entries,
        "covered": law.covered,
        "predictions": predictions,
        "usage": usage,
    }


def as_json(value: Any) -> Any:
    """A prediction; a law as a list of values and weights."""
    if isinstance(value, Law):
        return [{"value": v, "weight": float(w)} for v, w in zip(value.values, value.weights, strict=True)]
    if isinstance(value, dict):
        return [{"value": v, "weight": float(w)} for v, w in value.items()]
    return value.item() if hasattr(value, "item") else value
