"""Draft what followed lately: a cache of n-grams, leader -> its latest followers, over all sequences.

Cacheback (Ma, Gim, Zhong, 2511.21699). Text is bursty: what was said lately is said again. No model and no search.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from typing import Any, NamedTuple

from wager import stores
from wager.drafters.base import DrafterInfo
from wager.drafters.frozen import Frozen
from wager.drafters.growing import Growing
from wager.errors import OptionError
from wager.types import EMPTY, Draft, DraftKind, Limits, Seen, Sequence, Verdict

Tokens = tuple[int, ...]

N_BEFORE = 8  # tokens before a leader that are kept with what followed, to see how much of the context agrees


class Follower(NamedTuple):
    """What followed a leader, how often in these very words, and what was before the leader the last time."""

    tokens: Tokens
    times: int = 1
    before: Tokens = ()


class FollowerTable:
    """Leader -> followers, the newest first. The rows updated least recently make room for new ones; so in a row.

    At most ``n_rows`` rows of ``n_followers``. Asking does not count as use. Of two followers one of which begins with
    the other, only the longer one is kept: one is the other still growing.
    """

    def __init__(self, *, n_rows: int, n_followers: int) -> None:
        assert n_rows >= 1, n_rows
        assert n_followers >= 1, n_followers
        self._n_rows = n_rows
        self._n_followers = n_followers
        self.rows: OrderedDict[Tokens, list[Follower]] = OrderedDict()  # the newest last

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, leader: Tokens) -> ListLike[Follower]:
        return self.rows.get(leader, ())

    def update(self, leader: Tokens, tokens: Tokens, before: Tokens = ()) -> None:
        """``tokens`` followed ``leader`` just now."""
        row = self.rows.get(leader)
        if row is None:
            row = self.rows[leader] = []
            if len(self.rows) > self._n_rows:
                self.rows.popitem(last=False)
        else:
            self.rows.move_to_end(leader)
        new = Follower(tokens, 1, before)
        for i, old in enumerate(row):
            if old.tokens[: len(tokens)] == tokens[: len(old.tokens)]:
                del row[i]
                new = Follower(max(old.tokens, tokens, key=len), old.times + (len(tokens) == len(old.tokens)), before)
                break
        row.insert(0, new)
        del row[self._n_followers :]


class Cacheback:
    """Drafts from one table that all its sequences fill, with committed tokens only, and that outlives them.

    Every run of ``n_leader`` + ``n_follower`` committed tokens of a sequence updates the table. A draft is the leader's
    followers, the newest first, then theirs, breadth first; where one child a node is allowed, the newest follower, and
    so on. ``frozen``: a second table, never written (leader -> followers): it fills up what the first one's row leaves.

    ``support`` is 2 m f / (a + 1) rounded, at least 1: the newest follower agrees with m tokens of the context, the
    leader included; f times the row went its way at the first token, a times another one. On greedy answers of a 135M
    model its steps tell what is accepted from what is not better than m alone: .15 .35 .50 .62 .79 .87.
    """

    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(
        self,
        *,
        n_leader: int = 1,
        n_follower: int = 3,
        n_rows: int = 16384,
        n_followers: int = 4,
        frozen: Callable[[Tokens], ListLike[Tokens]] | None = None,
        name: str = "cacheback",
    ) -> None:
        assert n_leader >= 1, n_leader
        assert n_follower >= 1, n_follower
        self.name = name
        self.table = FollowerTable(n_rows=n_rows, n_followers=n_followers)
        self._n_leader = n_leader
        self._n_follower = n_follower
        self._frozen = frozen
        self._n_followers = n_followers
        self._fed: dict[int, tuple[int, Tokens]] = {}  # sequence -> its tokens in the table, and the last of them

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        for seq in seqs:
            self._feed(seq)
        n_recent = self._n_leader + N_BEFORE
        return [self._draft(tuple(seq.tokens[-n_recent:]), limit) for seq, limit in zip(seqs, limits, strict=True)]

    def _feed(self, seq: Sequence) -> None:
        window = self._n_leader + self._n_follower
        tokens, (n_before, last) = seq.tokens, self._fed.get(seq.id, (0, ()))
        if n_before > len(tokens) or tuple(tokens[max(0, n_before - window) : n_before]) != last:
            n_before = 0  # another text under the same id
        for stop in range(max(n_before + 1, window), len(tokens) + 1):
            start, middle = stop - window, stop - self._n_follower
            before = tuple(tokens[max(0, start - N_BEFORE) : start])
            self.table.update(tuple(tokens[start:middle]), tuple(tokens[middle:stop]), before)
        self._fed[seq.id] = len(tokens), tuple(tokens[-window:])

    def _draft(self, recent: Tokens, limit: Limits) -> Draft:
        before, leader = recent[: -self._n_leader], recent[-self._n_leader :]
        if len(leader) < self._n_leader:
            return EMPTY
        growing = Growing(limit)
        waiting = deque([(-1, leader)])
        queued = {-1}
        while waiting and not growing.is_full:
            parent, last = waiting.popleft()
            for follower in self._followers(last):
                node = growing.follow(parent, follower)
                if node is not None and node not in queued:
                    queued.add(node)
                    waiting.append((node, (last + follower)[-self._n_leader :]))
        return growing.draft(strength(self.table.get(leader), before, self._n_leader))

    def _followers(self, leader: Tokens) -> ListLike[Tokens]:
        row = [follower.tokens for follower in self.table.get(leader)]
        if self._frozen is not None and len(row) < self._n_followers:
            row = [*row, *self._frozen(leader)][: self._n_followers]
        return row

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to learn: the next ``propose`` catches up with the committed tokens."""

    def forget(self, seq_id: int) -> None:
        """What the sequence taught stays."""
        self._fed.pop(seq_id, None)

    def seconds(self, n_tokens: int) -> float:
        return 2e-5 + 3e-6 * n_tokens if n_tokens else 0.0


