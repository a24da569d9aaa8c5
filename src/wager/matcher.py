"""Following one output through a grammar: llguidance's matcher has a state, its guide has none to be seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from typing import Any

import numpy as np

from wager.constraint import Mask
from wager.errors import ConstraintError

_MAX_MASKS = 32  # kept of the last lengths, an eighth of a byte an id


class GrammarGuide:
    """``constraint.Guide`` over an ``LLMatcher``, which is moved back and forth to where an answer is wanted.

    ``fresh`` gives a matcher at the beginning. A mask is worked out once for as long as the output before it stands, so
    what a drafter asked for is there when the target's choice is made.
    """

    def __init__(self, fresh: Callable[[], Any], *, ends: frozenset[int], n_ids: int) -> None:
        self._fresh, self._ends, self._n_ids = fresh, ends, n_ids
        self._matcher = fresh()
        self._read: list[int] = []
        self._masks: dict[int, bytes] = {}  # by length of the output, whose first tokens are those read

    def allowed(self, output: ListLike[int]) -> Mask:
        output = list(output)
        if output and output[-1] in self._ends:
            return np.isin(np.arange(self._n_ids), sorted(self._ends))
        n, n_agreed = len(output), self._n_agreed(output)
        if n_agreed < n or n not in self._masks:
            self._go_to(output, n_agreed)
            self._masks[n] = self._asked(self._matcher.compute_bitmask)
            self._masks.pop(n - _MAX_MASKS, None)
        bits = np.frombuffer(self._masks[n], np.uint8)
        return np.unpackbits(bits, count=self._n_ids, bitorder="little").view(np.bool_)

    def fits(self, output: ListLike[int], path: ListLike[int]) -> int:
        return int(self._at(output, lambda: self._n_valid(list(path)), 0))

    def forced(self, output: ListLike[int]) -> list[int]:
        return list(self._at(output, lambda: self._matcher.compute_ff_tokens(), []))

    def _n_valid(self, path: list[int]) -> int:
        if self._matcher.is_stopped():  # it does not count the end itself then
            return int(bool(path) and path[0] in self._ends)
        return int(self._matcher.validate_tokens(path))

    def _at(self, output: ListLike[int], ask: Callable[[], Any], otherwise: Any) -> Any:
        """What the matcher says there; where it cannot follow, ``allowed`` will tell why."""
        output = list(output)
        try:
            self._go_to(output, self._n_agreed(output))
            return self._asked(ask)
        except ConstraintError:
            return otherwise

    def _n_agreed(self, output: list[int]) -> int:
        """Length of the longest beginning that was read."""
        n = min(len(output), len(self._read))
        if output[:n] == self._read[:n]:
            return n
        return bisect_left(range(n), True, key=lambda i: output[: i + 1] != self._read[: i + 1])

    def _go_to(self, output: list[int], n_agreed: int) -> None:
        back = len(self._read) - n_agreed
        if back and not self._matcher.rollback(back):  # some grammars (max_tokens) cannot go back
            self._restart()
            n_agreed = 0
        del self._read[n_agreed:]
        new = output[n_agreed:]
        for length in [length for length in self._masks if length > n_agreed]:
            del self._masks[length]
        n_taken = self._matcher.validate_tokens(new) if new else 0
        if n_taken < len(new):
            raise ConstraintError(f"token {new[n_taken]} cannot follow {n_agreed + n_taken} tokens of output here")
        self._asked(lambda: self._matcher.consume_tokens(new))
        self._read = output

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the matcher says. An error would stay in it for good, so then there is a new one."""
        answer = ask()
        if not self._matcher.is_error():
            return answer
        reason = self._matcher.get_error().split("\n")[0][:200]
        self._restart()
        raise ConstraintError(f"the grammar cannot be followed any further ({reason}): simplify it")

    def _restart(self) -> None:
        self._matcher, self._read = self._fresh(), []
        self._masks.clear()
