"""Coordinate descent over settings: each is tried against the best so far, in turns, and must be clearly better."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from wager.errors import OptionError
from wager.models.fidelity import FAITHFUL_AGREEMENT, FAITHFUL_KL
from wager.models.tuned import Tuned
from wager.tuning.lab import Lab, Quality, said
from wager.tuning.law import seconds_per_token
from wager.types import JSON

CONTEXTS = (64, 1024)  # tokens before the forwards that are timed in a race
_ROUNDS, _FIRST_ROUNDS = 9, 3
_CLEARLY = 0.98  # of the time of the best: nearer ones are equal
_CHANCE = 0.05  # that as many rounds are won by two equal settings
_MUCH_NEARER = 0.5  # of the best's KL: then equal speed is enough

MERGED = "merged products"
KERNELS = "own kernels"
Coordinates = Mapping[str, ListLike[str]]
Progress = Callable[[str, int, int], None]
Cell = tuple[int, int]  # rows, context


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting against the best before it: ``ratio`` of seconds a token (None: not timed), and what became of it."""

    setting: Tuned
    change: str
    ratio: float | None
    n_rounds: int
    quality: Quality | None
    verdict: str
    taken: bool = False

    def to_json(self) -> JSON:
        found = self.quality
        return {
            "change": self.change,
            "ratio": self.ratio,
            "n_rounds": self.n_rounds,
            "kl": None if found is None else found.kl,
            "argmax_agreement": None if found is None else found.agreement,
            "verdict": self.verdict,
            "taken": self.taken,
            "setting": self.setting.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Race:
    """Seconds a forward of two settings, (rounds, cells) each, and seconds a committed token, (rounds,) each."""

    cells: list[Cell]
    forwards: tuple[list[list[float]], list[list[float]]]
    per_token: tuple[list[float], list[float]]

    @property
    def ratio(self) -> float:
        """Median over rounds of the second's time over the first's."""
        return float(np.median(np.divide(self.per_token[1], self.per_token[0])))

    @property
    def n_rounds(self) -> int:
        return len(self.per_token[0])

    @property
    def is_hopeless(self) -> bool:
        """Whether the second is slower, and won no round at all."""
        return self.ratio > 1 / _CLEARLY and all(b > a for a, b in zip(*self.per_token, strict=True))

    @property
    def is_faster(self) -> bool:
        """Whether the second is, and won more rounds than two equal settings would but by chance (sign test)."""
        if self.ratio >= _CLEARLY:
            return False
        n, won = self.n_rounds, sum(b < a for a, b in zip(*self.per_token, strict=True))
        as_good: int = sum(comb(n, k) for k in range(won, n + 1))
        return as_good <= _CHANCE * 2.0**n


def race(lab: Lab, first: Tuned, second: Tuned, *, contexts: ListLike[int], rng: np.random.Generator) -> Iterator[Race]:
    """Rounds without end, what was measured so far after each. Order within a round is chance, and both take turns."""
    widths = sorted({*lab.widths(first), *lab.widths(second)})
    cells = [(width, context) for context in contexts for width in widths]
    done = Race(cells, ([], []), ([], []))
    while True:
        times: tuple[dict[Cell, float], dict[Cell, float]] = ({}, {})
        for i in rng.permutation(len(cells)):
            for which in rng.permutation(2):
                times[which][cells[i]] = lab.seconds((first, second)[which], *cells[i])
        for which, setting in enumerate((first, second)):
            done.forwards[which].append([times[which][cell] for cell in cells])
            done.per_token[which].append(per_token(times[which], lab.widths(setting), contexts))
        yield done


def per_token(times: Mapping[Cell, float], widths: ListLike[int], contexts: ListLike[int]) -> float:
    """Seconds a committed token under the law, the mean over contexts; drafts fit into the widest forward."""

    def forward_s(n_tokens: int, context: int) -> float:
        width = next((w for w in widths if w >= n_tokens), None)
        return np.inf if width is None else times[width, context]

    found = [seconds_per_token(lambda n, context=context: forward_s(n, context)) for context in contexts]  # type: ignore[misc]
    return float(np.mean(found))


def acceptable(quality: Quality) -> bool:
    """Whether a setting computes nearly what the reference profile does: the bound that imports are held to."""
    return bool(quality.kl <= FAITHFUL_KL and quality.agreement >= FAITHFUL_AGREEMENT)


@dataclass(slots=True)
class Search:
    """The best setting so far, and all that were tried. ``exact``: only what passes the self-check may be chosen."""

    lab: Lab
    best: Tuned
    exact: bool
    contexts: ListLike[int]
    deadline: float  # on time.monotonic()
    rng: np.random.Generator
    tried: list[Tried]
    n_left: int = 0

    def run(self, starts: ListLike[Tuned], coordinates: Coordinates, *, progress: Progress | None = None) -> None:
        """Try the starts, then one coordinate after the other, until a pass changes nothing or the time is up."""
        seen = {self.lab.effective(self.best)}
        if self.exact:
            self.lab.exactness(self.best)
        begun, total = time.monotonic(), max(1, int(self.deadline - time.monotonic()))
        for setting in starts:
            self._challenge(setting, seen)
        before = None
        while before != self.best:
            before = self.best
            for name, values in coordinates.items():
                for value in values:
                    if progress is not None:
                        progress("trying settings", min(int(time.monotonic() - begun), total - 1), total)
                    self._challenge(changed(self.best, name, value), seen)
        if progress is not None:
            progress("trying settings", total, total)

    def _challenge(self, setting: Tuned, seen: set[tuple[str, ...]]) -> None:
        """Compare a setting with the best, and take its place where it is better and may be taken."""
        if setting == self.best:
            return
        if time.monotonic() > self.deadline:
            self.n_left += 1
            return
        try:
            effective = self.lab.effective(setting)
        except OptionError as error:
            self.tried.append(Tried(setting, said(setting, since=self.best), None, 0, None, str(error)))
            return
        if effective not in seen:
            seen.add(effective)
            found = self._compare(setting)
            self.tried.append(found)
            if found.taken:
                self.best = setting
        self.lab.keep(self.best)

    def _compare(self, setting: Tuned) -> Tried:
        quality, verdict, taken = self.lab.quality(setting), "", False
        if not acceptable(quality):
            verdict = f"too far from the reference: at most KL {FAITHFUL_KL:g}, arg-max {FAITHFUL_AGREEMENT:.0%}"
        found = self._raced(setting, _FIRST_ROUNDS)
        if not verdict and self.exact and not found.is_hopeless:  # the check takes as long as a race
            reason = self.lab.exactness(setting).reason
            verdict = "" if reason is None else f"not bit-identical: {reason}"
        if not verdict and not found.is_hopeless:
            found = self._raced(setting, _ROUNDS)
            much_nearer = quality.kl < _MUCH_NEARER * self.lab.quality(self.best).kl
            if found.is_faster:
                self.lab.keep()  # equal graphs differ by where their memory lies: again, both compiled anew
                found = self._raced(setting, _ROUNDS)
            if found.is_faster:
                verdict, taken = "faster", True
            elif much_nearer and found.ratio <= 1 / _CLEARLY and found.n_rounds == _ROUNDS:
                verdict, taken = "as fast, and nearer to the reference", True
        if not verdict:
            verdict = "slower" if found.ratio > 1 / _CLEARLY else "not clearly faster"
        change = said(setting, since=self.best)
        return Tried(setting, change, found.ratio, found.n_rounds, quality, verdict, taken)

    def _raced(self, setting: Tuned, n_rounds: int) -> Race:
        """Against the best; fewer rounds where it is out of the question or the time is up."""
        for done in race(self.lab, self.best, setting, contexts=self.contexts, rng=self.rng):
            enough = done.n_rounds >= n_rounds or (done.n_rounds >= _FIRST_ROUNDS and done.is_hopeless)
            if enough or time.monotonic() > self.deadline:
                return done
        raise AssertionError("races do not end")


def changed(setting: Tuned, name: str, value: str) -> Tuned:
    """The setting with one coordinate moved; a value of "" leaves the property to the plugin."""
    if name == MERGED:
        return replace(setting, merge_products=value == "on")
    if name == KERNELS:
        return replace(setting, kernels=value == "on")
    properties = {other: old for other, old in setting.properties.items() if other != name}
    return replace(setting, properties={**properties, name: value} if value else properties)
