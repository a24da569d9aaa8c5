"""Proof of a verification rule by going through everything that can happen on small models.

A rule asks ``Dice``. Scripted dice answer every question in every possible way, in turn, and multiply up the chances;
over all drafts of a kind, with theirs, that gives the exact law of the text, to be compared with the target's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from wager.tree import contexts
from wager.types import F32, F64, Draft, DraftKind, Law, Sampling, Sequence, Verdict
from wager.verify.base import Decide, Rows
from wager.verify.mass import Mass

Context = tuple[int, ...]  # the tokens since the start of the round
TextLaw = dict[Context, float]
Drafts = Iterable[tuple[float, Draft]]  # every draft that may come, and its chance
PLAIN = Sampling(temperature=1.0)
_PROMPT = [0]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Target ``p`` and draft model ``q``: a law (V,) for every context of up to ``depth`` tokens."""

    vocab_size: int
    depth: int
    p: Mapping[Context, F64]
    q: Mapping[Context, F64]
    _index: dict[Context, int] = field(init=False)
    _logits: F64 = field(init=False)
    _laws: dict[Context, Law] = field(init=False)

    def __post_init__(self) -> None:
        known = list(all_contexts(self.vocab_size, self.depth))
        with np.errstate(divide="ignore"):
            logits = np.log(np.array([self.p[context] for context in known]))
        ids = {context: np.flatnonzero(self.q[context] > 0) for context in known}
        object.__setattr__(self, "_index", {context: i for i, context in enumerate(known)})
        object.__setattr__(self, "_logits", logits)
        object.__setattr__(self, "_laws", {c: Law(some, self.q[c][some]) for c, some in ids.items()})

    def law(self, context: Context) -> Law:
        """``q`` as a draft carries it."""
        return self._laws[context]

    def rows(self, draft: Draft, sampling: Sampling = PLAIN) -> Rows:
        index = [self._index[context] for context in ((), *texts(draft))]
        seq = Sequence(0, list(_PROMPT), len(_PROMPT), sampling, seed=0)
        # float64, so that what is proved to 1e-12 is the rule and not the rounding of logits
        return Rows(cast(F32, self._logits), index, seq, draft)


def all_contexts(vocab_size: int, depth: int) -> Iterator[Context]:
    for n in range(depth + 1):
        yield from itertools.product(range(vocab_size), repeat=n)


def random_pair(vocab_size: int, depth: int, *, seed: int, style: str = "mixed") -> Pair:
    """Laws of one style, or one drawn for every context: see ``_styled``."""
    rng = np.random.default_rng(seed)
    p, q = {}, {}
    for context in all_contexts(vocab_size, depth):
        here = str(rng.choice(STYLES)) if style == "mixed" else style
        p[context], q[context] = _styled(rng, vocab_size, here)
    return Pair(vocab_size, depth, p, q)


STYLES = ("dense", "dense", "peaked", "zeros", "equal", "disjoint", "certain", "certain-draft")


