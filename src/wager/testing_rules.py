"""Executable contract of verification rules: ``check_rule`` goes through everything that can happen on small models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from wager.proof import (
    Drafts,
    More,
    Pair,
    always,
    distance,
    emitted,
    finished,
    iid,
    keep_then_stop,
    likeliest,
    random_pair,
    stop_before,
    stop_unsure,
    without_replacement,
)
from wager.types import Draft, DraftKind, Sampling
from wager.verify.base import Decide, RuleInfo

STOPS: dict[str, More] = {
    "": always,
    ", keep then stop": keep_then_stop(0.35),
    ", stop before a small peak": stop_before(0.6),
    ", stop before when unsure": stop_unsure(0.9),
}
_STYLES = ("zeros", "equal", "disjoint", "certain", "peaked")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A family of drafts, and the size of the models it is tried on."""

    name: str
    vocab_size: int
    depth: int
    drafts: Callable[[Pair], Drafts]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    name: str
    style: str
    pair: Pair
    form: Form


def cases(info: RuleInfo, *, seed: int = 0) -> Iterator[Case]:
    """Every form of draft that a rule takes, on models of mixed style, of full support and of one more style."""
    for kind in sorted(info.kinds):
        for i, form in enumerate(forms(info, kind)):
            for style in ("mixed", "dense", _STYLES[i % len(_STYLES)]) if info.lossless else ("mixed",):
                pair = random_pair(form.vocab_size, form.depth, seed=seed + i, style=style)
                name = f"{kind} drafts, {form.name}, {style} laws over {form.vocab_size} tokens, seed {seed + i}"
                yield Case(name, style, pair, form)


def forms(info: RuleInfo, kind: DraftKind) -> list[Form]:
    """The forms of drafts of one kind, without laws where the rule does not need them."""
    empty = Form("empty", 3, 0, lambda pair: [(1.0, _empty(kind))])
    return [empty, *(_iid(info) if kind == "iid" else _drawn(info, kind))]


def _empty(kind: DraftKind) -> Draft:
    return Draft(np.empty(0, np.int32), np.empty(0, np.int32), None, kind)


def _iid(info: RuleInfo) -> list[Form]:
    def form(
        name: str, v: int, lengths: tuple[int, ...], *, trunk: int = 0, more: More = always, by_level: bool = False
    ) -> Form:
        def drafts(pair: Pair) -> Drafts:
            return iid(pair, lengths, trunk=trunk, more=more, by_level=by_level, laws=info.needs_laws)

        return Form(name, v, max(lengths), drafts)

    found = [form(f"one path{stop}", 3, (3,), more=more) for stop, more in STOPS.items()]
    if not info.trees:
        return [*found, form("one path", 4, (2,))]
    found += [form(f"two sequences{stop}", 2, (3, 3), more=more, by_level=True) for stop, more in STOPS.items()]
    found += [
        form("two sequences", 3, (2, 2)),
        form("one sequence longer than the other", 3, (1, 2), by_level=True),
        form("two sequences after a trunk", 2, (3, 3), trunk=1),
        form("two sequences after a trunk, keep then stop", 2, (3, 3), trunk=1, more=keep_then_stop(0.35)),
    ]
    if info.max_children == 0 or info.max_children >= 3:
        found += [form("three sequences", 2, (2, 2, 2)), form("three tokens", 3, (1, 1, 1))]
    return found


def _drawn(info: RuleInfo, kind: DraftKind) -> list[Form]:
    def form(v: int, widths: tuple[int, ...], stop: str = "") -> Form:
        def drafts(pair: Pair) -> Drafts:
            if kind == "deterministic":
                return likeliest(pair, widths, more=STOPS[stop])
            return without_replacement(pair, widths, more=STOPS[stop], kind=kind, laws=info.needs_laws)

        return Form(f"{'-'.join(map(str, widths))} children{stop}", v, len(widths), drafts)

    found = [form(3, (1, 1, 1), stop) for stop in STOPS]
    if info.trees:
        found += [form(2, (2, 2, 1), stop) for stop in list(STOPS)[:2]]
        found += [form(3, widths) for widths in ((2, 1), (1, 2))] + [form(3, (3,)), form(4, (2,))]
    return found


def check_rule(info: RuleInfo, *, seed: int = 0, tolerance: float = 1e-12) -> None:
    """Raises AssertionError, saying with which drafts and models, where a rule breaks what ``info`` says of it.

    Every verdict is a path of the draft and names the first of equal nodes; at temperature 0 the text is the target's
    most likely one; a lossless rule's text has the target's law, to ``tolerance`` in total variation. For rules that
    ask dice (``info.decide``); one that hashes noise itself cannot be gone through.
    """
    assert info.decide is not None, f"rule {info.name!r} has no `decide`: write it over Dice to have it proved"
    for case in cases(info, seed=seed):
        try:
            _check_case(info.decide, case, tolerance if info.lossless else None)
        except AssertionError as error:
            raise AssertionError(f"rule {info.name!r}, {case.name}: {error}") from error


def _check_case(decide: Decide, case: Case, tolerance: float | None) -> None:
    pair, length = case.pair, case.pair.depth + 1
    greedy = {context: np.eye(pair.vocab_size)[int(p.argmax())] for context, p in pair.p.items()}
    ways = [(pair.p, Sampling(temperature=1.0), tolerance), (greedy, Sampling(), 1e-12)]
    for p, sampling, most in ways if case.style == "mixed" else ways[:1]:
        law = finished(emitted(decide, pair, case.form.drafts(pair), sampling=sampling), p, length)
        found = distance(law, finished({(): 1.0}, p, length))
        what = f"the text is {found:.2g} in total variation from the target's at temperature {sampling.temperature:g}"
        assert most is None or found <= most, what
