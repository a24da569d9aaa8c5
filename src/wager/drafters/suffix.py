"""Draft what followed most often: counted suffixes of the request's own text and of answers given before.

SuffixDecoding (Oliaro et al., 2411.04975), with the differences that ``Suffix`` names.
"""

from __future__ import annotations

import heapq
import json
import logging
import time
import weakref
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as ListLike
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from wager.drafters.base import DrafterInfo
from wager.drafters.growing import Growing
from wager.drafters.suffix_trie import Node, Place, SuffixTrie
from wager.errors import ModelError, OptionError, WagerError
from wager.home import wager_home, write_text
from wager.models.describe import model_hash
from wager.stopwatch import Stopwatch
from wager.types import EMPTY, Draft, DraftKind, Limits, Seen, Sequence, Verdict

_DEPTH = 48  # tokens of match and draft together
_N_LEAD = 16  # prompt tokens that are kept with an answer: they say how answers begin
_N_CHILDREN = 32  # children of a node that are compared, the latest ones: a frequent token has thousands
_SHARED = 0.5  # what is expected of other texts counts this much: measured, it comes true half as often
_TIE = 1e-9  # sums that differ by less are equal
_FORMAT = 1
_SAVE_S = 60.0
_ASKING_S = 1e-4  # first guess of what drafting for a sequence takes
_COUNTING_S = 5e-6  # about what counting a token takes
_FAR_BEHIND = 48  # tokens: more than a step commits

_first = itemgetter(0)


