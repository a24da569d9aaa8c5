"""How likely a model finds given continuations: all candidates of a prompt as one trie, fed once after it.

Where a mask changes no bit (our kernels), or the profile uses masks anyway, the trie is fed as one tree, every token
once. Elsewhere it takes one sequence per leaf, with the K/V of the prompt shared; a token's logits are asked of the
first leaf that holds it. Each path is laid out as if the model had written it, so under a rows rule a score is bit for
bit the one that the candidate gets alone, and the one that the model draws it with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from wager.cache import n_common
from wager.engine import Engine
from wager.errors import OptionError, PromptError
from wager.interrupt import whole
from wager.text import Text
from wager.types import F32, F64, I64, Draft, Sequence
from wager.wide import sums

Terminator = Literal["auto", "end", "line", "none"]
Candidate = str | ListLike[int]
Path = tuple[int, ...]
_LINE_ENDS = (b"\n", b"\r")
_TAIL_CHARS = 16
_REMEMBERED = 64  # ends of prompts whose candidates are encoded: the rows of a data set have one


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Log-probabilities of n continuations of one prompt, natural logs.

    ``logprobs`` (n,): of the whole continuation and what ends it. ``tokens``: what each was encoded to, with
    ``token_logprobs`` of each token and, where one was asked for, of the terminator (the last entry). ``greedy``:
    whether temperature 0 writes exactly these tokens. ``n_tokens`` were fed beyond the prompt.
    """

    candidates: tuple[Candidate, ...]
    tokens: tuple[Path, ...]
    token_logprobs: tuple[F64, ...]
    greedy: tuple[bool, ...]
    n_prompt: int
    n_tokens: int

    @property
    def logprobs(self) -> F64:
        return np.array([float(each.sum()) for each in self.token_logprobs])

    @property
    def distinct(self) -> F64:
        """``logprobs`` (n,) with -inf for candidates whose tokens came before: no mass is counted twice."""
        first = {path: i for i, path in reversed(list(enumerate(self.tokens)))}
        return np.where([first[path] == i for i, path in enumerate(self.tokens)], self.logprobs, -np.inf)

    @property
    def covered(self) -> float:
        """Probability that the model writes one of the candidates; needs a terminator, or none that begins another."""
        return float(np.exp(self.distinct).sum())


@dataclass(frozen=True, slots=True)
class Leaf:
    """A path of the trie to feed. ``n_shared``: leading tokens whose logits an earlier leaf tells; -1: none, not even
    those after the prompt.
    """

    tokens: Path
    n_shared: int


def leaves(paths: Iterable[Path]) -> list[Leaf]:
    """The fewest paths that hold all ``paths``, in order, each with what it adds."""
    ordered = sorted(set(paths))
    kept = [
        path for path, after in zip(ordered, [*ordered[1:], ()], strict=True) if after[: len(path)] != path or not after
    ]
    return [Leaf(path, n_common(path, kept[i - 1]) if i else -1) for i, path in enumerate(kept)]


@dataclass(frozen=True, slots=True)
class Said:
    """What the model says after a path: log-probability of the tokens asked for, of an end, and its first choice, where
    that is one of those tokens.
    """

    logprob: dict[int, float]
    end: float
    best: int | None


def said(row: F32, tokens: Iterable[int], ends: I64, temperature: float) -> Said:
    """Of logits ``row`` (V,), under softmax(row / temperature)."""
    law = sums(row, temperature=temperature)
    total, logits = math.log(law.total), {token: float(row[token]) for token in tokens}
    best = int(row.argmax()) if law.top in logits.values() else None
    logprob = {token: (logit - law.top) / temperature - total for token, logit in logits.items()}
    of_ends = (row[ends].astype(np.float64) - law.top) / temperature - total
    return Said(logprob, float(np.logaddexp.reduce(of_ends)) if len(ends) else 0.0, best)


