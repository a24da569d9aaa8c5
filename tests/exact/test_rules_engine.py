"""Every rule on the real engine, with a real draft model behind it: the target's law comes out, greedy text stays.

The rules themselves are proved by enumeration; here drafts, laws, forks, merging, memory and noise have to fit them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engine_tools import EOS, prompts, run, toy
from engine_tools import V as V_WIDE
from guide_tools import Automaton
from wager.drafters.drawing import Drawing
from wager.drafters.model import ModelDrafter
from wager.engine import Engine
from wager.models.toy import ToyModel
from wager.policies import Fixed, Policy
from wager.policies.adaedl import AdaEdl
from wager.policies.threshold import Threshold
from wager.types import Draft, DraftKind, Law, Sampling
from wager.verify import LOSSY, RULES, RuleInfo, rule_named

V = 5
PROMPT = [1, 2]
SAMPLED = Sampling(temperature=1.0, top_k=3, max_tokens=3)
LONGER = replace(SAMPLED, max_tokens=4)
KINDS: tuple[DraftKind, ...] = ("coupled", "deterministic", "iid", "without_replacement")
N = 400
Z = 4.0  # a normal deviate: false-alarm rate 3e-5 a law, 3e-3 for all laws of this file; the seeds are fixed


def kinds(info: RuleInfo) -> tuple[DraftKind, ...]:
    both = {"nss": KINDS, "traversal": KINDS[2:], "walk": ("coupled", "iid")}
    return both.get(info.name, (info.draws,))


CASES = [(name, kind) for name, info in RULES.items() for kind in kinds(info)]


class Run:
    """Samples of one prompt through one engine, 16 at a time; all bookkeeping is checked after every step."""

    def __init__(
        self,
        rule: str,
        drawing: Drawing,
        sampling: Sampling = SAMPLED,
        *,
        n: int = N,
        draft_seed: int = 7,
        width: int = 3,
        depth: int = 2,
        drafter: type[ModelDrafter] = ModelDrafter,
        n_blocks: tuple[int, int] = (300, 300),
        tree_masks: bool = False,
        prompt: list[int] = PROMPT,
        policy: Policy | None = None,
        eos_ids: tuple[int, ...] = (),
    ) -> None:
        info = rule_named(rule)
        width = width if info.trees else 1
        leaves = width**drawing.levels
        n_pad, options = 64, {"scale": 1.5, "max_rows": 256}
        self.target = ToyModel(V, seed=3, n_blocks=n_pad + n_blocks[0], rows_rule="pair", **options)
        self.target.tree_masks = tree_masks
        draft_model = ToyModel(V, seed=draft_seed, n_blocks=n_pad + n_blocks[1], **options)
        self.drafter = drafter(draft_model, n_valid_ids=V, drawing=drawing)
        policy = policy or Fixed(leaves * depth, depth=depth, width=width)
        engine = Engine(self.target, eos_ids=eos_ids, drafter=self.drafter, policy=policy, rule=info, max_seqs=16)
        seqs = [engine.submit(prompt, sampling, seed=seed) for seed in range(n)]
        stats = [engine.stats(seq.id) for seq in seqs]
        while engine.has_work:
            engine.step()
            engine.cache.check()
            self.drafter.check()
        assert engine.cache.n_free == engine.cache.n_blocks
        self.outputs = [tuple(seq.output) for seq in seqs]
        self.n_drafted, self.n_accepted = (sum(getattr(s, name) for s in stats) for name in ("n_drafted", "n_accepted"))
        self._prompt, self._sampling = prompt, sampling

    def deviates(self, n_tokens: int) -> float:
        """Chi-square of the first tokens against the target's law, as a normal deviate (Wilson, Hilferty 1931)."""
        n, law = len(self.outputs), self.target.exact_law(self._prompt, n_tokens, self._sampling)
        counts = Counter(output[:n_tokens] for output in self.outputs)
        assert set(counts) <= set(law), "a text that the law calls impossible"
        cells = [(counts[text], n * p) for text, p in law.items() if n * p >= 5]
        rest = n - sum(e for _, e in cells)
        if rest >= 5:
            cells.append((n - sum(c for c, _ in cells), rest))
        df = len(cells) - 1
        statistic = sum((c - e) ** 2 / e for c, e in cells)
        return float(((statistic / df) ** (1 / 3) - (1 - 2 / (9 * df))) / np.sqrt(2 / (9 * df)))

    def assert_lawful(self, *n_tokens: int) -> None:
        for n in n_tokens:
            assert self.deviates(n) < Z, (n, self.deviates(n))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_targets_law_comes_out(name: str, kind: DraftKind) -> None:
    """400 seeds; laws of the first two and three tokens. The mutants below show what would break it."""
    outcome = Run(name, Drawing(kind), width=2 if name == "khisti" else 3)
    outcome.assert_lawful(2, 3)
    assert outcome.n_accepted > N / 4


