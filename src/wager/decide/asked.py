"""From rows to laws by a model: what ``MetricAwarePredictor`` asks."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wager.decide.law import Law
from wager.decide.template import Template
from wager.errors import OptionError

if TYPE_CHECKING:
    from wager.decide.estimate import Estimator
    from wager.llm import LLM


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelLaws:
    """Laws of rows by ``llm`` and ``estimator``. A row is a prompt, or a mapping that fills ``prompt``, a template.

    A row's draws follow from ``seed`` and its prompt, not from its place: rows in another order, or some of them, get
    the same laws. Copies share the model, so that scikit-learn may clone what holds it.
    """

    llm: LLM
    estimator: Estimator
    prompt: Template | None = None
    seed: int = 0

    def __call__(self, rows: ListLike[Any]) -> list[Law]:
        """(n,) laws. Raises ``OptionError`` for a row that is neither, and for a field that a row lacks."""
        from wager.decide.estimate import mixed

        prompts = [self._prompt(row) for row in rows]
        seeds = [mixed(self.seed, prompt) for prompt in prompts]
        return [found.law for found in self.estimator.estimate(self.llm, prompts, seeds)]

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelLaws:
        return self

    def _prompt(self, row: Any) -> str:
        if isinstance(row, str):
            return str(row)
        if not isinstance(row, Mapping) or self.prompt is None:
            raise OptionError(f"the row {row!r} is no prompt: give texts, or mappings and a template as `prompt`")
        self.prompt.check(row)
        return self.prompt.fill(row)
