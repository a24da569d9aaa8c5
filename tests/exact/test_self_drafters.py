"""Drafters made of the target, on OpenVINO: text is plain's, and the target's K/V is left alone."""

from __future__ import annotations

import numpy as np
import openvino as ov
import pytest

from deep_tools import COUPLED, N_LAYERS, batch_of, make_deep, opened, target_of
from drafter_tools import sequence
from engine_tools import kv_views, run
from wager.drafters import skip, window
from wager.drafters.drawing import Drawing
from wager.drafters.scratch import ScratchDrafter
from wager.errors import ModelError
from wager.models import skipping
from wager.models.selfcheck import check_exact
from wager.policies import Fixed
from wager.types import EMPTY, Limits, Sampling
from wager.verify import rule_named

LONG = np.random.default_rng(3).integers(3, 300, 170).tolist()  # more than any window here
PROMPTS = [LONG, [5, 9, 12, 40, 41, 5, 9, 12], [7], [100, 101] * 20, list(range(60, 130)), [33] * 31, [44] * 32]
SAMPLINGS = {
    "greedy": Sampling(max_tokens=24, ignore_eos=True),
    "warm": Sampling(max_tokens=24, ignore_eos=True, temperature=0.8, presence_penalty=0.5),
}
SETS = {
    "nothing": [],
    "attentions": [2, 4, 6, 8],
    "mlps": [3, 5, 7, 9],
    "mixed": [2, 3, 5, 8],
    "all": list(range(2, 10)),
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return make_deep(tmp_path_factory.mktemp("deep"))


@pytest.fixture(scope="module", params=["fast", "reference"])
def model(request, deep):
    loaded = opened(deep, request.param)
    exactness = check_exact(loaded, loaded.vocab_size, budget_s=60)
    assert exactness.reason is None, exactness.reason
    loaded.max_rows, loaded.rows_rule = exactness.max_rows, exactness.rule
    return loaded


@pytest.fixture(scope="module")
def plain(model):
    return {name: run(model, sampling, batch=PROMPTS).tokens for name, sampling in SAMPLINGS.items()}


def skipping_set(model, modules, drawing=COUPLED):
    return ScratchDrafter(
        model.variant(lambda graph: skipping.skip(graph, modules)),
        n_valid_ids=model.vocab_size,
        eos_ids=frozenset((2,)),
        drawing=drawing,
        name="skip",
    )


def windowed(model, argument, deep):
    return window.make(argument, target_of(model, deep))


def n_accepted(outcome):
    return sum(stats.n_accepted for stats in outcome.stats), sum(stats.n_drafted for stats in outcome.stats)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("modules", SETS)
def test_skip_changes_no_text(model, plain, modules, sampling):
    drafter = skipping_set(model, SETS[modules])
    together = run(model, SAMPLINGS[sampling], batch=PROMPTS, drafter=drafter, policy=Fixed(4))
    assert together.tokens == plain[sampling]
    right, drafted = n_accepted(together)
    assert drafted > 100
    assert right > (0.95 * drafted if modules == "nothing" else 10)
    alone = run(model, SAMPLINGS[sampling], batch=PROMPTS[:1], drafter=drafter, policy=Fixed(3))
    assert alone.tokens == plain[sampling][:1]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("argument", ["0+32", "32+32", "32+256"])
def test_window_changes_no_text(model, plain, deep, argument, sampling):
    drafter = windowed(model, argument, deep)
    outcome = run(model, SAMPLINGS[sampling], batch=PROMPTS, drafter=drafter, policy=Fixed(4))
    assert outcome.tokens == plain[sampling]
    right, drafted = n_accepted(outcome)
    assert drafted > 100
    assert right > (0.95 if argument == "32+256" else 0.3) * drafted
    assert (
        run(model, SAMPLINGS[sampling], batch=PROMPTS[:1], drafter=drafter, policy=Fixed(3)).tokens
        == plain[sampling][:1]
    )


@pytest.mark.parametrize("name", ["standard", "block"])
def test_rules_that_ask_for_laws_run(model, deep, name):
    rule = rule_named(name)
    drawing = Drawing(rule.draws)
    for coupled in (skipping_set(model, SETS["mixed"]), windowed(model, "32+32", deep)):
        drafter = coupled.redrawn(drawing)
        assert isinstance(drafter, ScratchDrafter)
        assert drafter.has_laws
        outcome = run(model, SAMPLINGS["warm"], batch=PROMPTS[:3], drafter=drafter, policy=Fixed(3), rule=rule)
        assert n_accepted(outcome)[0] > 3


class Guarded:
    """Asserts that drafting leaves every row that the target has cached as it is, bit by bit."""

    def __init__(self, drafter, model):
        self._drafter, self._model, self.n_checked = drafter, model, 0

    def __getattr__(self, name):
        return getattr(self._drafter, name)

    def attach(self, view):
        self._view = view
        self._drafter.attach(view)

    def _rows(self, seqs):
        """Cached rows of each sequence: K and V of every layer."""
        found = []
        for seq in seqs:
            table = list(self._view.scratch(seq, seq.n_cached))
            for cache in kv_views(self._model):
                rows = cache[table]
                found.append(rows.reshape(-1, *rows.shape[2:])[: seq.n_cached].copy())
        return found

    def propose(self, seqs, limits):
        before = self._rows(seqs)
        drafts = self._drafter.propose(seqs, limits)
        for a, b in zip(before, self._rows(seqs), strict=True):
            assert np.array_equal(a, b)
        self.n_checked += sum(map(bool, map(len, drafts)))
        return drafts


@pytest.mark.parametrize("which", ["skip", "window"])
def test_the_rows_of_the_target_are_untouched(model, deep, plain, which):
    drafter = skipping_set(model, SETS["mixed"]) if which == "skip" else windowed(model, "32+32", deep)
    guarded = Guarded(drafter, model)
    assert run(model, SAMPLINGS["warm"], batch=PROMPTS, drafter=guarded, policy=Fixed(5)).tokens == plain["warm"]
    assert guarded.n_checked > 20


def test_nothing_skipped_and_gates_of_one_are_the_plain_graph_and_gates_of_zero_skip(model):
    tokens = np.random.default_rng(0).integers(0, model.vocab_size, 40).tolist()
    batch = batch_of(tokens, 0, [5, 6])
    base = model.forward(batch).logits.copy()
    assert np.array_equal(model.variant(lambda graph: skipping.skip(graph, [])).forward(batch).logits, base)
    assert model.n_modules == 2 * N_LAYERS
    gated = model.variant(skipping.gate)
    gates = np.ones(model.n_modules, np.float32)
    gated.put(skipping.GATES, gates)
    assert np.array_equal(gated.forward(batch).logits, base)
    stream = gated.output(skipping.STREAM).reshape(len(tokens), -1)
    assert gated.output("module.3").reshape(len(tokens), -1).shape == stream.shape
    gates[SETS["mixed"]] = 0
    gated.put(skipping.GATES, gates)
    without = gated.forward(batch).logits.copy()
    skipped = model.variant(lambda graph: skipping.skip(graph, SETS["mixed"]))
    assert np.array_equal(skipped.forward(batch).logits, without)
    assert not np.allclose(without, base)
    assert len(skipped._caches) == 2 * (N_LAYERS - 2)


def test_a_window_depends_on_what_it_shows_alone_and_without_a_cut_is_the_target(model, deep):
    """Rows of hidden blocks may hold anything, NaN too; those shown count."""
    n_blocks, table = 6, [7, 3, 9, 4, 8, 5]
    tokens = np.random.default_rng(1).integers(0, model.vocab_size, 32 * n_blocks - 8).tolist()
    model.forward(batch_of(tokens, 0, table))
    past = len(tokens)
    whole = model.forward(batch_of([1, 2], past, table)).logits.copy()
    first, last = window.unseen_between(32, 64, 32)(past + 1)
    assert (first, last) == (1, 3)
    short = [*table[:first], *table[last:]]
    cut = batch_of([1, 2], past - 32 * (last - first), short, position=past)
    before = model.forward(cut).logits.copy()
    assert not np.allclose(before, whole)
    for cache in kv_views(model):
        cache[table[first:last]] = np.nan
    assert np.array_equal(model.forward(cut).logits, before)
    list(kv_views(model))[1][short[1]] *= np.float16(0.5)
    assert not np.array_equal(model.forward(cut).logits, before)
    assert window.unseen_between(32, 64, 32)(90) == (1, 1)


def test_a_window_is_an_attention_mask(deep):
    """The stateful graph, told by its mask not to look at the hidden rows, at true positions, gives the same logits."""
    model = opened(deep, "reference")
    tokens, table = LONG[:130], [7, 3, 9, 4, 8]
    model.forward(batch_of(tokens, 0, table))
    first, last = window.unseen_between(32, 64, 32)(130)
    gone = 32 * (last - first)
    assert gone == 32
    cut = batch_of([17], 130 - gone, [*table[:first], *table[last:]], position=130)
    got = model.forward(cut).logits
    request = ov.Core().compile_model(deep / "openvino_model.xml", "CPU", model.properties).create_infer_request()
    mask = np.ones((1, 131), np.int64)
    for past, fed in ((0, tokens), (130, [17])):
        mask[:, 32 * first : 32 * last] = past == 0
        values = {
            "input_ids": np.array([fed], np.int64),
            "attention_mask": mask[:, : past + len(fed)],
            "position_ids": np.arange(past, past + len(fed), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        wanted = next(iter(request.infer(values).values())).reshape(-1, model.vocab_size)[-1:]
    np.testing.assert_allclose(got, wanted, atol=2e-4)


def test_where_no_block_is_free_or_a_prompt_is_to_be_read_nothing_is_drafted(model, deep):
    drafter = windowed(model, "32+32", deep)

    class Full:
        def scratch(self, seq, n_rows):
            return None

    class Asked:
        model = None

        def scratch(self, seq, n_rows):
            raise AssertionError("the target has not read this yet")

    seq = sequence(list(range(50)))
    drafter.attach(Asked())
    assert drafter.propose([seq], [Limits(4, 4)]) == [EMPTY]
    seq.n_cached = 49
    drafter.attach(Full())
    assert drafter.propose([seq], [Limits(4, 4)]) == [EMPTY]


def test_the_default_set_leaves_the_ends_and_takes_about_the_ratio():
    every_other = [m for m in skip.alternating(60, 0.45) if m % 2 == 0]
    assert every_other == list(range(4, 58, 4))
    for n_modules in (2, 4, 6, 12, 60):
        for ratio in (0.0, 0.2, 0.45, 0.99):
            modules = skip.alternating(n_modules, ratio)
            assert len(set(modules)) == len(modules)
            assert all(2 <= m < n_modules - 2 for m in modules)
            assert abs(len(modules) - min(ratio * n_modules, n_modules - 4 if n_modules > 4 else 0)) <= 2


def test_a_graph_without_sums_in_turns_is_refused(deep):
    """Attention and MLP side by side on one stream, as some families have them."""
    model = opened(deep)
    first = skipping.residual_sums(model._graph)[2]
    mlp = skipping.residual_sums(model._graph)[3]
    for reader in first.node.output(0).get_target_inputs():
        if reader.get_node().get_name() != mlp.node.get_name():
            reader.replace_source_output(first.stream)
    with pytest.raises(ModelError, match=r"6 attention layers and .* cannot be skipped, choose another drafter"):
        skip.make("0.3", target_of(model, deep))
