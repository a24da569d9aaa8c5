"""Several drafters behind one engine keep the contract of one."""

from __future__ import annotations

from wager.drafters.choice import Choice
from wager.drafters.lookup import Lookup
from wager.drafters.suffix import Suffix
from wager.testing import check_drafter


def test_a_choice_is_a_drafter():
    check_drafter(lambda: Choice({"suffix": Suffix(), "lookup": Lookup()}), vocab_size=7, learns=True)