def _styled(rng: np.random.Generator, vocab_size: int, style: str) -> tuple[F64, F64]:
    sharpness = 0.3 if style == "peaked" else 1.0
    p, q = rng.dirichlet(np.full(vocab_size, sharpness), 2)
    order = rng.permutation(vocab_size)
    if style == "zeros":
        p[order[0]] = q[order[-1]] = 0
    if style == "equal":
        q = p.copy()
    if style == "disjoint":
        p[order[: vocab_size // 2]] = q[order[vocab_size // 2 :]] = 0
    if style == "certain":
        p = np.eye(vocab_size)[order[0]]
    if style == "certain-draft":
        q = np.eye(vocab_size)[order[0]]
    return p / p.sum(), q / q.sum()


# -- dice that do everything ------------------------------------------------------------------------------------------


class ScriptedDice:
    """Answers ``script`` (one index a question), then always the first possible; ``others`` are what else could be."""

    def __init__(self, script: Context) -> None:
        self.script = script
        self.chance = 1.0
        self.others: list[Context] = []
        self._n_asked = 0

    def accept(self, probability: float) -> bool:
        assert probability == probability, "accept was asked with a probability of NaN"
        probability = min(max(float(probability), 0.0), 1.0)
        return self._answer([1 - probability, probability]) == 1

    def draw(self, weights: F64 | Mass) -> int:
        shares: list[float] = (weights.weights() if isinstance(weights, Mass) else weights).tolist()
        total = sum(shares)
        assert min(shares) >= 0 < total < np.inf, f"draw was asked with weights {weights}"
        return self._answer([share / total for share in shares])

    def _answer(self, chances: list[float]) -> int:
        n = self._n_asked
        self._n_asked += 1
        if n < len(self.script):
            answer = self.script[n]
        else:
            possible = [i for i, chance in enumerate(chances) if chance > 0]
            answer = possible[0]
            self.others += [(*self.script, other) for other in possible[1:]]
            self.script = (*self.script, answer)
        self.chance *= chances[answer]
        return answer


def outcomes(decide: Decide, rows: Rows, draft: Draft) -> dict[Verdict, float]:
    """Every verdict on one draft with its chance. Raises AssertionError where a verdict names no path of the draft."""
    found: dict[Verdict, float] = {}
    todo: list[Context] = [()]
    while todo:
        dice = ScriptedDice(todo.pop())
        verdict = decide(rows, draft, dice)
        if verdict not in found:
            _check_path(verdict, draft)
        found[verdict] = found.get(verdict, 0.0) + dice.chance
        todo += dice.others
    return found


def _check_path(verdict: Verdict, draft: Draft) -> None:
    first, parent = contexts(draft), -1
    for node in verdict.path:
        above = int(draft.parents[node])
        assert (first[above] if above >= 0 else -1) == parent, f"{verdict.path} is no path of {draft}"
        assert first[node] == node, f"{verdict.path} names a duplicate, not the first of its context, in {draft}"
        parent = node


# -- laws of texts ----------------------------------------------------------------------------------------------------


def texts(draft: Draft) -> list[Context]:
    """(n,) the tokens from the root to each node."""
    found: list[Context] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def emitted(decide: Decide, pair: Pair, drafts: Drafts, *, sampling: Sampling = PLAIN) -> TextLaw:
    """Law of what one round gives: the accepted tokens and the one after them."""
    law: TextLaw = {}
    for chance, draft in drafts:
        text_of = texts(draft)
        for verdict, part in outcomes(decide, pair.rows(draft, sampling), draft).items():
            text = (*(text_of[verdict.path[-1]] if verdict.path else ()), verdict.token)
            law[text] = law.get(text, 0.0) + chance * part
    return law


def finished(law: TextLaw, p: Mapping[Context, F64], length: int) -> TextLaw:
    """Law of the first ``length`` tokens where short texts go on with the target ``p``."""
    whole: TextLaw = {}
    todo = list(law.items())
    while todo:
        text, chance = todo.pop()
        if len(text) >= length:
            whole[text[:length]] = whole.get(text[:length], 0.0) + chance
        else:
            todo += [((*text, v), chance * float(p[text][v])) for v in np.flatnonzero(p[text] > 0).tolist()]
    return whole


def distance(a: TextLaw, b: TextLaw) -> float:
    """Half the sum of differences: total variation, of laws that sum to 1."""
    return sum(abs(a.get(text, 0.0) - b.get(text, 0.0)) for text in {*a, *b}) / 2


def bias(decide: Decide, pair: Pair, drafts: Drafts) -> float:
    """Total variation between the first ``depth`` + 1 tokens under a rule and under the target."""
    length = pair.depth + 1
    law = finished(emitted(decide, pair, drafts), pair.p, length)
    return distance(law, finished({(): 1.0}, pair.p, length))


def n_accepted(law: TextLaw) -> float:
    """Mean number of accepted tokens of an ``emitted`` law."""
    return sum(chance * (len(text) - 1) for text, chance in law.items())


# -- all drafts of a kind ---------------------------------------------------------------------------------------------

More = Callable[[Pair, Context], bool]  # whether a drafter that has drawn this far draws once more


def always(pair: Pair, context: Context) -> bool:
    return True


def keep_then_stop(least: float) -> More:
    """No further than a token with q below ``least``, which itself is kept."""
    return lambda pair, context: not context or bool(pair.q[context[:-1]][context[-1]] >= least)


def stop_before(least: float) -> More:
    """Only where the largest q, known before drawing, is at least ``least``."""
    return lambda pair, context: bool(pair.q[context].max() >= least)


def stop_unsure(nats: float) -> More:
    """Only where the entropy of q is at most ``nats``."""

    def more(pair: Pair, context: Context) -> bool:
        q = pair.law(context).probs
        return float(-(q * np.log(q)).sum()) <= nats

    return more


def iid(
    pair: Pair,
    lengths: ListLike[int],
    *,
    trunk: int = 0,
    more: More = always,
    by_level: bool = False,
    laws: bool = True,
) -> Iterator[tuple[float, Draft]]:
    """Independent sequences of up to ``lengths`` tokens each that share their first ``trunk`` ones.

    Nodes are laid out sequence by sequence, or level by level; equal draws stay nodes of their own.
    """
    for stem_chance, stem in _sequences(pair, (), trunk, more):
        ends = [_sequences(pair, stem, n if len(stem) == trunk else len(stem), more) for n in lengths]
        for drawn in itertools.product(*ends):
            chance = stem_chance * float(np.prod([part for part, _ in drawn]))
            yield chance, _side_by_side(pair, len(stem), [text for _, text in drawn], by_level, laws)


def _sequences(pair: Pair, start: Context, length: int, more: More) -> list[tuple[float, Context]]:
    """All texts of up to ``length`` tokens that begin with ``start``, with their chances under q."""
    if len(start) >= length or not more(pair, start):
        return [(1.0, start)]
    law = pair.law(start)
    return [
        (float(chance) * rest, text)
        for token, chance in zip(law.ids.tolist(), law.probs, strict=True)
        for rest, text in _sequences(pair, (*start, token), length, more)
    ]


def _side_by_side(pair: Pair, n_shared: int, sequences: ListLike[Context], by_level: bool, laws: bool) -> Draft:
    own = [(k, depth) for k, text in enumerate(sequences) for depth in range(n_shared, len(text))]
    if by_level:
        own.sort(key=lambda place: (place[1], place[0]))
    last = [n_shared - 1] * len(sequences)
    parents, found = list(range(-1, n_shared - 1)), [sequences[0][: i + 1] for i in range(n_shared)]
    for k, depth in own:
        parents.append(last[k])
        last[k] = len(found)
        found.append(sequences[k][: depth + 1])
    return _draft(pair, found, parents, "iid", laws)


def _draft(pair: Pair, found: ListLike[Context], parents: ListLike[int], kind: DraftKind, laws: bool) -> Draft:
    return Draft(
        np.array([text[-1] for text in found], np.int32),
        np.array(parents, np.int32),
        tuple(pair.law(text[:-1]) for text in found) if laws else None,
        kind,
    )


Children = Callable[[Pair, Context, int], Iterable[tuple[float, Context]]]  # lists of children, and their chances


def without_replacement(
    pair: Pair,
    widths: ListLike[int],
    *,
    more: More = always,
    kind: DraftKind = "without_replacement",
    laws: bool = True,
) -> Iterator[tuple[float, Draft]]:
    """Trees whose nodes at depth d have ``widths[d]`` children, drawn one after another without putting back."""
    return _trees(pair, widths, more, _ordered_draws, kind, laws)


def likeliest(pair: Pair, widths: ListLike[int], *, more: More = always) -> Iterator[tuple[float, Draft]]:
    """The one tree of the ``widths[d]`` likeliest tokens under q, some of them perhaps impossible there."""
    return _trees(pair, widths, more, _top, "deterministic", laws=False)


def _ordered_draws(pair: Pair, context: Context, n: int) -> Iterator[tuple[float, Context]]:
    q = pair.law(context)
    for places in itertools.permutations(range(len(q.ids)), min(n, len(q.ids))):
        chance, left = 1.0, q.probs.copy()
        for place in places:
            chance *= float(left[place] / left.sum())
            left[place] = 0
        yield chance, tuple(q.ids[list(places)].tolist())


def _top(pair: Pair, context: Context, n: int) -> Iterator[tuple[float, Context]]:
    yield 1.0, tuple(np.argsort(-pair.q[context], kind="stable")[:n].tolist())


def _trees(
    pair: Pair, widths: ListLike[int], more: More, children: Children, kind: DraftKind, laws: bool
) -> Iterator[tuple[float, Draft]]:
    """Level by level: every way of giving the nodes of a level their children goes on as a forest of its own."""
    todo: list[tuple[float, list[Context], list[int], int]] = [(1.0, [], [], 0)]
    while todo:
        chance, found, parents, depth = todo.pop()
        level = [i for i, text in enumerate(found) if len(text) == depth] if depth else [-1]
        context_of = {i: found[i] if i >= 0 else () for i in level}
        level = [i for i in level if more(pair, context_of[i])] if depth < len(widths) else []
        if not level:
            yield chance, _draft(pair, found, parents, kind, laws)
            continue
        for lists in itertools.product(*(list(children(pair, context_of[i], widths[depth])) for i in level)):
            new = [(i, token) for i, (_, tokens) in zip(level, lists, strict=True) for token in tokens]
            grown = [*found, *((*context_of[i], token) for i, token in new)]
            part = chance * float(np.prod([part for part, _ in lists]))
            todo.append((part, grown, [*parents, *(i for i, _ in new)], depth + 1))
