"""Drafters side by side: the best draft is taken, every part is learnt about, text does not change."""

from __future__ import annotations

import numpy as np
import pytest

from engine_tools import prompts, run, toy
from wager.drafters import make_drafter
from wager.drafters.lookup import Lookup
from wager.drafters.together import Together
from wager.errors import OptionError
from wager.llm import LLM
from wager.policies import Fixed
from wager.policies.acceptance import Acceptance
from wager.testing import check_drafter
from wager.types import EMPTY, Limits, Sampling, Seen, Sequence, Verdict, chain

SEEN = Seen(np.zeros((1, 50), np.float32), np.zeros(1, np.int32))


class Says:
    """Drafts the text it is given, from where the sequence stands, at some support; remembers what it was told."""

    kind = "deterministic"
    has_laws = False

    def __init__(self, name, text, support=1):
        self.name, self._text, self._support, self.told, self.forgotten = name, text, support, 0, []

    def propose(self, seqs, limits):
        return [
            chain(self._text[len(seq.tokens) : len(seq.tokens) + limit.n_nodes], support=self._support)
            for seq, limit in zip(seqs, limits, strict=True)
        ]

    def observe(self, seqs, drafts, verdicts, seen):
        self.told += 1

    def forget(self, seq_id):
        self.forgotten.append(seq_id)

    def seconds(self, n_tokens):
        return 1e-5 * n_tokens


def sequence(tokens):
    return Sequence(0, list(tokens), 1, Sampling(), seed=0)


def rounds(drafter, text, n):
    """Sources of the drafts of n rounds in which the target says ``text``, one token a round."""
    seq, sources = sequence(text[:1]), []
    for token in text[1 : n + 1]:
        [draft] = drafter.propose([seq], [Limits(4, 4)])
        sources.append(draft.source)
        seq.tokens.append(token)
        drafter.observe([seq], [draft], [Verdict((), token)], [SEEN])
    return sources


def test_the_part_that_is_right_is_found_without_being_tried():
    text = list(range(40))
    wrong, right = Says("wrong", [49] * 40), Says("right", text)
    together = Together([wrong, right])
    sources = rounds(together, text, 12)
    assert sources[0] == "wrong"  # equal promises: the first
    assert set(sources[3:]) == {"right"}
    assert wrong.told == right.told == 12


def test_strength_of_evidence_is_learnt_apart():
    """One part is right where its support is high and wrong where it is low; the other is right half of the time."""

    class Moody(Says):
        def propose(self, seqs, limits):
            [draft] = super().propose(seqs, limits)
            strong = len(seqs[0].tokens) % 3 == 0
            return [chain(draft.tokens if strong else [49] * len(draft), support=8 if strong else 1)]

    text = list(range(49)) * 4
    half = [t if i % 2 else 48 for i, t in enumerate(text)]
    together = Together([Moody("moody", text), Says("half", half)])
    sources = rounds(together, text, 150)[60:]
    strong = [s for i, s in enumerate(sources, start=61) if i % 3 == 0]
    weak = [s for i, s in enumerate(sources, start=61) if i % 3]
    assert set(strong) == {"moody"}
    assert set(weak) == {"half"}


def test_a_longer_draft_of_equal_rate_promises_more():
    text = list(range(40))
    together = Together([Says("short", text[:3]), Says("long", text)])
    assert together.propose([sequence(text[:1])], [Limits(8, 8)])[0].source == "long"


def test_nothing_anywhere_is_an_empty_draft_without_a_source():
    together = Together([Lookup(), Says("none", [])])
    assert together.propose([sequence([1, 2])], [Limits(4, 4)]) == [EMPTY]


def test_an_answer_that_ends_inside_the_draft_teaches_only_what_was_committed():
    """The verdict names more tokens than were committed; what stands before them is not the truth about the draft."""
    together = Together([Says("a", [7, 7, 7, 7, 7, 7])])
    seq = sequence([7, 7])
    [draft] = together.propose([seq], [Limits(3, 3)])
    seq.tokens.append(7)
    together.observe([seq], [draft], [Verdict((0, 1, 2), 9)], [SEEN])
    assert [trials for _, trials in together._rates.values()] == [1]


def test_forget_reaches_every_part():
    parts = [Says("a", []), Says("b", [])]
    Together(parts).forget(3)
    assert [part.forgotten for part in parts] == [[3], [3]]


def test_policies_tell_the_parts_apart():
    acceptance = Acceptance()
    good, bad = (chain([1, 2], support=2) for _ in range(2))
    object.__setattr__(good, "source", "good")
    object.__setattr__(bad, "source", "bad")
    for _ in range(50):
        acceptance.observe("good+bad", 0, good, Verdict((0, 1), 5))
        acceptance.observe("good+bad", 1, bad, Verdict((), 5))
    assert acceptance.values("good+bad", 2, good)[0] > 0.8
    assert acceptance.values("good+bad", 2, bad)[0] < 0.2


@pytest.mark.parametrize("vocab_size", [1, 5, 50])
def test_contract(vocab_size):
    check_drafter(lambda: make_drafter("lookup+cacheback", None), vocab_size=vocab_size, learns=True)


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=20), Sampling(max_tokens=20, temperature=0.8)])
def test_text_is_that_of_plain_decoding(sampling):
    plain = run(toy(), sampling, batch=prompts())
    spec = run(toy(), sampling, batch=prompts(), drafter=make_drafter("lookup+cacheback", None), policy=Fixed(4))
    assert spec.tokens == plain.tokens
    assert sum(s.n_accepted for s in spec.stats) > 0


@pytest.mark.parametrize(
    ("spec", "reason"),
    [("lookup+lookup", "twice"), ("lookup+model:x", "runs a model"), ("lookup+nonsense", "give one of")],
)
def test_refusals(spec, reason):
    with pytest.raises(OptionError, match=reason):
        make_drafter(spec, None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"drafter": "lookup+lookup"}, "twice"),
        ({"drafter": "cacheback:0,0"}, "cacheback:1,3"),
        ({"drafter": "suffix:x"}, "suffix:local"),
        ({"drafter": "lookup+"}, "give one of"),
        ({"drafter": "model:x", "rule": "standard", "tree_width": 2}, "a single path"),
        ({"drafter": "model:x", "rule": "khisti", "tree_width": 9}, "at most 8 children"),
    ],
)
def test_what_needs_no_model_to_be_seen_is_said_before_one_is_loaded(options, reason):
    with pytest.raises(OptionError, match=reason):
        LLM("no-such-model", **options)