class FinishedTexts:
    """Counted substrings of answers given, at most ``max_tokens`` of them: the oldest answer goes first.

    About 250 bytes a token. ``path``: where they are kept, at most once a minute and when ``keep`` is called; the last
    of several processes to write there wins.
    """

    def __init__(self, *, max_tokens: int = 65536, depth: int = _DEPTH, path: Path | None = None) -> None:
        assert max_tokens >= 1, max_tokens
        self.trie = SuffixTrie(depth)
        self._max_tokens = max_tokens
        self._path = path
        self._is_kept = True
        self._kept_s = time.monotonic()

    def add(self, tokens: ListLike[int]) -> None:
        """One answer more; the end of one that is too long."""
        self._insert(tokens)
        self._is_kept = False
        if time.monotonic() - self._kept_s > _SAVE_S:
            self.keep()

    def _insert(self, tokens: ListLike[int]) -> None:
        self.trie.extend(tokens[-self._max_tokens :])
        self.trie.close()
        while self.trie.n_tokens > self._max_tokens:
            self.trie.evict()

    def keep(self) -> None:
        """Save what is new; where that cannot be, say so and go on: it is only speed."""
        if self._path is None or self._is_kept:
            return
        self._kept_s = time.monotonic()
        try:
            self.save(self._path)
            self._is_kept = True
        except WagerError as error:
            logging.getLogger("wager").warning("what drafts have learnt is not kept: %s", error)

    def save(self, path: Path) -> None:
        """A reader sees the old file or the new one. Raises WagerError where it cannot be written.

        A folder that is made for it is the user's alone: the file holds what was said.
        """
        with suppress(OSError):  # write_text says what is wrong
            path.parent.mkdir(mode=0o700, parents=True)
        write_text(path, json.dumps({"format": _FORMAT, "documents": self.trie.documents}))

    def load(self, path: Path, *, n_valid_ids: int) -> None:
        """Add the texts of a file. Raises ModelError for one that is damaged, or has ids from ``n_valid_ids`` on."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            documents = content["documents"]
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}")
            if not all(type(t) is int and 0 <= t < n_valid_ids for document in documents for t in document):
                raise ValueError("not token ids")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"`{path}` cannot be read ({error}): delete it, or draft with suffix:local") from error
        for document in documents:
            self._insert(document)


class _Match(NamedTuple):
    """A context of ``length`` tokens that occurred before and went on.

    ``edges``: (probability, node below) of how, best first; ``weight`` of what is expected of it. ``on_edges``:
    occurrences that a node does not count yet (``SuffixTrie.on_edges``).
    """

    trie: SuffixTrie
    on_edges: Mapping[Node, int]
    length: int
    edges: list[tuple[float, Node]]
    weight: float
    support: int


@dataclass(slots=True, eq=False)
class _Request:
    seq: Sequence
    trie: SuffixTrie


class Suffix:
    """Drafts from counts of what followed the newest tokens: in their own sequence and in ``shared``, answers given.

    For every number m of newest tokens that occurred before, the likeliest nodes: ``factor`` m + ``offset`` of them,
    times the width of a tree, a child having the share of its parent's count as probability, none below ``min_prob``.
    The draft with the largest sum of probabilities is taken, of equal ones that of the longer m. Where one child a node
    is allowed, that is to follow the most frequent one, and of equally frequent ones the latest.

    Differences from the paper: a context that occurred n times counts as n + 1 times, in other texts too, since one
    occurrence proves little; what other texts say counts half, and drafts are as long as those of look-up, since the
    policy cuts them (both measured, on answers of a 135M model); of a finished sequence the answer is shared, not the
    prompt, which the next turn or sample would only count again.

    ``support`` is 2 m f / (a + 1), half of that from other texts, rounded, at least 1: f times the drafted token
    followed, a times another one. On greedy answers its steps were accepted .16 .30 .45 .62 .67 .82 of the time.
    """

    name = "suffix"
    kind: DraftKind = "deterministic"
    has_laws = False

    def __init__(
        self,
        *,
        shared: FinishedTexts | None = None,
        depth: int = _DEPTH,
        factor: float = 2.0,
        offset: float = 1.0,
        min_prob: float = 0.1,
    ) -> None:
        assert 0 < min_prob <= 1, min_prob
        self._shared = shared
        self._depth = depth
        self._factor = factor
        self._offset = offset
        self._min_prob = min_prob
        self._requests: dict[int, _Request] = {}
        self._watch = Stopwatch(_ASKING_S)

    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]:
        self._watch.start()
        asked = [min(limit.n_nodes, limit.depth, limit.width) > 0 for limit in limits]
        drafts = [
            self._draft(self._request(seq), limit) if ask else EMPTY
            for seq, limit, ask in zip(seqs, limits, asked, strict=True)
        ]
        self._watch.stop()
        self._watch.lap(sum(asked))
        return drafts

    def _request(self, seq: Sequence) -> _Request:
        request = self._requests.get(seq.id)
        if request is None or request.seq is not seq:
            request = self._requests[seq.id] = _Request(seq, SuffixTrie(self._depth))
        request.trie.extend(seq.tokens[request.trie.n_open :])
        return request

    def _draft(self, request: _Request, limit: Limits) -> Draft:
        best, most, support = Growing(limit), 0.0, 0
        for match in self._matches(request, limit.width):
            n = min(limit.n_nodes, limit.width * int(self._factor * match.length + self._offset))
            if match.weight * match.edges[0][0] * n <= most:  # were all nodes as likely as the first, it would not win
                continue
            growing, score = self._grow(match, replace(limit, n_nodes=n))
            if match.weight * score > most + _TIE:
                best, most, support = growing, match.weight * score, match.support
        return best.draft(support)

    def _matches(self, request: _Request, width: int) -> Iterator[_Match]:
        """Contexts that occurred before and went on, the longest first; the sequence's own before those of others."""
        on_edges = request.trie.on_edges()
        for place in request.trie.suffixes():
            yield from self._match(request.trie, on_edges, place, width, weight=1.0)
        if self._shared is None:
            return
        trie = self._shared.trie
        recent = request.seq.tokens[-trie.depth + 1 :]
        places: list[Place] = []
        for n in range(1, len(recent) + 1):
            found = trie.find(recent[-n:])
            if found is None:
                break
            places.append(found)
        for place in reversed(places):
            yield from self._match(trie, {}, place, width, weight=_SHARED)

    def _match(
        self, trie: SuffixTrie, on_edges: Mapping[Node, int], place: Place, width: int, *, weight: float
    ) -> Iterator[_Match]:
        node, depth, n_more = place
        if depth < node.depth:
            counts = [(node.count + n_more, node)]
            total = counts[0][0]
        else:
            counts = _most_frequent(node, width, on_edges)
            total = node.count - (trie.n_open > 0)  # the end of an open text is the very context that is to go on
        edges = [(n / (total + 1), child) for n, child in counts if n / (total + 1) >= self._min_prob]
        if edges:
            support = round(2 * weight * depth * counts[0][0] / (total - counts[0][0] + 1))
            yield _Match(trie, on_edges, depth, edges, weight, max(1, support))

    def _grow(self, match: _Match, limit: Limits) -> tuple[Growing, float]:
        """The likeliest nodes after a context, and the sum of their probabilities."""
        growing, score = Growing(limit), 0.0
        edges = [(-prob, i, -1, node, match.length) for i, (prob, node) in enumerate(match.edges)]
        n_seen = len(edges)
        while edges and not growing.is_full:
            prob, _, parent, node, depth = heapq.heappop(edges)
            for token in _edge(match.trie, node, depth, growing.path(parent), limit.n_nodes):
                new = growing.add(parent, token)
                if new is None:
                    break
                parent, score = new, score - prob
            else:
                for n, child in _most_frequent(node, limit.width, match.on_edges):
                    p = prob * n / node.count
                    if -p >= self._min_prob:
                        heapq.heappush(edges, (p, n_seen, parent, child, node.depth))
                        n_seen += 1
        return growing, score

    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None:
        """Nothing to learn: the next ``propose`` that asks for a draft catches up with the committed tokens."""

    def forget(self, seq_id: int) -> None:
        """The sequence has ended: what was answered is shared from now on.

        Where it has not been drafted for of late that does not pay here, and would not pay to count.
        """
        request = self._requests.get(seq_id)
        if request is None:
            return
        if self._shared is not None and request.seq.n_output > 0 and self._n_behind(request.seq) <= _FAR_BEHIND:
            self._shared.add(request.seq.tokens[max(0, request.seq.n_prompt - _N_LEAD) :])
        del self._requests[seq_id]

    def seconds(self, n_tokens: int) -> float:
        """As measured: it is finding what to copy that takes the time, not copying it."""
        return self._watch.seconds if n_tokens else 0.0

    def prices(self, seq: Sequence, n_tokens: int) -> tuple[float, float]:
        """To draft, and to count what is new."""
        return self.seconds(n_tokens), _COUNTING_S * self._n_behind(seq)

    def _n_behind(self, seq: Sequence) -> int:
        """Tokens that are not counted yet."""
        request = self._requests.get(seq.id)
        return len(seq.tokens) - (request.trie.n_open if request is not None else 0)


