"""From what the model or the data says to a value: a number, a label, a set of labels or a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wager.decide.answers import alone, answer_in, canonical, number_in
from wager.decide.candidates import Candidates
from wager.decide.metrics import MetricInfo
from wager.decide.options import Kind
from wager.errors import OptionError

_WORD = re.compile(r"\w")


def kind_of(metrics: tuple[MetricInfo, ...], candidates: Candidates | None) -> Kind:
    """What answers are, by the metrics; numbers count as labels too. Raises ``OptionError`` where they do not agree."""
    kinds = {metric.kind: metric.spec for metric in metrics}
    if candidates is not None:
        own: Kind = "numbers" if candidates.numbers else "labels"
        if "numbers" in kinds and own == "labels":
            raise OptionError(
                f"--metric `{kinds['numbers']}` compares numbers, and the candidates are texts such as "
                f"`{candidates.values[0]}`: say what each stands for (--labels 'bad=1,good=5')"
            )
        kinds.setdefault(own, "--labels")
    if set(kinds) <= {"numbers", "labels"}:
        return "numbers" if "numbers" in kinds else "labels"
    if len(kinds) > 1:
        (a, b), *_ = zip(list(kinds), list(kinds)[1:], strict=False)
        raise OptionError(f"`{kinds[a]}` is about {a} and `{kinds[b]}` about {b}: ask for them in two runs")
    return next(iter(kinds))


@dataclass(frozen=True)
class Reading:
    """Reads answers of a ``kind``, where there are ``candidates`` only these (numbers: from the lowest to the highest).

    Without candidates an answer stands after "####" or "answer is", in a box, or in the last line. ``only_labels``:
    numbers between the candidates are no answers either. Raises ``OptionError`` for texts that cannot be told apart.
    """

    kind: Kind
    candidates: Candidates | None
    only_labels: bool = False

    def __post_init__(self) -> None:
        known: dict[str, tuple[Any, str]] = {}
        for value, text in self.candidates.pairs if self.candidates else ():
            other, first = known.setdefault(text.strip().casefold(), (value, text))
            if other != value:
                raise OptionError(
                    f"`{first}` and `{text}` differ by capital letters only, which do not count: take one out"
                )

    @cached_property
    def _texts(self) -> list[tuple[str, Any]]:
        """Texts that are no numbers, with their values, longest first."""
        pairs = self.candidates.pairs if self.candidates else ()
        named = {text.strip().casefold(): value for value, text in pairs if alone(text) != value}
        return sorted(named.items(), key=lambda pair: -len(pair[0]))

    def answer(self, text: str) -> Any:
        """The value that the model's ``text`` gives; None where it gives none."""
        return self._allowed(self._said(text))

    def target(self, text: str) -> Any:
        """The value of a cell; None where it is of another kind."""
        return self._allowed(self._written(text))

    def _allowed(self, value: Any) -> Any:
        return value if not self.only_labels or self.candidates is None or value in self.candidates.values else None

    def _said(self, text: str) -> Any:
        if self.candidates is None:
            return self._free(text)
        if self._texts:
            return self._named(text)
        low, high = min(self.candidates.numbers), max(self.candidates.numbers)
        return number_in(text, which="first", low=low, high=high, outside="clip", fractions=False)

    def _written(self, text: str) -> Any:
        if self.candidates is not None and self.kind == "labels":
            return dict(self._texts).get(text.strip().casefold())
        if self.kind == "numbers":
            named = dict(self._texts).get(text.strip().casefold())
            value = named if named is not None else alone(text)
            return value if value is not None else number_in(answer_in(text) or "")
        return self._free(text)

    def _free(self, text: str) -> Any:
        if self.kind == "texts":
            return text.strip() or None
        found = answer_in(text)
        if found is None:
            return None
        if self.kind == "numbers":
            return number_in(found)
        if self.kind == "sets":
            return frozenset(part for part in map(canonical, re.split(r"[,;]", found)) if part is not None)
        return canonical(found)

    def _named(self, text: str) -> Any:
        """The candidate that the text begins with, as a word of its own."""
        said = text.strip().casefold()
        for name, value in self._texts:
            if said.startswith(name) and not (_WORD.match(name[-1]) and _WORD.match(said[len(name) : len(name) + 1])):
                return value
        return None