CONSTRAINED = [("standard", "iid"), ("block", "iid"), ("rrsw", "without_replacement"), ("traversal", "iid")]


@pytest.mark.parametrize(("name", "kind"), CONSTRAINED)  # all of CASES pass, and take a minute
def test_the_constrained_law_comes_out(name: str, kind: DraftKind) -> None:
    """300 seeds; the first and the third token may be forced, and what was drawn decides whether the third is."""
    moves = {0: {1: 1}, 1: {0: 2, 2: 3, 3: 2}, 2: {2: 3}, 3: {0: 1, 1: 2, 3: 3}}
    sampling = replace(LONGER, constraint=Automaton(moves, frozenset(), frozenset({4}), V))
    outcome = Run(name, Drawing(kind), sampling, n=300, width=2, eos_ids=(4,))
    outcome.assert_lawful(2, 4)
    assert outcome.n_accepted > 150


# With the target as the draft model p = q, and these rules then take everything that the limits allow.
TAKE_ALL = {"standard", "block", "naive-tree", "specinfer", "spectr", "khisti", "transport", "rrsw", "traversal", "gls"}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_target_as_its_own_draft_model(name: str, kind: DraftKind) -> None:
    """100 seeds. A law that is not what was drawn from, or noise at another address, would cost acceptance at once."""
    outcome = Run(name, Drawing(kind), n=100, draft_seed=3)
    outcome.assert_lawful(2)
    if name in TAKE_ALL or (name, kind) == ("walk", "coupled"):
        assert outcome.n_accepted == 2 * 100


@pytest.mark.parametrize(
    ("name", "drawing", "width"),
    [
        ("specinfer", Drawing("iid", trunk=1), 3),
        ("spectr", Drawing("iid"), 3),
        ("transport", Drawing("iid", trunk=2), 3),
        ("gls", Drawing("iid", trunk=1), 3),
        ("greedy-paths", Drawing("iid", trunk=1), 2),
        ("rrsw", Drawing("without_replacement", trunk=1), 3),
        ("rrsw", Drawing("without_replacement", levels=2), 2),
        ("traversal", Drawing("without_replacement", levels=3), 2),
        ("traversal", Drawing("iid", trunk=1), 3),
        ("nss", Drawing("without_replacement", trunk=1, levels=2), 2),
        ("top-k", Drawing("deterministic", levels=2), 2),
        ("nss", Drawing("coupled", laws=True, levels=2), 3),
        ("rrsw", Drawing("without_replacement", max_law=2), 2),
        ("spectr", Drawing("iid", max_law=2), 2),
    ],
    ids=str,
)
def test_trunks_levels_and_short_laws(name: str, drawing: Drawing, width: int) -> None:
    """300 seeds, drafts of three tokens."""
    outcome = Run(name, drawing, LONGER, n=300, width=width, depth=3)
    outcome.assert_lawful(2, 3)
    assert outcome.n_accepted > 100


STOPPING = [lambda: Threshold(0.3, n_tokens=3), lambda: AdaEdl(0.9, n_tokens=3, least=0.45)]


@pytest.mark.parametrize("make", STOPPING, ids=["threshold", "adaedl"])
@pytest.mark.parametrize("name", ["standard", "block"])
def test_the_law_of_drafts_that_end_early(name: str, make) -> None:
    """400 seeds, with the controllers on: what one sequence met decides about the drafts of others."""
    outcome = Run(name, Drawing("iid"), LONGER, policy=make())
    outcome.assert_lawful(2, 3)
    assert outcome.n_accepted > 50


class Watched(ModelDrafter):
    """Counts the drafts that are smaller than asked for."""

    n_short = 0

    def propose(self, seqs, limits):
        drafts = super().propose(seqs, limits)
        asked = [min(x.n_nodes, x.width * x.depth) for x in limits]
        self.n_short += sum(len(draft) < n for draft, n in zip(drafts, asked, strict=True))
        return drafts


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_law_where_memory_is_short(name: str) -> None:
    """200 seeds, 16 at once over blocks for a few: sequences are evicted, drafts lose paths or are not verified."""
    drawing, prompt = Drawing(RULES[name].draws), [1, 2, 0, 4, 3, 1, 2]
    outcome = Run(name, drawing, n=200, width=2, n_blocks=(16, 20), prompt=prompt, drafter=Watched)
    assert outcome.target.n_forwards > 45  # 25 with room for all
    assert outcome.drafter.n_short > 200  # 16 with room for all: the first step reads prompts
    assert outcome.n_accepted > 10
    outcome.assert_lawful(2)