@dataclass(slots=True, eq=False)
class Trie:
    """The candidates of one prompt, and what the model has said about them so far.

    ``ends``: ids that end an answer, one of which must follow a candidate; none: nothing has to.
    """

    prompt: ListLike[int]
    paths: ListLike[Path]
    ends: ListLike[int]
    temperature: float = 1.0
    after: dict[Path, Said] = field(default_factory=dict)
    _asked: dict[Path, set[int]] = field(default_factory=dict)
    _end_ids: I64 = field(init=False)

    def __post_init__(self) -> None:
        self._end_ids = np.array(self.ends, np.int64)
        for path in self.paths:
            for i in range(len(path) + bool(self.ends)):
                self._asked.setdefault(path[:i], set()).update(path[i : i + 1])

    @property
    def n_tokens(self) -> int:
        """Tokens fed beyond the prompt, each once."""
        return len(self._asked) - 1

    def leaves(self) -> list[Leaf]:
        """What has to be fed."""
        return leaves(self._asked)

    def trees(self, n_most: int) -> list[tuple[Draft, list[Path]]]:
        """The same as trees of at most ``n_most`` nodes, at least as many as the longest path has, and the paths that
        end in their nodes. What trees have in common is in each.
        """
        groups: list[dict[Path, int]] = [{}]
        for leaf in self.leaves():
            path = [leaf.tokens[:i] for i in range(1, len(leaf.tokens) + 1)]
            if len(groups[-1]) + sum(node not in groups[-1] for node in path) > n_most:
                groups.append({})
            for node in path:
                groups[-1].setdefault(node, len(groups[-1]))
        return [(_tree(nodes), list(nodes)) for nodes in groups]

    def hear_tree(self, paths: ListLike[Path], rows: ListLike[F32]) -> None:
        """``rows`` are the logits after the prompt and after each of these paths."""
        for path, row in zip([(), *paths], rows, strict=True):
            self.after[path] = said(row, self._asked[path], self._end_ids, self.temperature)

    def hear(self, leaf: Leaf, first: int, rows: ListLike[F32]) -> None:
        """``rows`` are the logits after tokens ``first``, … of the prompt and this leaf."""
        for i, row in enumerate(rows, start=first - len(self.prompt) + 1):
            path = leaf.tokens[:i]
            self.after[path] = said(row, self._asked[path], self._end_ids, self.temperature)

    def scores(self, candidates: ListLike[Candidate]) -> Scores:
        """Once all leaves have been heard."""
        each = [
            np.array(
                [self.after[path[:i]].logprob[token] for i, token in enumerate(path)]
                + ([self.after[path].end] if self.ends else [])
            )
            for path in self.paths
        ]
        greedy = [all(self.after[path[:i]].best == token for i, token in enumerate(path)) for path in self.paths]
        return Scores(tuple(candidates), tuple(self.paths), tuple(each), tuple(greedy), len(self.prompt), self.n_tokens)


def _tree(nodes: dict[Path, int]) -> Draft:
    tokens = np.array([path[-1] for path in nodes], np.int32)
    return Draft(tokens, np.array([nodes.get(path[:-1], -1) for path in nodes], np.int32))


def queue_reads(engine: Engine, trie: Trie) -> Iterator[Sequence]:
    """Queue what a trie has to feed, one by one: trees, or leaves where masks do not do.

    Raises as ``Engine.submit`` does, and OptionError for ids that the model does not have.
    """
    n_prompt, n_ids = len(trie.prompt), engine.n_valid_ids
    if any(not 0 <= token < n_ids for path in trie.paths for token in path):
        raise OptionError(f"`candidates` hold ids outside [0, {n_ids}): encode them with this model's tokenizer")
    room = engine.tree_room(n_prompt)
    if room >= max(map(len, trie.paths)):
        for tree, paths in trie.trees(room):

            def hear_tree(first: int, rows: ListLike[F32], paths: list[Path] = paths) -> None:
                trie.hear_tree(paths, rows)

            yield engine.read_tree(trie.prompt, tree, hear=hear_tree)
        return
    for leaf in trie.leaves():

        def hear(first: int, rows: ListLike[F32], leaf: Leaf = leaf) -> None:
            trie.hear(leaf, first, rows)

        tokens = [*trie.prompt, *leaf.tokens]
        yield engine.read(tokens, n_prompt=n_prompt, first=n_prompt + leaf.n_shared, hear=hear)


def read(engine: Engine, tries: ListLike[Trie]) -> None:
    """Feed all tries together. Whatever ends it early cancels them all."""
    submitted: list[int] = []
    try:
        for trie in tries:
            for seq in queue_reads(engine, trie):
                submitted.append(seq.id)
        while engine.has_work:
            with whole():
                engine.step()
    finally:
        for seq_id in submitted:
            engine.cancel(seq_id)


