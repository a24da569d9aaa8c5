"""Online suffix automaton: the longest suffix of a text that occurred before, in amortised constant time a token.

Blumer et al. 1985; as a drafter: SAM-Decoding (2411.10666). After a token is appended, the state at the suffix link of
the newest state *is* the longest suffix that occurred before, so no matching cursor is needed.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike

# A link chain is this deep only in periodic text, where every occurrence continues alike.
_MAX_CLIMB = 8


class SuffixAutomaton:
    """All substrings of a growing text. At most 2 states a token.

    ``match`` is the length of the longest suffix that also ends earlier, ``match_end`` the exclusive end of such an
    earlier occurrence: the latest one, save in deeply periodic text, where any is as good.
    """

    __slots__ = ("_last", "_length", "_link", "_next", "_recent", "match", "match_end", "n_tokens")

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._recent = [0]  # exclusive end of a late occurrence of the state's substrings
        self._last = 0
        self.n_tokens = 0
        self.match = 0
        self.match_end = 0

    @property
    def n_states(self) -> int:
        return len(self._next)

    def extend(self, tokens: ListLike[int]) -> None:
        """Append tokens."""
        nexts, link, length, recent = self._next, self._link, self._length, self._recent
        last, end = self._last, self.n_tokens
        for token in tokens:
            end += 1
            new = len(nexts)
            nexts.append({})
            length.append(end)
            recent.append(end)
            state = last
            while state >= 0 and token not in nexts[state]:
                nexts[state][token] = new
                state = link[state]
            if state < 0:
                link.append(0)
            else:
                target = nexts[state][token]
                if length[target] != length[state] + 1:
                    target = self._split(state, token, target, new)
                else:
                    link.append(target)
                self.match_end = recent[target]
                climb = target
                for _ in range(_MAX_CLIMB):
                    if climb <= 0:
                        break
                    recent[climb] = end
                    climb = link[climb]
            last = new
        self._last, self.n_tokens = last, end
        self.match = length[link[last]] if last else 0

    def _split(self, state: int, token: int, target: int, new: int) -> int:
        """Clone ``target`` for the shorter substrings that also end at the new token; ``new`` was just appended."""
        nexts, link, length = self._next, self._link, self._length
        clone = new + 1
        link.append(clone)
        nexts.append(dict(nexts[target]))
        link.append(link[target])
        length.append(length[state] + 1)
        self._recent.append(self._recent[target])
        link[target] = clone
        while state >= 0 and nexts[state].get(token) == target:
            nexts[state][token] = clone
            state = link[state]
        return clone
