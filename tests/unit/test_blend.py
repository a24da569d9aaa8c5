"""Evidence believed as often as it comes true: what is drafted from it, what is learnt, and that text is plain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drafter_tools import ask, check_text, n_read_for_one_more, observe, sequence
from engine_tools import V, run, toy
from wager.drafters.blend import Beliefs, Blend
from wager.drafters.lookup import Lookup
from wager.drafters.prior import Prior
from wager.drafters.prior import ask as ask_prior
from wager.drafters.suffix import Suffix
from wager.policies import Fixed
from wager.sampling import Noise
from wager.types import EMPTY, Draft, Limits, Sampling, Sequence, Verdict, chain


def _row(**likely: float) -> list[float]:
    """Logits of V tokens: those named t0, t1, … as given, the others far below."""
    row = [-30.0 - i for i in range(V)]
    for name, logit in likely.items():
        row[int(name[1:])] = logit
    return row


def _prior(rows: dict[int, list[float]]) -> Prior:
    """Rows of two successors for the tokens 0 … max."""
    n = max(rows) + 1
    ids = np.full((n, 2), -1, np.int32)
    logits = np.zeros((n, 2), np.float32)
    for token, row in rows.items():
        best = np.argsort(-np.array(row))[:2]
        ids[token], logits[token] = best, np.array(row)[best]
    return Prior(ids, logits)


def _said(drafter: Blend, before: list[int], row: list[float], token: int) -> None:
    """One round whose draft is not fed: the target reads ``before``, says ``row``, and ``token`` is committed."""
    seq = sequence(before, seq_id=99)
    drafter.propose([seq], [Limits(1, 1, 1)])
    seq.tokens.append(token)
    observe(drafter, seq, EMPTY, Verdict((), token), [row])
    drafter.forget(99)


def test_a_long_copy_is_believed_more_than_what_was_said_and_a_short_one_less() -> None:
    drafter = Blend(Lookup())
    for _ in range(5):  # the target says 9 after 3, again and again
        _said(drafter, [2, 3], _row(t9=5.0), 9)
    long = ask(drafter, [1, 4, 5, 6, 7, 2, 3, 8, 1, 4, 5, 6, 7, 2, 3], Limits(1, 1, 1))
    short = ask(drafter, [3, 8, 6, 3], Limits(1, 1, 1))
    assert long.tokens.tolist() == [8]
    assert short.tokens.tolist() == [9]
    assert long.confidence is not None
    assert short.confidence is not None
    assert long.confidence[0] > 0.7


def test_a_copy_goes_on() -> None:
    tokens = ask(Blend(Lookup()), [1, 2, 3, 1, 2, 3, 1, 2, 3], Limits(7, 7, 1)).tokens.tolist()
    assert tokens[:5] == [1, 2, 3, 1, 2]


def test_the_longest_known_context_speaks_and_the_prior_last() -> None:
    drafter = Blend(Lookup(), prior=_prior({0: _row(t1=5.0), 1: _row(t2=5.0), 2: _row(t3=5.0)}))
    assert ask(drafter, [8, 1], Limits(1, 1, 1)).tokens.tolist() == [2]
    _said(drafter, [7, 1], _row(t5=5.0), 5)
    assert ask(drafter, [8, 1], Limits(1, 1, 1)).tokens.tolist() == [5]
    _said(drafter, [8, 1], _row(t6=5.0), 6)
    _said(drafter, [7, 1], _row(t5=5.0), 5)
    assert ask(drafter, [8, 1], Limits(1, 1, 1)).tokens.tolist() == [6]
    assert ask(drafter, [9, 1], Limits(1, 1, 1)).tokens.tolist() == [5]


def test_rejected_tokens_teach_too() -> None:
    drafter = Blend(Lookup())
    seq = sequence([1, 2])
    draft = chain([3, 4])
    drafter.propose([seq], [Limits(2, 2, 1)])
    seq.tokens.append(9)
    observe(drafter, seq, draft, Verdict((), 9), [_row(t9=5.0), _row(t6=5.0), _row(t7=5.0)])
    assert ask(drafter, [2, 3], Limits(1, 1, 1)).tokens.tolist() == [6]
    assert ask(drafter, [0, 4], Limits(1, 1, 1)).tokens.tolist() == [7]


def test_the_race_is_the_targets_own() -> None:
    """Where the row is the law, every draft is what the target chooses; going by likelihood it would be one in two."""
    row = _row(t4=1.0, t5=1.0)
    raced, likeliest = Blend(Lookup()), Blend(Lookup(), coupled=False)
    for drafter in (raced, likeliest):
        _said(drafter, [1, 2], row, 4)
    n_hits = [0, 0]
    for seed in range(200):
        seq = Sequence(seed, [0, 1, 2], 1, Sampling(temperature=1.0), seed)
        race = Noise(seed).exponential(seq.n_output, [4, 5])
        truth = 4 + int(np.argmin(race))
        for i, drafter in enumerate((raced, likeliest)):
            n_hits[i] += drafter.propose([seq], [Limits(1, 1, 1)])[0].tokens.tolist() == [truth]
    assert n_hits[0] == 200
    assert 60 < n_hits[1] < 140  # 100 +- 7


def test_beliefs_follow_what_comes_true() -> None:
    beliefs = Beliefs()
    assert beliefs.of(("a",), 0.3) == pytest.approx(0.3)
    for i in range(4000):
        beliefs.count(("a",), i % 4 == 0)
    assert beliefs.of(("a",), 0.9) == pytest.approx(0.25, abs=0.05)


def test_what_was_drafted_but_not_fed_is_judged() -> None:
    drafter = Blend(Lookup())
    for _ in range(40):  # a copy of one token that never comes true
        seq = sequence([1, 2, 3, 1])
        drafter.propose([seq], [Limits(1, 1, 1)])
        seq.tokens += [5]
        observe(drafter, seq, EMPTY, Verdict((), 5), [_row(t5=3.0)])
        drafter.forget(0)
    draft = ask(Blend(Lookup()), [7, 8, 9, 7], Limits(1, 1, 1))
    doubted = ask(drafter, [7, 8, 9, 7], Limits(1, 1, 1))
    assert draft.confidence is not None
    assert len(doubted) == 0 or float(doubted.confidence[0]) < float(draft.confidence[0]) / 2


@pytest.mark.parametrize("coupled", [False, True])
def test_text_is_plain(coupled: bool) -> None:
    model = toy(rows_rule="any")
    check_text(lambda: Blend(Lookup(), coupled=coupled, prior=ask_prior(model, [0], n_ids=V, n_valid_ids=V)))


def test_sampled_drafts_on_the_targets_noise_are_accepted_more_often() -> None:
    """On a Markov chain of order 2, whose laws the rows come to hold; ratio of accepted tokens, fixed seeds."""
    sampling = Sampling(temperature=1.0, max_tokens=120, ignore_eos=True)
    batch = [[1, i] for i in range(12)]
    accepted = []
    for coupled in (False, True):
        outcome = run(toy(scale=1.5), sampling, batch=batch, drafter=Blend(Lookup(), coupled=coupled), policy=Fixed(1))
        accepted.append(sum(stats.n_accepted for stats in outcome.stats))
    assert accepted[1] > 1.5 * accepted[0], accepted


def test_what_is_read_does_not_grow_with_the_text() -> None:
    assert n_read_for_one_more(Blend(Lookup()), 20_000) <= n_read_for_one_more(Blend(Lookup()), 200) + 4


def test_the_same_past_gives_the_same_drafts() -> None:
    def drafts() -> list[Draft]:
        drafter = Blend(Lookup())
        _said(drafter, [1, 2], _row(t4=1.0, t5=1.0), 4)
        seqs = [Sequence(i, [0, 1, 2], 1, replace(Sampling(), temperature=0.9), i) for i in range(6)]
        return drafter.propose(seqs, [Limits(3, 3, 1)] * 6)

    assert [d.tokens.tolist() for d in drafts()] == [d.tokens.tolist() for d in drafts()]


def test_a_copy_that_drafts_do_not_follow_is_no_evidence_any_more() -> None:
    """What the source would go on with stands after its own token, not after another one."""
    source = Suffix()
    drafter = Blend(source)
    for _ in range(20):
        _said(drafter, [7, 5], _row(t6=9.0), 6)
        drafter._beliefs.count(("copy", 1, 0), False)
    tokens = ask(drafter, [5, 9, 4, 7, 5], Limits(4, 4, 1)).tokens.tolist()
    assert ask(source, [5, 9, 4, 7, 5], Limits(4, 4, 1)).tokens.tolist()[:2] == [9, 4]
    assert tokens[0] == 6
    assert 4 not in tokens


@pytest.mark.parametrize("temperature", [1e-4, 0.01, 0.1])
def test_at_a_low_temperature_what_is_next_to_impossible_does_not_race(temperature: float) -> None:
    drafter = Blend(Lookup())
    _said(drafter, [1, 2], _row(t4=9.0, t5=-90.0), 4)
    seq = Sequence(0, [0, 1, 2], 1, Sampling(temperature=temperature), 3)
    with np.errstate(all="raise"):
        assert drafter.propose([seq], [Limits(1, 1, 1)])[0].tokens.tolist() == [4]


def test_of_a_sequence_that_is_not_asked_for_nothing_is_learnt() -> None:
    drafter = Blend(Suffix())
    seq = sequence([1, 2])
    drafter.propose([seq], [Limits(0, 0, 0)])
    seq.tokens.append(9)
    observe(drafter, seq, EMPTY, Verdict((), 9), [_row(t9=5.0)])
    assert all(table.get((2,)) is None and table.get((1, 2)) is None for _, table in drafter._tables)
    assert drafter.prices(seq, 4)[1] > drafter.prices(sequence([1], seq_id=1), 4)[1] > 0  # nothing of them is read yet
    ask(drafter, seq, Limits(1, 1, 1))
    assert drafter.prices(seq, 4) == (drafter.seconds(4), 0)
    assert Blend(Lookup()).prices(seq, 4)[1] == 0
