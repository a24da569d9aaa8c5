"""What a rule or a metric may be told beyond the law and the targets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from wager.errors import OptionError
from wager.types import F64

# What a law's values (and the targets) are: numbers; anything that is equal or not; label sets or vectors; texts.
Kind = Literal["numbers", "labels", "sets", "texts"]
# What a prediction is. A ranking names items, best first; a law is a ``Law``.
Gives = Literal["number", "label", "set", "ranking", "law", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of rules and metrics; each says which it takes, and refuses the others.

    ``grid``: the numbers that may be predicted. ``labels``: all labels; for ordinal ones in order, the places 0, 1, ...
    being what is compared. ``costs`` (L, L): row = target, column = prediction, in the order of ``labels``.
    ``priors``: share of each label among the targets. ``positive``: the label whose probability is the score.
    ``reference``: target numbers that ranks are taken in. ``candidates``: texts that may be predicted beyond the law's
    own. ``fallback``: what an empty law predicts; None leaves the row unanswered.
    """

    grid: tuple[float, ...] | None = None
    labels: tuple[Any, ...] | None = None
    costs: tuple[tuple[float, ...], ...] | None = None
    priors: Mapping[Any, float] | None = None
    positive: Any = None
    reference: tuple[float, ...] | None = None
    candidates: tuple[str, ...] | None = None
    fallback: Any = None

    def given(self) -> set[str]:
        """Names of the options that were given, ``fallback`` left out: every rule takes it."""
        names = set(self.__dataclass_fields__) - {"fallback"}
        return {name for name in names if getattr(self, name) is not None}

    def only(self, takes: Iterable[str]) -> Options:
        """These options without those that a rule does not take, for options shared by several rules."""
        return replace(self, **dict.fromkeys(self.given() - set(takes)))

    def learnt(self, targets: ListLike[Any], takes: Iterable[str]) -> Options:
        """These options with what calibration targets tell, where it is taken and was not given: priors, reference."""
        counts = Counter(targets) if "priors" in takes and self.priors is None else None
        options = self if counts is None else replace(self, priors={y: c / len(targets) for y, c in counts.items()})
        if "reference" in takes and self.reference is None:
            options = replace(options, reference=tuple(float(y) for y in targets))
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a rule or a metric goes by: the number after the name's colon (NaN where it has none), and the options."""

    knob: float = math.nan
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """The number a name takes after a colon, as in ``pinball:0.9``. A default of inf stands for "no limit"."""

    name: str
    default: float
    low: float
    high: float = math.inf
    whole: bool = False
    open: bool = False  # the bounds themselves are refused

    def read(self, owner: str, text: str | None) -> float:
        """The number in ``text``, or the default for None. Raises ``OptionError`` for one outside the bounds."""
        if text is None:
            return self.default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        inside = self.low < value < self.high if self.open else self.low <= value <= self.high
        if not inside or (self.whole and value % 1):
            number = "a whole number" if self.whole else "a number"
            bounds = f"({self.low:g}, {self.high:g})" if self.open else f"[{self.low:g}, {self.high:g}]"
            raise OptionError(f"{owner}:{text} is not understood: {self.name} is {number} in {bounds}")
        return value


def split_spec(spec: str) -> tuple[str, str | None]:
    """``NAME:VALUE`` or ``NAME@VALUE`` in two; no value gives None."""
    name, mark, value = spec.replace("@", ":").partition(":")
    return name, value if mark else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What metrics and rules have in common. ``asked`` is the knob's value; ``takes`` and ``must`` name options."""

    name: str
    kind: Kind
    gives: Gives
    knob: Knob | None = None
    asked: float = math.nan
    takes: frozenset[str] = frozenset()
    must: frozenset[str] = frozenset()


Named = TypeVar("Named", bound=Entry)
_NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def entry_named(what: str, spec: str, known: Mapping[str, Named], *, aliases: Mapping[str, str] = _NO_ALIASES) -> Named:
    """The entry of ``known`` that ``NAME``, ``NAME:VALUE`` or ``NAME@VALUE`` stands for; ``what`` it is, for errors.

    Raises ``OptionError`` for an unknown name or a bad value.
    """
    name, value = split_spec(spec)
    name = aliases.get(name, name)
    if name not in known:
        raise OptionError(f"`{what}` is {spec!r}: give one of {', '.join(known)}")
    info = known[name]
    if info.knob is None:
        if value is not None:
            raise OptionError(f"`{what}` is {spec!r}: {name} takes no value, give {name!r}")
        return info
    return replace(info, asked=info.knob.read(name, value))


def check_given(owner: str, options: Options, *, takes: frozenset[str], must: frozenset[str] = frozenset()) -> None:
    """Raises ``OptionError`` for an option that ``owner`` does not take, or lacks."""
    strange = sorted(options.given() - takes)
    if strange:
        allowed = ", ".join(sorted(takes)) or "none"
        raise OptionError(f"`{strange[0]}` was given, and {owner} does not use it: leave it out (it takes {allowed})")
    missing = sorted(must - options.given())
    if missing:
        raise OptionError(f"{owner} needs `{missing[0]}`: give it, or fit on rows with targets where it can be learnt")


def places(values: Iterable[Any], labels: tuple[Any, ...] | None) -> F64:
    """(n,) the place of each value among ordered ``labels``; without labels the values must be numbers themselves.

    Raises ``OptionError`` for a value that is not among the labels, or no number.
    """
    if labels is None:
        listed = list(values)
        if not all(isinstance(value, Real) for value in listed):
            raise OptionError(f"labels {listed[:3]!r} are no numbers: give `labels`, all of them in order")
        return np.array(listed, dtype=np.float64)
    index = {label: place for place, label in enumerate(labels)}
    return np.array([index[member(value, index)] for value in values], dtype=np.float64)


def member(value: Any, labels: Iterable[Any]) -> Any:
    """``value``, if it is one of ``labels``. Raises ``OptionError`` otherwise."""
    if value not in labels:
        raise OptionError(f"{value!r} is not among the labels {list(labels)!r}: add it, or parse answers to these")
    return value
