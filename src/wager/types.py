"""The nouns of the engine: frozen data and invariants, no behaviour.

Letters in shapes: **B** fed subsequences, **T** tokens fed, **R** rows of logits, **V** vocabulary, **n** draft nodes,
**H** hidden width. All ranges are half-open.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from wager.constraint import Guide
from wager.errors import WagerError
from wager.request import Sampling as Sampling

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

Finish = Literal["stop", "length", "cancelled", "error"]
# How tokens are laid out in a forward so that their logits do not depend on how they are grouped. "pair": every
# subsequence has at least two rows. "split": a prompt is read in subsequences of at least two rows, and every output
# token is a subsequence of its own. "any": nothing is promised.
RowsRule = Literal["split", "pair", "any"]
DraftKind = Literal["deterministic", "coupled", "iid", "without_replacement"]
SAMPLED: frozenset[DraftKind] = frozenset(("iid", "without_replacement"))  # kinds whose chance rules rely on


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probability of a token under the raw logits, with the most likely alternatives (id, logprob), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """One request (or one sample of it). ``tokens`` is the truth: prompt + committed output.

    ``n_cached`` is the length of the prefix whose K/V the target's cache holds: 0 <= n_cached < len(tokens). ``sample``
    tells the n samples of one request apart in the noise. ``guide`` is what the sampling's constraint has become, while
    it runs. ``finish`` is None while it runs; ``error`` says why where it is "error".
    """

    id: int
    tokens: list[int]
    n_prompt: int
    sampling: Sampling
    seed: int
    sample: int = 0
    n_cached: int = 0
    guide: Guide | None = None
    finish: Finish | None = None
    error: WagerError | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def n_output(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def output(self) -> list[int]:
        return self.tokens[self.n_prompt :]


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """A law over few tokens: ``ids`` (m,) ascending, ``probs`` (m,) positive with sum 1."""

    ids: I64
    probs: F64


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A guess at the continuation: a forest of n nodes below the last committed token.

    ``tokens`` (n,) and ``parents`` (n,) int32, parents[i] < i, -1 = child of the last committed token. A chain has
    parents -1, 0, 1, … ``laws`` (n): the law that node i was drawn from, after all options; siblings share one object
    (without replacement: the law before anything was taken out). None where nothing was drawn, or nobody asked.
    ``support`` says how strong the evidence was (the matched length of a look-up, else 0) and ``source`` which of
    several drafters it came from ("": the only one): policies keep acceptance by both. ``confidence`` (n,): the
    drafter's own probability of each node, where it has one or ``Limits.stop`` asked. ``kind`` "iid": siblings are
    independent draws in draw order, and may hold the same token; the nodes with one path of tokens are then one context
    (``tree.contexts``). Every other kind has different siblings.
    """

    tokens: I32
    parents: I32
    laws: tuple[Law, ...] | None = None
    kind: DraftKind = "deterministic"
    support: int = 0
    source: str = ""
    confidence: F32 | None = None

    def __post_init__(self) -> None:
        assert self.laws is None or len(self.laws) == len(self.tokens), "one law a node"
        assert self.confidence is None or self.confidence.shape == self.tokens.shape, "one probability a node"
        assert self.tokens.shape == self.parents.shape, (self.tokens.shape, self.parents.shape)
        assert self.tokens.ndim == 1
        assert all(-1 <= parent < i for i, parent in enumerate(self.parents.tolist())), self.parents

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        parents: list[int] = self.parents.tolist()
        return parents == list(range(-1, len(parents) - 1))


def chain(tokens: ListLike[int], *, support: int = 0, kind: DraftKind = "deterministic") -> Draft:
    """A draft whose every node has one child."""
    n = len(tokens)
    return Draft(np.asarray(tokens, np.int32).reshape(n), np.arange(-1, n - 1, dtype=np.int32), None, kind, support)


