"""From prompts and a metric to decisions: estimate the law, apply the rule that is best for the metric."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import Any

from wager.asks import Asks, Prompt
from wager.decide.candidates import Candidates, parse_labels
from wager.decide.estimate import Asking, Enumerated, Estimate, Estimator, Sampled, mixed
from wager.decide.law import Law
from wager.decide.metrics import metric_named
from wager.decide.options import Options
from wager.decide.reading import Reading, kind_of
from wager.decide.rules import decide, rule_for
from wager.decide.stopping import Worth
from wager.errors import OptionError

DEFAULT_N = 16
_BATCH = 4  # draws between two looks at what more are worth


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """``prediction`` is what the rule for ``metric`` makes of the law; None, and why in ``reason``, where it is empty.

    ``estimate`` has the draws or candidates behind it, ``seed`` the row's own.
    """

    prediction: Any
    reason: str
    metric: str
    rule: str
    estimate: Estimate
    row: int | str
    seed: int

    @property
    def law(self) -> Law:
        return self.estimate.law

    @property
    def covered(self) -> float:
        """Probability of the candidates, or the share of draws that could be read."""
        return self.law.covered

    @property
    def n_tokens(self) -> int:
        """Tokens drawn, or fed beyond the prompt."""
        return self.law.n_tokens


def decided(
    llm: Asks,
    prompts: ListLike[Prompt],
    metric: str,
    estimator: Estimator,
    *,
    rows: ListLike[int | str] | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> list[Decided]:
    """One decision per prompt; all prompts run together. Raises OptionError for rows that are not one per prompt."""
    ids = range(len(prompts)) if rows is None else rows
    if len(ids) != len(prompts):
        raise OptionError(f"`rows` has {len(ids)} ids for {len(prompts)} prompts: give one each")
    rule, seeds = rule_for(metric), [mixed(seed, row) for row in ids]
    estimates = estimator.estimate(llm, prompts, seeds)
    found = [decide(each.law, rule, options=(options or Options()).only(rule.takes)) for each in estimates]
    return [
        Decided(
            prediction=decision.value,
            reason=decision.reason,
            metric=metric,
            rule=rule.name,
            estimate=estimate,
            row=row,
            seed=own,
        )
        for decision, estimate, row, own in zip(found, estimates, ids, seeds, strict=True)
    ]


def estimator_for(
    metric: str,
    *,
    candidates: str | ListLike[Any] | Mapping[str, Any] | None = None,
    n: int | None = None,
    price: float | None = None,
    chat: bool = True,
    system: str | None = None,
) -> Estimator:
    """``Enumerated`` where there are candidates (a spec, values, or texts to values), else ``n`` draws, or fewer where
    they are not worth their ``price`` (``stopping.Worth``).

    Raises OptionError for both, and for candidates that the metric cannot compare.
    """
    asking = Asking(chat=chat, system=system)
    if candidates is None:
        kind = kind_of((metric_named(metric),), None)
        enough, batch = (None, None) if price is None else (Worth(metric=metric, price=price), _BATCH)
        n = DEFAULT_N if n is None else n
        return Sampled(parse=Reading(kind, None).answer, n=n, batch=batch, enough=enough, asking=asking)
    if n is not None or price is not None:
        raise OptionError("`candidates` are scored, not drawn: leave out `n` and `price`")
    listed = _listed(candidates)
    kind_of((metric_named(metric),), listed)
    return Enumerated(candidates=listed.pairs, asking=asking)


def _listed(candidates: str | ListLike[Any] | Mapping[str, Any]) -> Candidates:
    if isinstance(candidates, str):
        return parse_labels(candidates)
    if isinstance(candidates, Mapping):
        return Candidates(tuple((_value(value), text) for text, value in candidates.items()))
    return Candidates(tuple((_value(value), value if isinstance(value, str) else f"{value:g}") for value in candidates))


def _value(value: Any) -> float | str:
    return value if isinstance(value, str) else float(value)
