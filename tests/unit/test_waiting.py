"""Sequences that come together read once what they share, and their texts do not change by it."""

from __future__ import annotations

import pytest

from engine_tools import RandomTrees, V, toy, trees
from wager.cache import BlockPool
from wager.engine import Engine
from wager.types import Sampling

PROMPT = [(7 * i + i // 5) % V for i in range(90)]


def together(prompts, *, model=None, sampling=None, **options):
    """(outputs, rows of each step, forwards): all prompts at once, n samples of equal ones."""
    rows = []
    model = model or toy(block_size=32, n_blocks=400, max_rows=128)
    engine = Engine(model, on_step=lambda record: rows.append(record.n_rows), **options)
    sampling = sampling or Sampling(temperature=1.0, max_tokens=6)
    seqs = [engine.submit(prompt, sampling, seed=5, sample=i) for i, prompt in enumerate(prompts)]
    while engine.has_work:
        engine.step()
        engine.cache.check()
    return [seq.output for seq in seqs], rows


@pytest.mark.parametrize("rule", ["pair", "split"])
@pytest.mark.parametrize("n_prompt", [20, 64, 65, 90])
def test_samples_of_one_prompt_read_it_once(rule, n_prompt):
    prompts = [PROMPT[:n_prompt]] * 16
    outputs, rows = together(prompts, model=toy(block_size=32, n_blocks=400, max_rows=128, rows_rule=rule))
    read = sum(rows) - 16 * 6 * (2 if rule == "pair" else 1)  # what decoding feeds
    assert n_prompt - 2 <= read <= n_prompt + 16 * 2
    alone, many = together(prompts, model=toy(block_size=32, n_blocks=400, max_rows=128, rows_rule=rule),
                           prefix_caching=False)  # fmt: skip
    assert outputs == alone
    assert sum(many) > sum(rows) + 14 * (n_prompt - 4)


def test_rows_of_a_data_set_read_their_examples_once():
    prompts = [[*PROMPT, i % V, i // V, 1] for i in range(20)]
    outputs, rows = together(prompts)
    assert sum(rows) < len(PROMPT) + 20 * (6 * 2 + 4)
    assert outputs == together(prompts, prefix_caching=False)[0]


def test_nobody_waits_for_what_is_not_worth_a_step():
    prompts = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]
    _, rows = together(prompts)
    assert rows[0] == 10


def test_nobody_waits_for_somebody_who_reads_something_else():
    _, rows = together([PROMPT[:60], PROMPT[1:61]])
    assert rows[0] == 120


def test_drafts_and_short_memory_do_not_matter():
    prompts = [PROMPT[: 40 + i % 3] for i in range(12)]
    plain, _ = together(prompts, prefix_caching=False)
    model = toy(block_size=4, n_blocks=64 // 4 + 60, max_rows=64)
    drafter = RandomTrees(model=model)
    assert together(prompts, model=model, drafter=drafter, policy=trees())[0] == plain


def tail(pool, seq_id, tokens, **options):
    pool.open(seq_id, tokens, n_read=options.get("n_read", 99), limit=options.get("limit"))
    return pool.start_tail(seq_id, tokens, limit=options.get("limit"))


def written(pool, seq_id, tokens, **options):
    pool.open(seq_id, tokens, n_read=options.get("n_read", 99))
    assert pool.reserve(seq_id, len(tokens))
    pool.keep(seq_id, tokens, len(tokens))


def test_the_rows_of_a_partial_block_are_found_by_a_copy():
    pool = BlockPool(20, 4)
    written(pool, 0, [1, 2, 3, 4, 5, 6, 7])
    assert tail(pool, 1, [1, 2, 3, 4, 5, 6, 9, 9]) == (6, (pool.table(0)[1], pool.table(1)[1]))
    assert tail(pool, 2, [1, 2, 3, 4, 5, 6, 7]) is not None
    assert tail(pool, 3, [1, 2, 3, 4, 9]) == (
        4,
        (pool.table(0)[0], pool.table(3)[0]),
    )
    assert tail(pool, 5, [1]) is None
    assert tail(pool, 4, [1, 2, 3, 4, 5, 6, 7], limit=5) == (5, (pool.table(0)[1], pool.table(4)[1]))
    pool.close(0)
    assert pool.found([1, 2, 3, 4, 5, 6, 7, 8]) == 7  # it outlives its sequence
    pool.check()


def test_rows_read_alone_are_no_copy_of_rows_read_together():
    pool = BlockPool(20, 4)
    written(pool, 0, [1, 2, 3], n_read=2)
    assert pool.found([1, 2, 3, 4], n_read=2) == 3
    assert pool.found([1, 2, 3, 4], n_read=4) == 2


def test_a_tail_is_forgotten_when_its_block_is_taken():
    pool = BlockPool(3, 4)
    written(pool, 0, [1, 2])
    pool.close(0)
    assert pool.found([1, 2, 3, 4]) == 2
    pool.open(1, [9])
    assert pool.reserve(1, 12)
    assert pool.found([1, 2, 3, 4]) == 0
    pool.check()


def test_tails_are_few_and_all_go_with_the_memory():
    pool = BlockPool(200, 4)
    for i in range(100):
        written(pool, i, [i, 1])
        pool.close(i)
    assert sum(len(tails) for tails in pool._tails.values()) == len(pool._tail_of) == 64
    pool.forget()
    assert pool.found([99, 1, 2]) == 0
