"""Draft n-grams that the target itself has said it would say, whether its words were taken or not.

The pool of lookahead decoding (Fu et al., 2402.02057), without the window that fills it there: that one feeds guesses
for dozens of positions a step, which pays on hardware that idles between two bytes of weights, not on a CPU. What this
pool has is therefore only what the fed tokens showed, accepted or rejected: after every one of them the target's most
likely next token is known, and costs nothing. It can draft what the target wanted to say in the same or a similar
place before: the other half of a rejected draft, a phrase that comes again, and with another drafter in front of it
(``lookup+lookahead``) all that was said about that one's drafts. It cannot guess what was never fed: alone, its n-grams
grow by the tokens that are committed and its own drafts, so it knows little more than a cache of n-grams does.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Any

from wager.drafters.base import DrafterInfo, refuse_argument
from wager.drafters.cacheback import N_BEFORE, FollowerTable, Tokens, strength
from wager.drafters.growing import Growing
from wager.types import Draft, DraftKind, Limits, Seen, Sequence, Verdict


class Lookahead:
    """Drafts from one pool that all its sequences fill and that outlives them: first token -> n-grams, newest first.

    ``n_gram``: tokens of the longest ones, the first one included; ``n_kept`` n-grams for each of at most ``n_tokens``
    first tokens, the least recently updated make room. A chain is the newest n-gram, a tree those that fit, newest
    first. N-grams of a round's accepted tokens are newer than those of its rejected ones. ``support`` as cacheback's.
    """

    name = "lookahead"
    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(self, *, n_gram: int = 6, n_kept: int = 8, n_tokens: int = 16384) -> None:
        assert n_gram >= 2, n_gram
        self.pool = FollowerTable(n_rows=n_tokens, n_followers=n_kept)
        self._n_gram = n_gram
        self._starts: dict[int, int] = {}  # sequence -> tokens when it was asked for a draft

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        self._starts.update((seq.id, len(seq.tokens)) for seq in seqs)
        return [self._draft(tuple(seq.tokens[-1 - N_BEFORE :]), limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _draft(self, recent: Tokens, limit: Limits) -> Draft:
        growing = Growing(limit)
        row = self.pool.get(recent[-1:])
        for n_gram in row:
            growing.follow(-1, n_gram.tokens)
        return growing.draft(strength(row, recent[:-1], 1))

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Harvest: after the last token and every fed node, the tokens up to there and the target's next one."""
        for seq, draft, verdict, said in zip(seqs, drafts, verdicts, seen, strict=True):
            start = self._starts.get(seq.id)
            if start is not None:
                self._harvest(tuple(seq.tokens[max(0, start - self._n_gram - N_BEFORE) : start]), draft, verdict, said)

    def _harvest(self, recent: Tokens, draft: Draft, verdict: Verdict, said: Seen) -> None:
        contexts = [recent]  # of node i - 1
        for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
            contexts.append((*contexts[parent + 1], token))
        taken = set(verdict.path)
        for node in (*(i for i in range(len(draft)) if i not in taken), -1, *verdict.path):
            text = (*contexts[node + 1], int(said.logits(node).argmax()))
            for i in range(max(0, len(text) - self._n_gram), len(text) - 1):
                self.pool.update(text[i : i + 1], text[i + 1 :], text[max(0, i - N_BEFORE) : i])

    def forget(self, seq_id: int) -> None:
        """What the sequence showed stays."""
        self._starts.pop(seq_id, None)

    def seconds(self, n_tokens: int) -> float:
        return 1e-4 + 1e-5 * n_tokens if n_tokens else 0.0


def make(argument: str, target: Any) -> Lookahead:
    """For the registry; the target does not matter."""
    refuse_argument("lookahead", argument)
    return Lookahead()


DRAFTER = DrafterInfo(
    make=make,
    drafts="n-grams of the target's own choices, after rejected tokens too",
    remembers="a pool, in memory",
    costs="0.1 ms",
    source="the pool of Fu et al. 2402.02057",
    needs_target=False,
)
