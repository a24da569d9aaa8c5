"""Several drafters behind one engine keep the contract of one."""

from __future__ import annotations

from drafter_tools import sequence
from wager.drafters.choice import Choice
from wager.drafters.lookup import Lookup
from wager.drafters.suffix import Suffix
from wager.testing import check_drafter


def test_a_choice_is_a_drafter():
    check_drafter(lambda: Choice({"suffix": Suffix(), "lookup": Lookup()}), vocab_size=7, learns=True)


def test_each_sequence_has_the_price_of_its_own_drafter():
    suffix, lookup = Suffix(), Lookup()
    drafter, seqs = Choice({"suffix": suffix, "lookup": lookup}), [sequence([1, 2, 3], seq_id=i) for i in range(2)]
    drafter.bind(1, "lookup")
    assert drafter.prices(seqs[0], 4) == suffix.prices(seqs[0], 4)
    assert drafter.prices(seqs[1], 4) == (lookup.seconds(4), 0)
