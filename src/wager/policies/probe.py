"""When to draft one token although nothing seems to pay: acceptance, and times, can come back."""

from __future__ import annotations

_FIRST, _LAST = 32, 1024  # steps without a draft before one token is drafted


class Probe:
    """Due after ever more steps in a row without a draft."""

    def __init__(self) -> None:
        self._n_idle = 0
        self._after = _FIRST

    def is_due(self, drafts: bool) -> bool:
        """``drafts``: whether this step drafts something anyway."""
        if drafts:
            self._n_idle, self._after = 0, _FIRST
            return False
        self._n_idle += 1
        if self._n_idle < self._after:
            return False
        self._n_idle, self._after = 0, min(2 * self._after, _LAST)
        return True
