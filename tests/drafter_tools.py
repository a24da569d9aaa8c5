"""What the tests of training-free drafters share: how to ask one, what it reads, and text through the engine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from engine_tools import run, toy, trees
from wager.policies import Fixed
from wager.testing import check_draft
from wager.types import Draft, Drafter, Limits, Sampling, Seen, Sequence, Verdict

LIMITS = [Limits(n, depth, width) for n, depth, width in product((0, 1, 2, 7, 40), (0, 1, 3, 9), (0, 1, 2, 50))]
SAMPLINGS = {
    "greedy": Sampling(max_tokens=60),
    "sampled": Sampling(temperature=0.8, max_tokens=60),
    "past the end": Sampling(temperature=0.8, max_tokens=60, ignore_eos=True),
}


def sequence(tokens: list[int], *, seq_id: int = 0, n_prompt: int = 1) -> Sequence:
    return Sequence(seq_id, tokens, n_prompt, Sampling(), seed=0)


def ask(drafter: Drafter, seq: Sequence | list[int], limit: Limits, *, vocab_size: int = 1 << 20) -> Draft:
    """One draft, checked against its limits."""
    seq = sequence(seq) if isinstance(seq, list) else seq
    draft = drafter.propose([seq], [limit])[0]
    check_draft(draft, limit, vocab_size)
    return draft


def tree_of(draft: Draft) -> list[tuple[int, ...]]:
    """The token path of every node, in the order of nodes."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


def in_preorder(paths: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Paths in the order they were made in, as a draft lists them: depth first, siblings in that order."""
    place = {path: i for i, path in enumerate(paths)}
    return sorted(paths, key=lambda path: [place[path[:n]] for n in range(1, len(path) + 1)])


class Read(list):
    """Tokens that count how many of them are read."""

    n = 0

    def __getitem__(self, index):
        got = super().__getitem__(index)
        self.n += len(got) if isinstance(index, slice) else 1
        return got

    def __iter__(self):
        self.n += len(self)
        return super().__iter__()


def n_read_for_one_more(drafter: Drafter, n_history: int) -> int:
    """Tokens of the history that are read from a draft to the next one, when it was rejected and one was committed."""
    tokens = Read(np.random.default_rng(0).integers(0, 50, n_history).tolist())
    seq = sequence(tokens)
    draft = ask(drafter, seq, Limits(16, 8, 2))
    tokens.append(7)
    tokens.n = 0
    observe(drafter, seq, draft, Verdict((), 7), np.eye(len(draft) + 1, 50).tolist())
    ask(drafter, seq, Limits(16, 8, 2))
    return tokens.n


def seen_of(rows: list[list[float]]) -> Seen:
    """What the target said: ``rows`` after the last token and after every node."""
    return Seen(np.array(rows, np.float32), np.arange(len(rows), dtype=np.int32))


def observe(drafter: Drafter, seq: Sequence, draft: Draft, verdict: Verdict, rows: list[list[float]]) -> None:
    drafter.observe([seq], [draft], [verdict], [seen_of(rows)])


def check_text(make: Callable[[], Drafter]) -> None:
    """Plain text greedy and sampled, as chains and as trees, from a drafter that remembers all that was before.

    Fails where the text depends on the drafts, or where next to nothing was accepted, so that nothing was shown.
    """
    drafter = make()
    n_accepted = dict.fromkeys(SAMPLINGS, 0)
    for sampling, rule in product(SAMPLINGS, ("pair", "split")):
        plain = run(toy(rows_rule=rule), SAMPLINGS[sampling]).tokens
        for policy in (trees(), Fixed(6)):
            outcome = run(toy(rows_rule=rule), SAMPLINGS[sampling], drafter=drafter, policy=policy)
            assert outcome.tokens == plain
            n_accepted[sampling] += sum(stats.n_accepted for stats in outcome.stats)
    assert min(n_accepted.values()) > 3, n_accepted
