"""Constraints over toy vocabularies: finite automata whose every state is plain to see."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wager.errors import ConstraintError


@dataclass(frozen=True)
class Automaton:
    """``moves[state][token]`` is the next state; from ``final`` states the ends may come, and after them nothing."""

    moves: dict[int, dict[int, int]]
    final: frozenset[int]
    ends: frozenset[int]
    n_ids: int
    asked: list[tuple[int, ...]] = field(default_factory=list, compare=False)  # outputs whose masks were wanted

    def guide(self, vocabulary: object) -> Automaton:
        return self

    def _state(self, output) -> int | None:
        state = 0
        for token in output:
            if state is None or token not in self.moves[state]:
                return None
            state = self.moves[state][token]
        return state

    def allowed(self, output):
        self.asked.append(tuple(output))
        state = self._state(output)
        if state is None and output[-1] in self.ends:
            state = self._state(output[:-1])
        if state is None:
            raise ConstraintError(f"`{list(output)}` is not allowed")
        mask = np.zeros(self.n_ids, np.bool_)
        mask[[*self.moves[state], *(self.ends if state in self.final else ())]] = True
        return mask

    def fits(self, output, path):
        n = 0
        while n < len(path):
            state = self._state([*output, *path[:n]])
            if state is None:
                break
            if path[n] in self.ends and state in self.final:
                return n + 1
            if path[n] not in self.moves[state]:
                break
            n += 1
        return n

    def forced(self, output):
        run: list[int] = []
        while (state := self._state([*output, *run])) is not None and state not in self.final:
            if len(self.moves[state]) != 1 or len(run) > 20:
                break
            run.append(next(iter(self.moves[state])))
        return run


def table(eos: int, n_ids: int, *, dead_end: bool = False) -> Automaton:
    """Rows of: four forced tokens, one to six of many, a forced one, again or the end. Something like JSON.

    ``dead_end``: one of the many leads to where nothing may follow.
    """
    many = [t for t in range(n_ids) if t != eos]
    moves = {0: {1: 1}, 1: {2: 2}, 2: {1: 3}, 3: {4: 4}}
    for state in range(4, 10):
        moves[state] = dict.fromkeys(many[5:], state + 1)
        if state > 4:
            moves[state] |= {0: 11}
    moves[10], moves[11], moves[12] = {0: 11}, {1: 1, 2: 2, 7: 4}, {}
    if dead_end:
        for state in (6, 7, 9):
            moves[state] |= dict.fromkeys(many[-3:], 12)
    return Automaton(moves, frozenset({11}), frozenset({eos}), n_ids)