class Continuations:
    """Prompts and candidates as tokens, and what ends an answer, for one tokenizer."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._ends: dict[str, tuple[int, ...]] = {}
        self._joint: dict[tuple[str, bool, tuple[str, ...]], tuple[list[int], list[list[int]]]] = {}

    def ends(self, terminator: Terminator) -> tuple[int, ...]:
        """Ids of which any is the end: "end" those that end the text or the turn, "line" also what starts a new line.

        Raises OptionError for other terminators, and where the model has none.
        """
        if terminator not in ("end", "line", "none"):
            raise OptionError(f"`terminator` is {terminator!r}: give auto, end, line or none")
        if terminator not in self._ends:
            ids = set(self._text.eos_ids) if terminator != "none" else set()
            if terminator == "line":
                vocabulary = range(self._text.vocab_size)
                ids |= {token for token in vocabulary if self._text.token_bytes(token).startswith(_LINE_ENDS)}
            if terminator != "none" and not ids:
                raise OptionError(f"`terminator` is {terminator!r}, but the model has no such token: give none")
            self._ends[terminator] = tuple(sorted(ids))
        return self._ends[terminator]

    def trie(
        self,
        prompt: str | ListLike[int],
        candidates: ListLike[Candidate],
        terminator: Terminator,
        temperature: float,
        *,
        chat: bool,
        system: str | None,
    ) -> Trie:
        """The candidates of one prompt, to be read. Raises OptionError where there are none, or one has no tokens,
        PromptError where no token of the prompt stands before them.
        """
        if isinstance(candidates, str) or not len(candidates):
            raise OptionError(f"`candidates` is {candidates!r}: give a list of at least one")
        text, add_special = rendered(self._text, prompt, chat=chat, system=system)
        if terminator == "auto":
            terminator = "line" if isinstance(text, str) and not chat else "end"
        ends = self.ends(terminator)
        texts = tuple(candidate for candidate in candidates if isinstance(candidate, str))
        if isinstance(text, str) and len(texts) == len(candidates):
            tokens, paths = self.split(text, texts, add_special=add_special)
        else:
            tokens = self._text.encode(text, add_special) if isinstance(text, str) else text
            paths = [self._path(candidate) for candidate in candidates]
        if not tokens:
            raise PromptError(f"the prompt {prompt!r} becomes one token with a candidate: give more text before them")
        if not ends and not all(paths):
            raise OptionError("a candidate is empty: leave it out, or give a `terminator`")
        return Trie(tokens, paths, ends, temperature)

    def _path(self, candidate: Candidate) -> Path:
        if isinstance(candidate, str):
            return tuple(self._text.encode(candidate, add_special=False))
        return tuple(int(token) for token in candidate)

    def split(self, prompt: str, candidates: tuple[str, ...], *, add_special: bool) -> tuple[list[int], list[Path]]:
        """Tokens of the prompt, and of each candidate after it, as they are when prompt + candidate is encoded at once.

        The prompt ends where all of these still agree with the prompt alone: a space at its end, or a word that a
        candidate goes on with, moves to the candidates (source: lm-evaluation-harness, ``_encode_pair``).
        """
        cut, tokens = _last_word(prompt), self._text.encode(prompt, add_special)
        alone, joint = self._encoded(prompt[cut:], candidates, add_special=add_special and not cut)
        if tokens[len(tokens) - len(alone) :] != alone:
            alone, joint = self._encoded(prompt, candidates, add_special=add_special)
        n = min(n_common(alone, each) for each in joint)
        return tokens[: len(tokens) - len(alone) + n], [tuple(each[n:]) for each in joint]

    def _encoded(
        self, tail: str, candidates: tuple[str, ...], *, add_special: bool
    ) -> tuple[list[int], list[list[int]]]:
        """Tokens of the end of a prompt alone, and with each candidate: the same for all rows of a template."""
        key = (tail, add_special, candidates)
        if key not in self._joint:
            if len(self._joint) > _REMEMBERED:
                self._joint.clear()
            alone, *joint = (self._text.encode(tail + candidate, add_special) for candidate in ("", *candidates))
            self._joint[key] = alone, joint
        return self._joint[key]


def rendered(
    text: Text, prompt: str | ListLike[int], *, chat: bool, system: str | None
) -> tuple[str | list[int], bool]:
    """A prompt as the text that is encoded, in the chat template unless ``chat`` is False, and whether BOS is for us to
    add. Token ids are what they are.
    """
    if not isinstance(prompt, str):
        return [int(token) for token in prompt], False
    if not prompt:
        raise PromptError("the prompt is empty: give some text")
    if chat:
        return text.render([{"role": "user", "content": prompt}], system), False
    if system is not None:
        raise OptionError("`system` needs the chat template: leave out raw")
    return prompt, True


def _last_word(prompt: str) -> int:
    """Where a word begins, its space included, a few characters before the end: encoding the rest apart is the same."""
    for i in range(len(prompt) - _TAIL_CHARS, 0, -1):
        if prompt[i].isspace() and not prompt[i - 1].isspace():
            return i
    return 0
