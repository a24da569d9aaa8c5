"""Whom to ask for a draft, where asking itself takes time: who was worth it of late, and the others now and then."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass

from wager.types import Sequence

_TRIALS = 0.01  # share of the time that may go into asking those who do not seem worth it
_FADES = 0.95  # of a sequence's own record, each step: what was copied a moment ago may be over, or begin
_COMMON_FADES = 0.99  # of the record of all, each time somebody is asked
_COMMON = 2.0  # what all save counts as much as this many askings of a sequence's own
_HOPE = 8.0  # askings until the first guess is given up: that each saves twice what it takes


@dataclass(slots=True)
class _Saved:
    """Seconds that fading ``n`` askings saved; ``step`` when that was written."""

    seconds: float = 0.0
    n: float = 0.0
    step: int = 0


class Asking:
    """Asks for the draft of a sequence where drafts of it save more time than asking takes.

    What a draft saves is what its policy says of it, in seconds, before the verdict. It is kept by sequence, and common
    to all, for each number of sequences (1, 2, 3-4, 5-8, …), with which the price of a row changes. Who is not worth
    asking is asked for trial, who waited longest first, as far as 1 % of the time suffices: no drafter costs more where
    it is of no use.
    """

    def __init__(self) -> None:
        self._own: dict[tuple[int, int], _Saved] = {}  # (sequence, group)
        self._common: dict[int, _Saved] = {}
        self._asked: dict[int, int] = {}  # the step at which a sequence was asked last
        self._step = 0
        self._for_trials_s = 0.0

    def choose(self, seqs: ListLike[Sequence], prices: ListLike[tuple[float, float]], step_s: float) -> list[bool]:
        """Of each sequence whether to ask, in a step of ``step_s`` without drafts.

        ``prices``: seconds that asking takes, and those that it takes once to catch up with the text, which a trial is
        charged as well.
        """
        self._step += 1
        group = _group(len(seqs))
        common = self._common.setdefault(group, _Saved())
        asked = [self._saves(seq.id, group, common, p) >= p for seq, (p, _) in zip(seqs, prices, strict=True)]
        if not all(asked):
            self._try(seqs, prices, step_s, asked)
        for seq, ask in zip(seqs, asked, strict=True):
            if ask:
                self._asked[seq.id] = self._step
        return asked

    def _saves(self, seq_id: int, group: int, common: _Saved, price: float) -> float:
        """Seconds that a draft is expected to save."""
        guess = (common.seconds + max(_HOPE - common.n, 0.0) * 2 * price) / max(_HOPE, common.n)
        own = self._own.get((seq_id, group))
        if own is None:
            return guess
        fading = _FADES ** (self._step - own.step)
        return (own.seconds * fading + _COMMON * guess) / (own.n * fading + _COMMON)

    def _try(
        self, seqs: ListLike[Sequence], prices: ListLike[tuple[float, float]], step_s: float, asked: list[bool]
    ) -> None:
        self._for_trials_s += _TRIALS * step_s
        waiting = sorted((self._asked.setdefault(seqs[i].id, self._step), i) for i, ask in enumerate(asked) if not ask)
        for _, i in waiting:
            price = sum(prices[i])
            if price > self._for_trials_s:
                break
            self._for_trials_s -= price
            asked[i] = True
        else:  # nobody is left to be asked
            self._for_trials_s = 0.0

    def observe(self, seq_id: int, n_seqs: int, saved_s: float) -> None:
        """The sequence was asked in this step, and its draft is expected to save so much."""
        group = _group(n_seqs)
        own = self._own.setdefault((seq_id, group), _Saved(step=self._step))
        fading = _FADES ** (self._step - own.step)
        own.seconds, own.n, own.step = own.seconds * fading + saved_s, own.n * fading + 1, self._step
        common = self._common.setdefault(group, _Saved())
        common.seconds, common.n = common.seconds * _COMMON_FADES + saved_s, common.n * _COMMON_FADES + 1

    def forget(self, seq_id: int) -> None:
        """What all saved is kept."""
        self._asked.pop(seq_id, None)
        for key in [key for key in self._own if key[0] == seq_id]:
            del self._own[key]


def _group(n_seqs: int) -> int:
    """1, 2, 3-4, 5-8, …: as the times of a forward are told apart (``cost.StepCost``)."""
    return (n_seqs - 1).bit_length()