@pytest.mark.parametrize(("name", "n_blocks"), [("spectr", 300), ("traversal", 20), ("rrsw", 20)])
def test_the_law_of_drafts_fed_under_a_mask(name: str, n_blocks: int) -> None:
    """300 seeds, with room for all or for a few."""
    drawing = Drawing(RULES[name].draws)
    Run(name, drawing, LONGER, n=300, depth=3, width=2, n_blocks=(n_blocks, 300), tree_masks=True).assert_lawful(2, 3)


class SameNoise(ModelDrafter):
    """Says that draws are independent although all sequences race on the noise of the first."""

    def _children(self, state, index, level, logits):
        children, law = super()._children(state, index, level, logits)
        members = tuple(m for _, some in children for m in some)
        first = next(token for token, some in children if min(members) in some)
        return [(first, members)], law


class DropsWhatEnds(ModelDrafter):
    """Cuts a draft before token 0: decided by what was drawn (related.md, R1)."""

    def _draft(self, state):
        draft = super()._draft(state)
        n = next((i for i, token in enumerate(draft.tokens) if token == 0), len(draft))
        return Draft(draft.tokens[:n], draft.parents[:n], draft.laws[:n], draft.kind)


class FlatLaws(ModelDrafter):
    """Tells another law than it draws from."""

    def _draft(self, state):
        draft = super()._draft(state)
        flat = {id(law): Law(law.ids, np.full(len(law.ids), 1 / len(law.ids))) for law in draft.laws}
        return replace(draft, laws=tuple(flat[id(law)] for law in draft.laws))


class WithoutReplacement(ModelDrafter):
    """Says that draws are independent although they differ."""

    def __init__(self, model, *, n_valid_ids, drawing):
        super().__init__(model, n_valid_ids=n_valid_ids, drawing=replace(drawing, kind="without_replacement"))
        self.kind = drawing.kind

    def _children(self, state, index, level, logits):
        self.kind = "without_replacement"
        children = super()._children(state, index, level, logits)
        self.kind = "iid"
        return children

    def _draft(self, state):
        for i, branch in enumerate(state.branches):
            branch.members = (i,)
        return super()._draft(state)


@pytest.mark.parametrize(
    ("mutant", "name", "width"),
    [
        (SameNoise, "spectr", 3),
        (DropsWhatEnds, "standard", 1),
        (FlatLaws, "block", 1),
        (WithoutReplacement, "specinfer", 3),
        (WithoutReplacement, "spectr", 3),
    ],
)
def test_drafts_that_are_not_what_they_say_are_caught(mutant: type[ModelDrafter], name: str, width: int) -> None:
    """The same chi-square at the same number of seeds is far beyond its threshold: 6 to 15 deviates."""
    assert Run(name, Drawing("iid"), width=width, drafter=mutant).deviates(2) > Z


# -- greedy ------------------------------------------------------------------------------------------------------------

GREEDY = Sampling(max_tokens=10)
EVERY = [*RULES, *LOSSY, "lossy-cactus:5", "lossy-ensemble:0.1", "lossy-typical:0.001"]


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run(toy(), GREEDY, batch=prompts(4)).tokens


@pytest.mark.parametrize("name", EVERY)
def test_greedy_text_is_that_of_plain_decoding(name: str, plain: list[list[int]]) -> None:
    """Lossy rules too: at temperature 0 nothing but the best token is ever accepted."""
    info = rule_named(name)
    width, forms = (2, ((0, 1), (1, 1), (1, 2))) if info.trees else (1, ((0, 1),))
    for kind, (trunk, levels) in itertools.product(sorted(info.kinds), forms):
        drawing, ends = Drawing(kind, trunk=trunk, levels=levels), frozenset((EOS,))
        drafter = ModelDrafter(toy(seed=levels - 1, scale=2.0), n_valid_ids=V_WIDE, eos_ids=ends, drawing=drawing)
        policy = Fixed(width**levels * 3, depth=3, width=width)
        check = lambda *_, d=drafter: d.check()  # noqa: E731
        got = run(toy(), GREEDY, batch=prompts(4), drafter=drafter, policy=policy, rule=info, after_step=check)
        assert got.tokens == plain, drawing
        assert levels > 1 or sum(s.n_accepted for s in got.stats) > 15, drawing