def strength(row: ListLike[Follower], before: Tokens, n_leader: int) -> int:
    """Strength of a row's newest follower where the context before the leader is ``before``; 1 without a row."""
    if not row:
        return 1
    match = n_leader
    for ours, theirs in zip(reversed(before), reversed(row[0].before), strict=False):
        if ours != theirs:
            break
        match += 1
    total = sum(follower.times for follower in row)
    agree = sum(follower.times for follower in row if follower.tokens[0] == row[0].tokens[0])
    return max(1, round(2 * match * agree / (total - agree + 1)))


def make(argument: str, target: Any) -> Cacheback:
    """For the registry. ``argument``: nothing, STORE, LEADER,FOLLOWER in tokens, or STORE,LEADER,FOLLOWER.

    The target matters for the store only; None leaves out to compare vocabularies.
    """
    parts = argument.split(",") if argument else []
    name = parts.pop(0) if len(parts) in (1, 3) else ""
    lengths = [int(part) if part.isascii() and part.isdigit() else 0 for part in parts or ("1", "3")]
    if len(lengths) != 2 or not all(1 <= n <= 16 for n in lengths):
        raise OptionError(
            f"`drafter` is {'cacheback:' + argument!r}: give cacheback, or the lengths of leader and follower, 1 … 16 "
            "tokens each, as in cacheback:1,3; a store goes in front of them, as in cacheback:NAME"
        )
    n_leader, n_follower = lengths
    if not name:
        return Cacheback(n_leader=n_leader, n_follower=n_follower)
    store = stores.load(name)
    if target is not None:
        stores.check_vocabulary(store, target.text)
    n_valid_ids = store.info.vocab_size if target is None else target.n_valid_ids
    frozen = Frozen(store, n_valid_ids=n_valid_ids, n_follower=n_follower)
    return Cacheback(n_leader=n_leader, n_follower=n_follower, frozen=frozen, name=f"cacheback:{argument}")


DRAFTER = DrafterInfo(
    make=make,
    drafts="what followed the last token lately, over all requests; `cacheback:2,2` sets the lengths of leader and "
    "follower, `cacheback:STORE` has a corpus of yours fill up what lacks",
    remembers="a table, in memory, and the store",
    costs="30 µs",
    source="Ma, Gim, Zhong 2511.21699",
    needs_target=False,
)
