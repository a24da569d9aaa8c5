"""Draft what all evidence together makes likeliest: repeated text, and what the target itself said before.

Each kind of evidence is believed as often as it has come true. Where the target samples, the token is drawn from that
belief in the race that the target will run, on the same noise: of two equally likely tokens the draft then names the
one that the target will choose, which no choice of the likeliest token could (cf. Daliri et al., 2408.07978).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from wager.drafters.base import DrafterInfo, refuse_argument
from wager.drafters.prior import Prior, load_prior
from wager.drafters.successors import Row, Successors, learn_round
from wager.drafters.suffix import FinishedTexts, Suffix
from wager.sampling import Noise
from wager.stopwatch import Stopwatch
from wager.types import EMPTY, Draft, Drafter, DraftKind, Limits, Priced, Seen, Sequence, Verdict

_N_SUCCESSORS = 8
_STALE = 16
_MAX_ROWS = 1 << 17
_ORDERS = (2, 1)  # lengths of context of the tables, best first
_LEAST = 0.02  # a draft ends where its tokens are less likely than this to be accepted
_NEVER = 1e-12  # what is less likely does not enter the race
_STRENGTH = 8.0  # a first guess weighs as much as this many trials
_FORGET = 0.995  # weight of the past after each trial
_STREAKS = 4  # longer ones count as this one
_COPY_DEPTHS = 6  # deeper tokens of a copy are counted with this one
# First guesses: of a copy by matched tokens (1, 2, 3-4, 5-8, 9-16, more), of the best successor by streak (0: from the
# prior) where the target is greedy, of any successor of a row, on answers of a 135M model.
_COPY = (0.2, 0.5, 0.65, 0.75, 0.85, 0.95)
_FIRST = (0.17, 0.17, 0.44, 0.63, 0.75)
_IN_ROW = 0.4
_ASKING_S = 2.5e-4  # first guess of what drafting for a sequence, and learning from it, takes
_DEEPER = 0.6  # of what could fail at the first token of a copy, this share can at the next ones

_Key = tuple[object, ...]


class Beliefs:
    """How often each kind of evidence came true, of late."""

    def __init__(self) -> None:
        self._counts: dict[_Key, tuple[float, float]] = {}  # hits, trials

    def of(self, key: _Key, guess: float) -> float:
        hits, trials = self._counts.get(key, (0.0, 0.0))
        return (hits + _STRENGTH * guess) / (trials + _STRENGTH)

    def count(self, key: _Key, hit: bool) -> None:
        hits, trials = self._counts.get(key, (0.0, 0.0))
        self._counts[key] = hits * _FORGET + hit, trials * _FORGET + 1


class _Evidence(NamedTuple):
    """About one position: the ``copy`` (None: nothing to copy) and the ``row`` of successors, with their keys."""

    copy: int | None
    copy_key: _Key
    copy_guess: float
    row: Row | None
    order: int  # context length of the row; 0: the prior


class _Guess(NamedTuple):
    """A drafted token, what it was drafted from, and how likely it was believed to be."""

    token: int
    belief: float
    evidence: _Evidence


@dataclass(slots=True, eq=False)
class _Reading:
    """What is kept for one sequence: its noise, and the guesses of the last draft, after ``n_tokens``."""

    noise: Noise
    n_tokens: int = 0
    guesses: list[_Guess] = field(default_factory=list)


class Blend:
    """Drafts one path. ``coupled``: by the walk's noise where the target samples.

    A *copy* is what ``source``, a drafter from text, would draft. A *row* has the largest logits of the target the last
    time it read the same two last tokens, else the same last one, in any sequence, else those of ``prior``. The copy is
    believed by its key (support, depth), and the successors share by their logits what it leaves of theirs (context
    length, streak of equal best ones).
    """

    name = "blend"
    has_laws = False

    def __init__(self, source: Drafter, *, coupled: bool = True, prior: Prior | None = None) -> None:
        self.kind: DraftKind = "coupled" if coupled else "deterministic"
        self._source = source
        self._reader = source if isinstance(source, Priced) else None
        self._coupled = coupled
        self._prior = prior
        self._tables = [(order, Successors(n=_N_SUCCESSORS, stale=_STALE, n_rows=_MAX_ROWS)) for order in _ORDERS]
        self._beliefs = Beliefs()
        self._readings: dict[int, _Reading] = {}
        self._asked: dict[int, int] = {}  # sequences that this step drafts for, and their places
        self._watch = Stopwatch(_ASKING_S)

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        self._watch.start()
        drafts = [EMPTY] * len(seqs)
        self._asked = {seqs[i].id: i for i, x in enumerate(limits) if min(x.n_nodes, x.depth, x.width) > 0}
        mine = list(self._asked.values())
        some = [seqs[i] for i in mine]
        paths = [limits[i] if limits[i].width == 1 else replace(limits[i], width=1) for i in mine]
        copies = self._source.propose(some, paths)
        for i, seq, path, copy in zip(mine, some, paths, copies, strict=True):
            drafts[i] = self._draft(seq, path, copy)
        self._watch.stop()
        return drafts

    def _draft(self, seq: Sequence, limit: Limits, copy: Draft) -> Draft:
        reading = self._readings.get(seq.id)
        if reading is None or (reading.noise.seed, reading.noise.sample) != (seq.seed, seq.sample):
            reading = self._readings[seq.id] = _Reading(Noise(seq.seed, seq.sample))
        reading.n_tokens, reading.guesses = len(seq.tokens), []
        before, copied = seq.tokens[-max(_ORDERS) :], copy.tokens.tolist()
        chance = 1.0
        for depth in range(min(limit.n_nodes, limit.depth)):
            following = copied[depth] if depth < len(copied) else None
            guess = self._guess(seq, reading.noise, self._evidence(before, following, copy.support, depth), depth)
            if guess is None or chance * guess.belief < _LEAST:
                break
            reading.guesses.append(guess)
            chance *= guess.belief
            if guess.token != following:
                copied = []
            before = [*before[-max(_ORDERS) + 1 :], guess.token]
        return _chain(reading.guesses, self.kind, copy.support)

    def _evidence(self, before: ListLike[int], copy: int | None, support: int, depth: int) -> _Evidence:
        level = min((support - 1).bit_length(), len(_COPY) - 1) if support > 0 else 0
        guess = _COPY[level] if depth == 0 else 1 - (1 - _COPY[level]) * _DEEPER
        key = ("copy", level, min(depth, _COPY_DEPTHS))
        for order, table in self._tables:
            row = table.get(tuple(before[-order:])) if len(before) >= order else None
            if row is not None:
                return _Evidence(copy, key, guess, row, order)
        return _Evidence(copy, key, guess, None if self._prior is None else self._prior.row(before[-1]), 0)

    def _guess(self, seq: Sequence, noise: Noise, evidence: _Evidence, depth: int) -> _Guess | None:
        """The token that evidence points to; None where there is no evidence."""
        weights: dict[int, float] = defaultdict(float)
        temperature = seq.sampling.temperature
        left = 1.0
        if evidence.copy is not None:
            weights[evidence.copy] = self._beliefs.of(evidence.copy_key, evidence.copy_guess)
            left -= weights[evidence.copy]
        if evidence.row is not None:
            for token, share in zip(evidence.row.ids, self._shares(evidence, temperature), strict=False):
                if share > _NEVER:
                    weights[token] += left * share
        if not weights:
            return None
        if temperature == 0 or not self._coupled:
            token = max(weights, key=weights.__getitem__)
        else:
            ids = list(weights)
            race = noise.few_exponentials(seq.n_output + depth, ids)
            token = min(zip(race, ids, strict=True), key=lambda runner: runner[0] / weights[runner[1]])[1]
        return _Guess(token, weights[token], evidence)

    def _shares(self, evidence: _Evidence, temperature: float) -> list[float]:
        """Of the first successors of a row, how likely each follows where the copy does not; of the best one alone
        where the target is greedy.
        """
        row, key = evidence.row, _row_key(evidence)
        assert row is not None
        if temperature == 0:
            return [self._beliefs.of(("first", *key), _FIRST[min(row.streak, _STREAKS)])]
        weights = [math.exp((logit - row.logits[0]) / temperature) for logit in row.logits]
        scale = self._beliefs.of(("row", *key), _IN_ROW) / sum(weights)
        return [weight * scale for weight in weights]

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """What was committed says which guesses were right, fed or not; and the target has said more.

        Of those that nothing was asked for nothing is learnt: it takes longer than a step may be slowed down by.
        """
        self._watch.start()
        self._source.observe(seqs, drafts, verdicts, seen)
        for _, table in self._tables:
            table.next_round()
        for seq, draft, verdict, said in zip(seqs, drafts, verdicts, seen, strict=True):
            if seq.id not in self._asked:
                continue
            reading = self._readings[seq.id]
            truth = seq.tokens[reading.n_tokens :]
            for guess, token in zip(reading.guesses, truth, strict=False):
                self._judge(guess.evidence, token, greedy=seq.sampling.temperature == 0)
                if guess.token != token:
                    break
            before = seq.tokens[max(0, reading.n_tokens - max(_ORDERS)) : reading.n_tokens]
            learn_round(self._tables, before, draft, verdict, said)
        self._watch.stop()
        self._watch.lap(len(self._asked))
        self._asked = {}

    def _judge(self, evidence: _Evidence, token: int, *, greedy: bool) -> None:
        if evidence.copy is not None:
            self._beliefs.count(evidence.copy_key, evidence.copy == token)
        if evidence.row is None or evidence.copy == token:
            return
        ids, key = evidence.row.ids, _row_key(evidence)
        if greedy:
            self._beliefs.count(("first", *key), token == ids[0])
        else:
            self._beliefs.count(("row", *key), token in ids)

    def forget(self, seq_id: int) -> None:
        """What the target said stays."""
        self._readings.pop(seq_id, None)
        self._asked.pop(seq_id, None)
        self._source.forget(seq_id)

    def explain(self, seq_id: int) -> str:
        """What each token of the last draft rests on, and how much it was believed."""
        reading = self._readings.get(seq_id)
        said = {0: "prior"} | {order: f"said after {order}" for order in _ORDERS}
        return ", ".join(
            f"{'copy' if guess.token == guess.evidence.copy else said[guess.evidence.order]} {guess.belief:.2f}"
            for guess in (reading.guesses if reading is not None else ())
        )

    def seconds(self, n_tokens: int) -> float:
        """Drafting and learning, as measured; a draft ends long before the limits where evidence is weak."""
        return self._watch.seconds if n_tokens else 0.0

    def prices(self, seq: Sequence, n_tokens: int) -> tuple[float, float]:
        """To draft and learn, and what the drafter from text has to read before."""
        return self.seconds(n_tokens), 0.0 if self._reader is None else self._reader.prices(seq, n_tokens)[1]


def _row_key(evidence: _Evidence) -> _Key:
    assert evidence.row is not None
    return evidence.order, min(evidence.row.streak, _STREAKS)


def _chain(guesses: ListLike[_Guess], kind: DraftKind, support: int) -> Draft:
    if not guesses:
        return EMPTY
    n = len(guesses)
    return Draft(
        np.array([guess.token for guess in guesses], np.int32),
        np.arange(-1, n - 1, dtype=np.int32),
        kind=kind,
        support=support,
        confidence=np.array([guess.belief for guess in guesses], np.float32),
    )


def make(argument: str, target: Any) -> Blend:
    """For the registry. Reads what the target says after single tokens, or asks it (a few seconds, once).

    Without a ``target`` there is no prior, and drafts are drawn as for the walk.
    """
    refuse_argument("blend", argument)
    source = Suffix(shared=FinishedTexts())
    if target is None:
        return Blend(source)
    return Blend(source, coupled=target.drawing.kind == "coupled", prior=load_prior(target))


DRAFTER = DrafterInfo(
    make=make,
    drafts="what repeated text and the target's own words so far make likeliest, raced on its noise where it samples",
    remembers="answers given and a table, in memory; what the target says after single tokens, on disk (below "
    "`WAGER_HOME`, per model)",
    costs="0.3 ms",
    source="SuffixDecoding 2411.04975 and Token Recycling 2408.08696, weighed by how often they come true",
    trees=False,
    alone=True,
    needs_target=False,
)
