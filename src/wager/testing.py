"""Executable contracts. ``check_drafter`` is what it means to be a drafter: run it in the tests of your own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from typing import get_args

import numpy as np

from wager.pack import paths
from wager.testing_rules import check_rule as check_rule
from wager.tree import children
from wager.types import (
    EMPTY,
    SAMPLED,
    Draft,
    Drafter,
    DraftKind,
    Drawn,
    Law,
    Limits,
    Sampling,
    Seen,
    Sequence,
    Steered,
    Verdict,
)

MakeDrafter = Callable[[], Drafter]

N_HIDDEN = 8  # width of the hidden states that drafters are shown
_WARM = Sampling(temperature=0.8)
_TREE = Limits(8, 4, 2)
_LIMITS = (
    Limits(0, 0, 0),
    Limits(1, 1, 1),
    Limits(4, 4, 1),
    Limits(5, 2, 1),
    Limits(3, 8, 1),
    Limits(6, 3, 2),
    Limits(12, 2, 4),
    Limits(31, 31, 1),
    Limits(0, 4, 1),
    Limits(4, 0, 1),
)


def check_drafter(
    make: MakeDrafter, *, vocab_size: int, context_length: int = 256, seed: int = 0, learns: bool = False
) -> None:
    """Raises AssertionError, saying which promise ``make()`` breaks.

    ``vocab_size``: the target's ids are below it. ``context_length``: longest text to try. ``learns``: what one
    sequence teaches may change the drafts of another, so drafts are compared between equal histories only.
    """
    texts = _texts(vocab_size, context_length, seed)
    _check_names(make())
    _check_empty(make(), texts)
    for text in texts:
        for sampling in (Sampling(), Sampling(temperature=0.8, top_k=5)):
            _check_one(make, text, sampling, vocab_size)
    if make().kind in SAMPLED:
        _check_form(make, texts, vocab_size)
    if isinstance(make(), Steered):
        _check_steered(make, texts)
    _check_repeatable(make, texts)
    if not learns:
        _check_catching_up(make, texts, vocab_size)
        _check_interleaving(make, texts, vocab_size, seed)
        _check_forget(make, texts)


def _texts(vocab_size: int, context_length: int, seed: int) -> list[list[int]]:
    """A single token, constant, periodic, few-lettered and random texts, up to the context."""
    rng = np.random.default_rng(seed)
    n = min(48, context_length - 1)
    few = rng.integers(0, min(3, vocab_size), n)
    return [
        [vocab_size - 1],
        [0, 0],
        [0] * n,
        [i % min(5, vocab_size) for i in range(n)],
        [int(t) for t in few],
        [int(t) for t in rng.integers(0, vocab_size, n)],
        [int(t) for t in rng.integers(0, min(7, vocab_size), context_length - 1)],
    ]


def _sequence(seq_id: int, tokens: ListLike[int], n_prompt: int, sampling: Sampling | None = None) -> Sequence:
    return Sequence(seq_id, list(tokens), n_prompt, sampling or _WARM, seed=7)


def _ask(drafter: Drafter, seqs: ListLike[Sequence], limits: ListLike[Limits], vocab_size: int) -> list[Draft]:
    before = [list(seq.tokens) for seq in seqs]
    drafts = drafter.propose(seqs, limits)
    assert len(drafts) == len(seqs), f"{len(drafts)} drafts for {len(seqs)} sequences"
    assert [seq.tokens for seq in seqs] == before, "propose changed seq.tokens"
    for draft, limit in zip(drafts, limits, strict=True):
        check_draft(draft, limit, vocab_size)
        if len(draft):
            assert draft.kind == drafter.kind, f"a {draft.kind} draft of a drafter of {drafter.kind} ones"
            assert (draft.laws is not None) == drafter.has_laws, f"has_laws is {drafter.has_laws}, laws {draft.laws}"
    return drafts


def check_draft(draft: Draft, limit: Limits, vocab_size: int) -> None:
    """Raises AssertionError where a draft leaves its limits or the vocabulary, or is not well formed."""
    n = len(draft)
    assert n <= limit.n_nodes, f"{n} nodes, limit {limit.n_nodes}"
    assert bool(np.all((draft.tokens >= 0) & (draft.tokens < vocab_size))), f"ids outside [0, {vocab_size}): {draft}"
    depths: list[int] = []
    below: dict[int, list[int]] = {}
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
        below.setdefault(parent, []).append(token)
    assert max(depths, default=0) <= limit.depth, f"depth {max(depths)}, limit {limit.depth}"
    widest = max(map(len, below.values()), default=0)
    assert widest <= limit.width, f"{widest} children of one node, limit {limit.width}"
    if draft.kind == "iid":
        assert len(paths(draft)) <= max(1, limit.width), f"{len(paths(draft))} sequences, limit {limit.width}"
    else:
        assert all(len(set(c)) == len(c) for c in below.values()), f"siblings hold the same token: {draft}"
    if draft.kind in SAMPLED:  # they are never cut by what they are, so every path must have room
        n_rows = sum(map(len, paths(draft)))
        assert n_rows <= limit.n_nodes, f"paths of {n_rows} nodes, limit {limit.n_nodes}"
    assert draft.support >= 0, draft.support
    if draft.laws is not None:
        _check_laws(draft, draft.laws, vocab_size)


def _check_laws(draft: Draft, laws: ListLike[Law], vocab_size: int) -> None:
    for token, law in zip(draft.tokens.tolist(), laws, strict=True):
        check_law(law, vocab_size)
        assert token in law.ids, f"token {token} is impossible under the law it was drawn from"
    for siblings in children(draft).values():
        assert len({id(laws[node]) for node in siblings}) == 1, f"siblings {siblings} have laws of their own"


def check_law(law: Law, vocab_size: int) -> None:
    """Raises AssertionError where a law is not one over ids below ``vocab_size``."""
    assert law.ids.shape == law.probs.shape, (law.ids.shape, law.probs.shape)
    assert bool(np.all(np.diff(law.ids) > 0)), "ids of a law must ascend"
    assert bool(np.all((law.ids >= 0) & (law.ids < vocab_size))), f"ids outside [0, {vocab_size}): {law.ids}"
    assert bool(np.all(law.probs > 0)), "probabilities of a law must be positive"
    assert abs(float(law.probs.sum()) - 1) < 1e-9, f"a law sums to {law.probs.sum()}"


def _check_names(drafter: Drafter) -> None:
    assert drafter.name, "name is empty"
    assert drafter.kind in get_args(DraftKind), f"kind is {drafter.kind!r}"
    seconds = [drafter.seconds(n) for n in range(17)]
    assert all(0 <= s < float("inf") for s in seconds), f"seconds are {seconds}"
    assert seconds == sorted(seconds), f"more tokens take less time: {seconds}"


def _check_empty(drafter: Drafter, texts: ListLike[list[int]]) -> None:
    assert drafter.propose([], []) == [], "no sequences must give no drafts"
    seqs = [_sequence(i, text, len(text)) for i, text in enumerate(texts)]
    drafts = drafter.propose(seqs, [Limits(0, 0, 0)] * len(seqs))
    assert all(len(draft) == 0 for draft in drafts), "limits of 0 must give empty drafts"
    drafter.forget(10**9)


def _check_one(make: MakeDrafter, text: list[int], sampling: Sampling, vocab_size: int) -> None:
    """Plays the engine on one text: draft, accept what the text confirms, commit, observe."""
    drafter = make()
    n_prompt = max(1, len(text) // 2)
    seq = _sequence(0, text[:n_prompt], n_prompt, sampling)
    round_ = 0
    while len(seq.tokens) < len(text):
        limit = _LIMITS[round_ % len(_LIMITS)]
        draft = _ask(drafter, [seq], [limit], vocab_size)[0]
        verdict = _settle(draft, text[len(seq.tokens) :])
        seq.tokens += text[len(seq.tokens) : len(seq.tokens) + len(verdict.path) + 1]
        drafter.observe([seq], [draft], [verdict], [_seen(draft, vocab_size, len(seq.tokens))])
        round_ += 1
    for limit in _LIMITS:
        _ask(drafter, [seq], [limit], vocab_size)
    drafter.forget(seq.id)


def _check_form(make: MakeDrafter, texts: ListLike[list[int]], vocab_size: int) -> None:
    """Rules rely on the chance in the draft, so its form must not tell what was drawn."""
    for text, limit in itertools.product(texts, (Limits(5, 2, 1), Limits(12, 3, 2), Limits(12, 2, 4))):
        for sampling in (_WARM, Sampling(temperature=1.5, top_p=0.5)):
            drafts = [_ask(make(), [Sequence(0, list(text), 1, sampling, i)], [limit], vocab_size)[0] for i in range(4)]
            forms = {tuple(draft.parents.tolist()) for draft in drafts}
            assert len(forms) == 1, f"the form of a draft depends on what is drawn: {forms}, limits {limit}"


def _seen(draft: Draft, vocab_size: int, seed: int) -> Seen:
    """Some logits and hidden states after the last token and after every node."""
    n_rows, rng = len(draft) + 1, np.random.default_rng(seed)
    logits, hidden = (rng.standard_normal((n_rows, n)).astype(np.float32) for n in (vocab_size, N_HIDDEN))
    return Seen(logits, np.arange(n_rows, dtype=np.int32), hidden)


def _settle(draft: Draft, truth: ListLike[int]) -> Verdict:
    """The walk where the target says ``truth``; its last token is never taken from the draft."""
    path: list[int] = []
    node = -1
    for token in truth[:-1]:
        matches = [i for i in range(len(draft)) if draft.parents[i] == node and draft.tokens[i] == token]
        if not matches:
            break
        node = matches[0]
        path.append(node)
    return Verdict(tuple(path), truth[len(path)])


def _same(a: Draft, b: Draft) -> bool:
    laws = zip(a.laws or (), b.laws or (), strict=True)
    return (
        np.array_equal(a.tokens, b.tokens)
        and np.array_equal(a.parents, b.parents)
        and a.support == b.support
        and all(np.array_equal(x.ids, y.ids) and np.allclose(x.probs, y.probs) for x, y in laws)
    )


class _Never:
    """Ends nothing, or everything before its first token."""

    n_top = 0

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once

    def before(self, path: Drawn, entropy: float) -> bool:
        assert entropy >= 0, f"an entropy of {entropy}"
        return self._at_once

    def after(self, paths: ListLike[Drawn]) -> list[bool]:
        return [False] * len(paths)


def _check_steered(make: MakeDrafter, texts: ListLike[list[int]]) -> None:
    """A stop that ends nothing changes nothing but that nodes tell their probability; one that ends all leaves none."""
    for text in texts:
        limits = [Limits(4, 4, stop=stop) for stop in (None, _Never(), _Never(at_once=True))]
        free, asked, none = (make().propose([_sequence(0, text, 1)], [limit])[0] for limit in limits)
        assert _same(free, asked), f"a stop that never ends a draft makes it {asked}, not {free}"
        assert free.confidence is None, "confidence that nobody asked for"
        told = asked.confidence
        assert told is not None, "no confidence where a stop asked for it"
        assert bool(np.all((told > 0) & (told <= 1))), f"probabilities of drafted tokens are {told}"
        assert len(none) == 0, f"a stop before the first token leaves {none}"


def _check_repeatable(make: MakeDrafter, texts: ListLike[list[int]]) -> None:
    one, other = make(), make()
    for i, text in enumerate(texts):
        limit = [_TREE]
        a = one.propose([_sequence(i, text, 1)], limit)[0]
        b = other.propose([_sequence(i, text, 1)], limit)[0]
        assert _same(a, b), f"two drafters with one history disagree on {text}: {a} and {b}"


def _check_catching_up(make: MakeDrafter, texts: ListLike[list[int]], vocab_size: int) -> None:
    for text in texts:
        drafter = make()
        seq = _sequence(0, text[:1], 1)
        limit = [_TREE]
        for token in text[1:]:
            draft = drafter.propose([seq], limit)[0]
            seq.tokens.append(token)
            drafter.observe([seq], [draft], [_settle(draft, [token])], [_seen(draft, vocab_size, len(seq.tokens))])
        grown = drafter.propose([seq], limit)[0]
        fresh = make().propose([_sequence(0, text, 1)], limit)[0]
        assert _same(grown, fresh), f"token by token it drafts {grown}, at once {fresh}, for {text}"


def _check_interleaving(make: MakeDrafter, texts: ListLike[list[int]], vocab_size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drafter = make()
    seqs = [_sequence(i, text[:1], 1) for i, text in enumerate(texts)]
    limit = _TREE
    while any(len(seq.tokens) < len(texts[seq.id]) for seq in seqs):
        some = [seqs[i] for i in rng.permutation(len(seqs))[: rng.integers(1, len(seqs) + 1)]]
        drafts = _ask(drafter, some, [limit] * len(some), vocab_size)
        for seq, draft in zip(some, drafts, strict=True):
            alone = make().propose([_sequence(seq.id, seq.tokens, 1)], [limit])[0]
            assert _same(draft, alone), f"among others it drafts {draft}, alone {alone}, for {seq.tokens}"
            n = int(rng.integers(1, 9))
            seq.tokens += texts[seq.id][len(seq.tokens) : len(seq.tokens) + n]
        drafter.observe(
            some,
            [EMPTY] * len(some),
            [Verdict((), seq.tokens[-1]) for seq in some],
            [_seen(EMPTY, vocab_size, len(seq.tokens)) for seq in some],
        )


def _check_forget(make: MakeDrafter, texts: ListLike[list[int]]) -> None:
    drafter = make()
    limit = [_TREE]
    for text in texts:  # one id for all: only forget may separate them
        drafter.propose([_sequence(0, text[: len(text) // 2 + 1], 1)], limit)
        drafter.forget(0)
        draft = drafter.propose([_sequence(0, text, 1)], limit)[0]
        fresh = make().propose([_sequence(0, text, 1)], limit)[0]
        assert _same(draft, fresh), f"after forget it drafts {draft}, a fresh one {fresh}, for {text}"
        drafter.forget(0)
