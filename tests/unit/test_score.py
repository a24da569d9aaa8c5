"""Scores of given continuations: equal to each alone and to the model's own laws, however they are shared and fed."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from engine_tools import RandomTrees, V, toy, trees
from wager import LLM
from wager.engine import Engine
from wager.errors import OptionError, PromptError
from wager.models.openvino import OpenVINOModel
from wager.sampling import probabilities
from wager.score import Leaf, Trie, leaves, queue_reads, read
from wager.types import Batch, Sampling

PROMPT = [1, 2, 0, 4, 3, 1, 2, 5, 9, 9, 1]
PATHS = [(1,), (1, 2), (1, 2, 3), (1, 2, 4, 4, 4), (5,), (6, 1), (6, 2), (1, 2)]


def random_paths(seed: int, n: int = 30) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.randrange(3) for _ in range(rng.randint(1, 6))) for _ in range(n)]


def expected(model, prompt, path, ends, temperature=1.0):
    logs, context = [], list(prompt)
    for token in path:
        p = probabilities(model.law(context) / temperature)
        logs.append(np.log(p[token]))
        context.append(token)
    if ends:
        logs.append(np.log(probabilities(model.law(context) / temperature)[list(ends)].sum()))
    return np.array(logs)


def scored(model, tries, **options):
    engine = Engine(model, **options)
    read(engine, tries)
    engine.cache.check()
    assert engine.cache.n_free == engine.cache.n_blocks
    return [trie.scores(trie.paths) for trie in tries]


@pytest.mark.parametrize("seed", range(5))
def test_leaves_hold_every_path_once(seed):
    paths = [*random_paths(seed), ()]
    found = leaves(paths)
    held = [leaf.tokens[:i] for leaf in found for i in range(leaf.n_shared + 1, len(leaf.tokens) + 1)]
    assert sorted(held) == sorted({path[:i] for path in paths for i in range(len(path) + 1)})
    assert len(set(held)) == len(held)
    assert leaves([()]) == [Leaf((), -1)]


@pytest.mark.parametrize("ends", [(), (3, 7)], ids=["none", "two ends"])
@pytest.mark.parametrize("n_prompt", [1, 2, 5, 11])
@pytest.mark.parametrize("rule", ["pair", "any"])
def test_scores_are_the_models_own(rule, n_prompt, ends):
    model = toy(rows_rule=rule)
    [got] = scored(model, [Trie(PROMPT[:n_prompt], PATHS, ends, 0.7)])
    for path, logs in zip(PATHS, got.token_logprobs, strict=True):
        assert logs == pytest.approx(expected(model, PROMPT[:n_prompt], path, ends, 0.7), abs=1e-6)
    assert got.logprobs == pytest.approx([logs.sum() for logs in got.token_logprobs])


@pytest.mark.parametrize("rule", ["pair", "split", "any"])
def test_company_changes_no_bit(rule):
    """Alone, together, again, beside other prompts, with little memory, in narrow forwards: the same numbers."""
    tries = [(PROMPT[:n], random_paths(n)) for n in (3, 8, 11)]

    def run(pairs, **options):
        model = toy(rows_rule=rule, **{"max_rows": 64, **options})
        engine = Engine(model, eos_ids=(3,))
        found = []
        for _ in range(2):
            made = [Trie(prompt, paths, (3,)) for prompt, paths in pairs]
            read(engine, made)
            found.append([trie.scores(trie.paths).logprobs.tolist() for trie in made])
        assert found[0] == found[1]
        return found[0]

    together = run(tries)
    assert run(tries, n_blocks=16 + 14, max_rows=16) == together
    for (prompt, paths), logs in zip(tries, together, strict=True):
        assert [run([(prompt, [path])])[0][0] for path in paths] == logs


@pytest.mark.parametrize("n_most", [6, 7, 11, 100])
def test_trees_hold_every_path_and_are_no_larger_than_asked(n_most):
    paths = random_paths(3)
    trie = Trie(PROMPT, paths, (3,))
    held = set()
    for tree, ends in trie.trees(n_most):
        assert len(tree) == len(ends) <= n_most
        for token, parent, path in zip(tree.tokens.tolist(), tree.parents.tolist(), ends, strict=True):
            assert path == ((*ends[parent], token) if parent >= 0 else (token,))
        held.update(ends)
    assert held == {path[:i] for path in paths for i in range(1, len(path) + 1)}
    assert (len(trie.trees(n_most)) == 1) == (len(held) <= n_most)


def test_every_token_of_a_tree_is_fed_once():
    rows = []
    engine = Engine(toy(rows_rule="any"), on_step=lambda record: rows.append(record.n_rows))
    trie = Trie(PROMPT, PATHS, (3,))
    read(engine, [trie])
    assert rows == [len(PROMPT) + trie.n_tokens]
    read(engine, [Trie(PROMPT, [()], (3,))])
    assert sum(rows[1:]) <= len(PROMPT)


def test_a_prompt_read_with_its_tree_is_under_no_mask(monkeypatch):
    """Rows under a mask cost more in attention: a prompt of 340 tokens took twice the time."""
    model, shapes = toy(rows_rule="any"), []
    forward = model.forward

    def spy(batch):
        shapes.extend(None if mask is None else mask.shape for mask in batch.masks or ())
        return forward(batch)

    monkeypatch.setattr(model, "forward", spy)
    trie = Trie(PROMPT, PATHS, (3,))
    read(Engine(model), [trie])
    assert [shape for shape in shapes if shape is not None] == [(trie.n_tokens, trie.n_tokens)]
    assert shapes[0] is None


def test_trees_wait_for_rows_and_beside_texts_that_are_written():
    """Forwards of few rows, prompts longer than one, a sequence that drafts: all come out as they do alone."""
    tries = [(PROMPT * 4, random_paths(n)) for n in range(4)]
    alone = [scored(toy(rows_rule="any"), [Trie(prompt, paths, (3,))])[0] for prompt, paths in tries]
    model = toy(rows_rule="any", max_rows=40)
    engine = Engine(model, eos_ids=(3,), drafter=RandomTrees(), policy=trees())
    seq = engine.submit(PROMPT, Sampling(max_tokens=30, ignore_eos=True), seed=1)
    made = [Trie(prompt, paths, (3,)) for prompt, paths in tries]
    read(engine, made)
    while engine.has_work:
        engine.step()
    for trie, want in zip(made, alone, strict=True):
        assert trie.scores(trie.paths).logprobs.tolist() == want.logprobs.tolist()
    other = Engine(toy(rows_rule="any"), eos_ids=(3,))
    plain = other.submit(PROMPT, Sampling(max_tokens=30, ignore_eos=True), seed=1)
    while other.has_work:
        other.step()
    assert seq.tokens == plain.tokens
    engine.cache.check()
    assert engine.cache.n_free == engine.cache.n_blocks


@pytest.mark.parametrize(("max_rows", "max_seqs"), [(64, 24), (64, 64), (300, 64)])
def test_no_tree_waits_until_others_have_been_written(max_rows, max_seqs):
    """A trie of many trees beside texts that are being written, as many as leave it room: one tree a step."""
    engine = Engine(toy(rows_rule="any", n_blocks=2000, max_rows=max_rows), eos_ids=(3,), max_seqs=max_seqs)
    for i in range(min(max_rows // 2, max_seqs) - 1):
        engine.submit([*PROMPT, i % V], Sampling(max_tokens=100, ignore_eos=True), seed=i)
    engine.step()
    trie = Trie(PROMPT, list(itertools.product(range(V), repeat=2)), (3,))
    trees = list(queue_reads(engine, trie))
    assert len(trees) > 1
    n_steps = 0
    while any(seq.finish is None for seq in trees):
        engine.step()
        n_steps += 1
    assert n_steps <= len(trees) + 1
    assert trie.scores(trie.paths).covered < 1


@pytest.mark.parametrize(("n_blocks", "max_rows"), [(200, 64), (30, 16)])
def test_what_no_tree_can_hold_is_refused(n_blocks, max_rows):
    """As a prompt would be: ids that there are not, more tokens than the context holds."""
    engine = Engine(toy(rows_rule="any", n_blocks=n_blocks, max_rows=max_rows, context_length=100))
    for path in ((1, V), (-1, 2)):
        with pytest.raises(OptionError, match="outside"):
            read(engine, [Trie(PROMPT, [path], ())])
    long = PROMPT * ((engine.model.context_length - 2) // len(PROMPT))
    room = engine.model.context_length - len(long)
    with pytest.raises(PromptError, match="context holds"):
        read(engine, [Trie(long, [(1,) * room], (3,))])
    assert not engine.has_work


def test_all_continuations_of_a_length_cover_everything():
    paths = list(itertools.product(range(V), repeat=2))
    [got] = scored(toy(max_rows=32), [Trie(PROMPT, paths, ())])
    assert got.covered == pytest.approx(1, abs=1e-6)
    twice = Trie(PROMPT, [*paths, *paths], ())
    assert scored(toy(), [twice])[0].covered == pytest.approx(1, abs=1e-6)


def test_a_trie_takes_few_forwards_and_its_prompt_is_read_once():
    rows = []
    model = toy(block_size=32)
    engine = Engine(model, on_step=lambda record: rows.append(record.n_rows))
    prompt, paths = PROMPT * 9, [(a, b) for a in range(4) for b in range(4)]
    read(engine, [Trie(prompt, paths, (3,))])
    assert len(rows) <= 3
    assert sum(rows) < len(prompt) + 2 * 20 + 8  # 20 nodes; a row of each leaf may be fed again
    del rows[:]
    read(engine, [Trie(prompt, paths, (3,))])
    assert sum(rows) < 2 * 20 + 8


def test_greedy_says_whether_temperature_zero_writes_it():
    model, context = toy(), list(PROMPT)
    for _ in range(3):
        context.append(int(model.law(context).argmax()))
    best = tuple(context[-3:])
    [got] = scored(model, [Trie(PROMPT, [best, (*best[:2], (best[2] + 1) % V)], ())])
    assert got.greedy == (True, False)


@pytest.fixture(scope="module")
def llm(tiny_llama, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        return LLM(tiny_llama, kv_cache_gb=0.1)


TEXTS = [" 1", " 10", " 1.5", " 1.50", "x", " yes", " ye", " naïve 漢字", "\n"]


@pytest.mark.parametrize("as_tree", [True, False], ids=["tree", "leaves"])
def test_a_real_graph_gives_each_the_bits_it_has_alone(llm, as_tree, monkeypatch):
    prompt = "ab ab hello world, this is a longer prompt than a block of the cache has rows. Score:"
    if not as_tree:
        monkeypatch.setattr(Engine, "tree_room", lambda engine, n_tokens: 0)
    got = llm.score(prompt, TEXTS, chat=False)
    alone = [llm.score(prompt, [text], chat=False).logprobs[0] for text in TEXTS]
    assert got.logprobs.tolist() == alone


def test_the_drawn_text_has_the_probability_it_was_drawn_with(llm):
    drawn = llm.sample("abc ab", 4, llm.sampling(temperature=1.0, max_tokens=9, logprobs=0, seed=1), chat=False)
    got = llm.score("abc ab", [answer.tokens for answer in drawn], terminator="none", chat=False)
    assert got.logprobs == pytest.approx([answer.logprob for answer in drawn], abs=1e-5)


def test_reference_agrees_with_one_plain_forward(tiny_llama):
    """The whole text as one subsequence, no cache, no tree: within 1e-4 of every token's log-probability."""
    llm = LLM(tiny_llama, profile="reference", kv_cache_gb=0.1)
    got = llm.score("abc ab is:", TEXTS, chat=False, terminator="none")
    model = OpenVINOModel(tiny_llama, profile="reference", kv_cache_bytes=1 << 24, context_length=512)
    prompt = llm.encode("abc ab is:", chat=False)[: got.n_prompt]
    for path, logs in zip(got.tokens, got.token_logprobs, strict=True):
        tokens = np.array([*prompt, *path], np.int64)
        n, i32 = len(tokens), lambda *values: np.array(values, np.int32)
        rows = np.arange(len(prompt) - 1, n - 1)
        blocks = i32(*range(-(-n // 32)))
        batch = Batch(tokens, np.arange(n), i32(0), i32(0, n), blocks, i32(0, len(blocks)), rows)
        logits = model.forward(batch).logits
        plain = [np.log(probabilities(row)[token]) for row, token in zip(logits, path, strict=True)]
        assert logs == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize("prompt", ["Score:", "Score: ", "Score:\n", "a longer text that ends in a wor", "ab  "])
def test_prompt_and_candidate_are_encoded_as_one_text(llm, prompt):
    tokens, paths = llm._continuations.split(prompt, tuple(TEXTS), add_special=True)
    for text, path in zip(TEXTS, paths, strict=True):
        assert [*tokens, *path] == llm.text.encode(prompt + text)


def test_terminators(llm):
    none, end, line = (llm.score("ab", [" 1"], terminator=t, chat=False) for t in ("none", "end", "line"))
    assert len(none.token_logprobs[0]) + 1 == len(end.token_logprobs[0]) == len(line.token_logprobs[0])
    assert end.logprobs[0] < line.logprobs[0] < none.logprobs[0]  # a line ends where the text ends, or with a new one
    assert llm.score("ab", [" 1"], chat=False).logprobs[0] == line.logprobs[0]


@pytest.mark.parametrize(
    ("candidates", "options", "message"),
    [
        ([], {}, "at least one"),
        ("abc", {}, "a list"),
        ([""], {"terminator": "none"}, "empty"),
        (["a"], {"terminator": "dot"}, "give auto, end, line or none"),
        (["a"], {"temperature": 0.0}, "positive"),
    ],
)
def test_what_cannot_be_scored_is_refused(llm, candidates, options, message):
    with pytest.raises(OptionError, match=message):
        llm.score("ab", candidates, chat=False, **options)