EMPTY = chain([])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rule decided: ``path`` are the accepted nodes from root to leaf, ``token`` the one after them.

    Of i.i.d. duplicates the path names the first (``tree.contexts``). ``error``: why nothing can follow the path; then
    ``token`` means nothing.
    """

    path: tuple[int, ...]
    token: int
    error: WagerError | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """What one sequence gained in one step. ``text`` is the printable piece, ``finish`` not None on the last one.

    ``n_drafted`` says how many of ``tokens`` came out of the draft (the first ones, in order), ``error`` why it ended
    where ``finish`` is "error".
    """

    seq_id: int
    tokens: tuple[int, ...]
    text: str
    finish: Finish | None
    logprobs: tuple[TokenLogprob, ...] = ()
    n_drafted: int = 0
    error: WagerError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One ragged forward of B subsequences (forks and padding included).

    ``tokens`` (T,) i64, ``positions`` (T,) i64, ``past`` (B,) i32: K/V rows already there, ``starts`` (B+1,) i32 into
    tokens, ``blocks`` (·,) i32 block ids, ``block_starts`` (B+1,) i32 into blocks, ``rows`` (R,) i64: indices into
    tokens whose logits are wanted (never padding). ``masks``: one (n, n) u8 matrix or None per subsequence (profile
    ``max`` only).
    """

    tokens: I64
    positions: I64
    past: I32
    starts: I32
    blocks: I32
    block_starts: I32
    rows: I64
    masks: tuple[npt.NDArray[np.uint8] | None, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """``logits`` (R, V) f32 for ``Batch.rows`` in order and ``hidden`` (R, H) f32, what the head saw (None where the
    model does not tell): valid until the next forward.
    """

    logits: F32
    hidden: F32 | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the target said about one sequence in one round: ``all_logits`` (R, V), ``rows`` (n + 1,) into them.

    ``all_hidden`` (R, H) or None. Valid until the next forward: copy what is to be kept.
    """

    all_logits: F32
    rows: I32
    all_hidden: F32 | None = None

    def logits(self, node: int) -> F32:
        """Raw logits (V,) after a node of the draft as it was fed; -1: after the token before it."""
        row: F32 = self.all_logits[self.rows[node + 1]]
        return row

    def hidden(self, node: int) -> F32 | None:
        """What the head saw (H,) where ``logits(node)`` came from; None where the model does not tell."""
        return None if self.all_hidden is None else self.all_hidden[self.rows[node + 1]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A path being drafted, as its own model saw it: of every token its probability, and the entropy (nats) of the law
    that it was drawn from.
    """

    probs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()


class Stop(Protocol):
    """When to end a draft while it is drawn. A drafter that is ``Steered`` asks, the text must not depend on it.

    ``before``: the ``entropy`` of the law after a path is known and nothing has been drawn from it; True: nothing is.
    ``after``: every path has another token; which of them end here (tokens stay). Entropies are those of the ``n_top``
    likeliest tokens, as if there were no others; 0 takes all.

    Rules that rely on the chance in a draft allow both for single paths only: then what is drawn decides about later
    tokens, never about itself (related work: keep, then stop).
    """

    @property
    def n_top(self) -> int: ...
    def before(self, path: Drawn, entropy: float) -> bool: ...
    def after(self, paths: ListLike[Drawn]) -> list[bool]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one sequence may draft this step: nodes in all, depth, children a node. Zeros mean: do not draft.

    ``trunk``: tokens before branches part, where the drafter is ``Steered``; None leaves it to the drafter. ``stop``
    ends a draft earlier.
    """

    n_nodes: int
    depth: int
    width: int = 1
    trunk: int | None = None
    stop: Stop | None = None


class Model(Protocol):
    """A language model over paged K/V. ``forward`` either writes all K/V it was asked to or raises.

    A forward takes at most ``max_rows`` rows, padded to ``width_for(n_rows)``, laid out by ``rows_rule``: then logits
    do not depend on the grouping of tokens (unless the rule is "any"). ``tree_masks``: draft trees are fed once, under
    a mask, instead of as forks. ``masks_are_exact``: under a mask a token's logits are, bit for bit, those of a chain,
    and subsequences of a forward read what others of it write, in the same blocks too (the plugin clears V behind the
    last row of each).
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def n_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def rows_rule(self) -> RowsRule: ...
    @property
    def tree_masks(self) -> bool: ...
    @property
    def masks_are_exact(self) -> bool: ...

    kv_owner: object  # whose bookkeeping the K/V memory follows; an engine that finds another one starts afresh

    def width_for(self, n_rows: int) -> int: ...
    def forward(self, batch: Batch) -> Forward: ...
    def copy(self, src_blocks: ListLike[int], dst_blocks: ListLike[int]) -> None: ...


class TargetView(Protocol):
    """The target as seen by a drafter that is made of it: its model, and where the K/V of sequences lies."""

    @property
    def model(self) -> Model: ...

    def scratch(self, seq: Sequence, n_rows: int) -> ListLike[int] | None:
        """The block table of a sequence with room for rows [0, n_rows); None where there is none.

        Rows before ``seq.n_cached`` are the target's and must not be written. Those from there on may be, until
        ``propose`` returns: the verification writes over them.
        """
        ...


@runtime_checkable
class ReadsTarget(Protocol):
    """A drafter that reads the target's K/V: told where once, when its engine is made."""

    def attach(self, view: TargetView) -> None: ...


@runtime_checkable
class Steered(Protocol):
    """A drafter that draws from laws of its own: it honours ``Limits.trunk`` and ``Limits.stop``, and where there is a
    stop its drafts carry ``Draft.confidence``.
    """

    steered: bool


@runtime_checkable
class Priced(Protocol):
    """A drafter whose time is known by sequence: ``prices`` are the seconds of drafting so many tokens for it, and
    those of reading first what it has not been asked about yet.
    """

    def prices(self, seq: Sequence, n_tokens: int) -> tuple[float, float]: ...


@runtime_checkable
class Offers(Protocol):
    """Several drafters, of which each sequence has its own: the one of the name that it is bound to."""

    def bind(self, seq_id: int, name: str) -> None: ...


@runtime_checkable
class Explains(Protocol):
    """A drafter or a policy that can say why it did what it did last for a sequence."""

    def explain(self, seq_id: int) -> str: ...


class Drafter(Protocol):
    """Proposes continuations. Everything about it is a function of ``seq.tokens``, its own caches and what it observed.

    ``propose`` returns one draft per sequence, at most ``limits`` each (an empty draft is always fine). ``observe`` is
    told each step's verdicts and what the target said, after the tokens were committed: ``drafts`` as they were fed.
    ``forget`` drops what is kept for a sequence. ``seconds(n)`` is the expected time of drafting n tokens for one
    sequence, known before doing it. ``kind`` is that of all its drafts, and ``has_laws`` whether they carry the laws
    they were drawn from: verification rules ask for it.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> DraftKind: ...
    @property
    def has_laws(self) -> bool: ...
    def propose(self, seqs: ListLike[Sequence], limits: ListLike[Limits]) -> list[Draft]: ...
    def observe(
        self,
        seqs: ListLike[Sequence],
        drafts: ListLike[Draft],
        verdicts: ListLike[Verdict],
        seen: ListLike[Seen],
    ) -> None: ...
    def forget(self, seq_id: int) -> None: ...
    def seconds(self, n_tokens: int) -> float: ...


JSON = dict[str, Any]