def _most_frequent(node: Node, n: int, on_edges: Mapping[Node, int]) -> list[tuple[int, Node]]:
    """At most n children with their counts, most frequent first, then latest first; of the latest ones."""
    latest = islice(reversed((node.children or {}).values()), _N_CHILDREN)
    counted = [(child.count + on_edges.get(child, 0), child) for child in latest]
    if len(counted) < 2:
        return counted
    return [max(counted, key=_first)] if n == 1 else heapq.nlargest(n, counted, key=_first)


def _edge(trie: SuffixTrie, node: Node, depth: int, path: list[int], n: int) -> list[int]:
    """At most n tokens of an edge from ``depth`` on, ``path`` being drafted before them.

    Where the text ends on the edge, the draft goes on as it began: what follows the text's end is the draft.
    """
    n = min(n, node.depth - depth)
    tokens = path + trie.label(node, depth, depth + n)
    for i in range(len(path) + n - len(tokens)):
        tokens.append(tokens[i])
    return tokens[len(path) :]


def make(argument: str, target: Any) -> Suffix:
    """For the registry. ``argument``: nothing, or local. Answers are kept in the home of wager, a file a model.

    ``target``: whatever has ``ir_dir``, ``n_valid_ids`` and ``remember``; where that is False, or there is no target,
    answers are shared between requests and none is kept.
    """
    if argument not in ("", "local"):
        raise OptionError(f"`drafter` is {'suffix:' + argument!r}: give suffix, or suffix:local to share nothing")
    if argument == "local":
        return Suffix()
    if target is None or not target.remember:
        return Suffix(shared=FinishedTexts())
    path = wager_home() / "suffix" / f"{model_hash(target.ir_dir)[:12]}.json"
    texts = FinishedTexts(path=path)
    if path.exists():
        texts.load(path, n_valid_ids=target.n_valid_ids)
    drafter = Suffix(shared=texts)
    weakref.finalize(drafter, texts.keep)  # when it is dropped, or the process ends
    return drafter


DRAFTER = DrafterInfo(
    make=make,
    drafts="what followed most often, by counted suffixes of this text and of answers given before",
    remembers="up to 65536 tokens of answers, also on disk (below `WAGER_HOME`, per model); `suffix:local` nothing",
    costs="0.1 ms",
    source="SuffixDecoding, Oliaro et al. 2411.04975",
    needs_target=False,
)
