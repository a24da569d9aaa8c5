"""The drafter whose acceptance is prescribed: what it drafts, how often it is right, and that it cannot change text."""

from __future__ import annotations

import numpy as np
import pytest

from wager.bench.methods import parse_methods
from wager.bench.replay import Replay, by_depth, parse_chances, tokens_a_step
from wager.engine import Engine
from wager.errors import OptionError
from wager.models.toy import ToyModel
from wager.policies.fixed import Fixed
from wager.testing import check_drafter
from wager.types import Limits, Sampling, Sequence


def knowing(chances: tuple[float, ...], prompt: list[int], output: list[int]) -> Replay:
    replay = Replay(chances)
    replay.know(prompt, output)
    return replay


def test_it_is_a_drafter() -> None:
    check_drafter(lambda: knowing((0.7, 0.4), [0, 0], [0] * 300), vocab_size=9)


def test_it_is_right_as_often_as_prescribed() -> None:
    """Seed 3, 4000 drafts of four: each depth within 4 standard deviations (false alarms: 1 in 4000)."""
    text = np.random.default_rng(3).integers(0, 50, 4010).tolist()
    chances = (0.8, 0.5, 0.9)
    replay = knowing(chances, text[:2], text[2:])
    seq = Sequence(0, [], 2, Sampling(), seed=3)
    right = np.zeros((4000, 4), bool)
    for i in range(4000):
        seq.tokens = text[: 2 + i]
        (draft,) = replay.propose([seq], [Limits(4, 4)])
        right[i] = draft.tokens == text[2 + i : 6 + i]
    reached = np.ones(4000, bool)
    for depth, chance in enumerate((0.8, 0.5, 0.9, 0.9)):
        n = int(reached.sum())
        assert right[reached, depth].mean() == pytest.approx(chance, abs=4 * (chance * (1 - chance) / n) ** 0.5)
        reached &= right[:, depth]


def test_seeds_spoil_differently_and_one_seed_alike() -> None:
    text = list(range(40))

    def draft(seed: int) -> list[int]:
        seq = Sequence(0, text[:5], 2, Sampling(), seed=seed)
        tokens: list[int] = knowing((0.5,), text[:2], text[2:]).propose([seq], [Limits(20, 20)])[0].tokens.tolist()
        return tokens

    assert draft(1) == draft(1)
    assert draft(1) != draft(2)


def test_the_text_stays_and_the_acceptance_is_that_of_the_engine() -> None:
    """Seed 5, about 190 steps of three: mean tokens a step within 4 standard errors of the law."""
    model, prompt = ToyModel(40, seed=1, n_blocks=200), [1, 2, 3]
    sampling = Sampling(max_tokens=400, ignore_eos=True)

    def run(replay: Replay | None) -> tuple[list[int], list[int]]:
        policy = None if replay is None else Fixed(3)
        steps: list[int] = []
        engine = Engine(model, drafter=replay, policy=policy, on_step=lambda step: steps.append(step.n_committed))
        seq = engine.submit(prompt, sampling, seed=5)
        while engine.has_work:
            engine.step()
        return seq.output, steps

    plain, _ = run(None)
    text, steps = run(knowing((0.6, 0.7, 0.8), prompt, plain))
    assert text == plain
    expected = tokens_a_step((0.6, 0.7, 0.8), 3)
    assert np.mean(steps) == pytest.approx(expected, abs=4 * np.std(steps) / len(steps) ** 0.5)


def test_the_law_of_a_chain() -> None:
    assert tokens_a_step((0.8, 0.5), 3) == pytest.approx(1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.5)
    assert by_depth((0.8, 0.5), 1) == [0.8]


def test_it_is_a_method_of_the_bench_and_no_drafter_of_the_product() -> None:
    methods = parse_methods("plain,replay:0.8,0.7, 0.6:n=3,oracle,max/replay:1")
    assert [(m.kind, m.argument, m.n_draft) for m in methods] == [
        ("plain", "", None),
        ("oracle", "0.8,0.7, 0.6", 3),
        ("oracle", "", None),
        ("oracle", "1", None),
    ]
    assert parse_chances("0.8,0.7, 0.6") == (0.8, 0.7, 0.6)
    for text in ("replay", "replay:1.5", "replay:x"):
        with pytest.raises(OptionError, match="0 to 1"):
            parse_methods(f"plain,{text}")
