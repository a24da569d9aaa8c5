"""The walk's text is plain decoding's text for every draft, and has exactly the target's law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from wager.errors import OptionError
from wager.models.toy import ToyModel
from wager.sampling import Noise, choose, scores
from wager.types import EMPTY, Draft, Sampling, Sequence, chain
from wager.verify import RULES, Rows, rule_named, walk

V = 4
MODEL = ToyModel(V, seed=3, scale=1.5)
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=1.0),
    Sampling(temperature=0.8, top_k=3),
    Sampling(temperature=1.3, top_p=0.8),
    Sampling(temperature=0.9, min_p=0.3),
    Sampling(temperature=0.7, repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.5),
    Sampling(repetition_penalty=1.5, frequency_penalty=0.7),
    Sampling(temperature=1.0, logit_bias={0: -float("inf"), 2: 1.0}),
    Sampling(temperature=1.0, min_tokens=3),
]
BANNED = (3,)


def _sequence(sampling: Sampling, seed: int, prompt: list[int]) -> Sequence:
    return Sequence(0, list(prompt), len(prompt), sampling, seed)


def _plain(seq: Sequence, n: int) -> list[int]:
    """Decoding by definition, one token at a time, sharing nothing with the walk but the choice of a token."""
    tokens = list(seq.tokens)
    for _ in range(n):
        x = scores(MODEL.law(tokens), seq.sampling, tokens=tokens, n_prompt=seq.n_prompt, banned=BANNED)
        tokens.append(choose(x, Noise(seq.seed, seq.sample), len(tokens) - seq.n_prompt, seq.sampling.temperature))
    return tokens[len(seq.tokens) :]


def _rows(seq: Sequence, draft: Draft) -> Rows:
    texts = [list(seq.tokens)]
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        texts.append([*texts[parent + 1], token])
    order = np.random.default_rng(len(texts)).permutation(len(texts))  # rows may lie anywhere in the logits
    logits = np.empty((len(texts), V), np.float32)
    logits[order] = [MODEL.law(text) for text in texts]
    return Rows(logits, order.tolist(), seq, draft, banned=BANNED)


def _round(seq: Sequence, draft: Draft) -> list[int]:
    verdict = walk(_rows(seq, draft), draft, Noise(seq.seed, seq.sample))
    for parent, node in itertools.pairwise((-1, *verdict.path)):
        assert draft.parents[node] == parent
    return [*(int(draft.tokens[i]) for i in verdict.path), verdict.token]


def _random_draft(rng: np.random.Generator, guess: list[int]) -> Draft:
    """A forest where each node goes on the true text half of the time; duplicate siblings included."""
    n = int(rng.integers(0, 9))
    parents = [int(rng.integers(-1, i)) for i in range(n)]
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    tokens = [guess[d] if rng.random() < 0.5 else int(rng.integers(V)) for d in depths]
    return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), kind="iid")


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_any_draft_gives_the_text_of_plain_decoding(sampling: Sampling) -> None:
    rng = np.random.default_rng(0)
    n_accepted = 0
    for seed in range(60):
        seq = _sequence(sampling, seed, [1, 2, 1])
        want = _plain(seq, 12)
        while seq.n_output < 10:
            draft = _random_draft(rng, [*want[seq.n_output :], *[0] * 9])
            got = _round(seq, draft)
            n_accepted += len(got) - 1
            seq.tokens += got
        assert seq.output[:12] == want[: seq.n_output], (seed, seq.output, want)
    assert n_accepted > 100


@pytest.mark.parametrize("sampling", SAMPLINGS[:3], ids=range(3))
def test_every_chain_of_two_gives_the_text_of_plain_decoding(sampling: Sampling) -> None:
    for seed in range(20):
        for tokens in itertools.product(range(V), repeat=2):
            seq = _sequence(sampling, seed, [0, 1])
            got = _round(seq, chain(tokens))
            want = _plain(seq, 3)
            n = next((i for i, (a, b) in enumerate(zip(tokens, want, strict=False)) if a != b), 2)
            assert got == want[: n + 1]


@pytest.mark.parametrize("sampling", SAMPLINGS[1:6], ids=range(5))
def test_joint_law_of_the_walk_is_the_enumerated_one(sampling: Sampling) -> None:
    """Chi-square over 1500 seeds with a fixed draft each round; false-alarm rate 1e-4 a case, cells of >= 5."""
    law = MODEL.exact_law([1, 2], 3, sampling)
    assert sum(law.values()) == pytest.approx(1)
    draft = chain([2, 0])
    counts = dict.fromkeys(law, 0)
    for seed in range(1500):
        seq = _sequence(sampling, seed, [1, 2])
        while seq.n_output < 3:
            seq.tokens += _round(seq, draft)
        counts[tuple(seq.output[:3])] += 1  # KeyError: a text that the law calls impossible
    cells = [(counts[t], 1500 * p) for t, p in law.items() if 1500 * p >= 5]
    rest = 1500 - sum(e for _, e in cells)
    if rest >= 5:
        cells.append((1500 - sum(c for c, _ in cells), rest))
    statistic = sum((c - e) ** 2 / e for c, e in cells)
    df = len(cells) - 1
    z = ((statistic / df) ** (1 / 3) - (1 - 2 / (9 * df))) / np.sqrt(2 / (9 * df))  # Wilson, Hilferty 1931
    assert z < 3.72


def test_noise_reused_by_position_parts_samples() -> None:
    texts = {tuple(_plain(Sequence(0, [1, 2], 2, SAMPLINGS[1], 5, sample), 8)) for sample in range(8)}
    assert len(texts) > 1


def test_the_empty_draft_is_plain_decoding() -> None:
    seq = _sequence(SAMPLINGS[1], 1, [1, 2])
    assert _round(seq, EMPTY) == _plain(seq, 1)


def test_rows_are_probabilities_after_the_path() -> None:
    draft = chain([2, 0])
    rows = _rows(_sequence(SAMPLINGS[5], 1, [1, 2]), draft)
    law = MODEL.exact_law([1, 2, 2], 1, SAMPLINGS[5])
    assert rows[0].sum() == pytest.approx(1)
    assert rows.position(-1) == 0
    assert rows.position(1) == 2
    assert rows.start == 2
    # the same context, but here token 2 is output, not prompt: the penalties must see the difference
    assert not np.allclose(rows[0], [law[(t,)] for t in range(V)])
    greedy = _rows(_sequence(SAMPLINGS[0], 1, [1, 2]), draft)
    assert sorted(greedy[-1]) == [0, 0, 0, 1]


def test_min_tokens_counts_the_speculative_path() -> None:
    rows = _rows(_sequence(SAMPLINGS[8], 1, [1, 2]), chain([0, 1, 0, 1]))
    assert [bool(rows[i][3] > 0) for i in range(-1, 4)] == [False, False, False, True, True]


def test_rules_by_name() -> None:
    assert rule_named("walk").rule is walk
    assert rule_named("walk").coupled
    assert all(info.lossless for info in RULES.values())
    with pytest.raises(OptionError, match="`rule` is 'wlak'"):
        rule_named("wlak")
