"""The three estimators on a model whose laws are known: they give that law, row by row, whoever stands around."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine_tools import EOS, V, toy
from wager.asks import Asks
from wager.decide.decide import decided, estimator_for
from wager.decide.estimate import Asking, Enumerated, Reasoned, Sampled, Scored, mixed
from wager.decide.law import Law
from wager.decide.stopping import Worth
from wager.engine import Engine
from wager.errors import OptionError
from wager.score import Continuations
from wager.types import Sampling

LETTERS = "".join(chr(ord("a") + i) for i in range(V))
RAW = Asking(chat=False)
PROMPT = "abcab"


class Letters:
    """A tokenizer of letters; the end of text is one of them, and shows nothing."""

    eos_ids, vocab_size, joins_bytes = frozenset((EOS,)), V, True

    def encode(self, text, add_special=True):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[i] for i in ids if i != EOS)

    def token_bytes(self, token):
        return b"" if token == EOS else LETTERS[token].encode()


class Toy(Asks):
    """The front door over a toy model."""

    def __init__(self):
        self.model, self.text = toy(block_size=8, n_blocks=300, max_rows=128), Letters()
        self._engine = Engine(self.model, eos_ids=(EOS,))
        self._continuations, self._progress, self._defaults = Continuations(self.text), None, {}

    def law(self, prompt):
        """Texts of at most two tokens and their probabilities; no two of them have the same tokens."""
        found = Counter()
        for path, p in self.model.exact_law(self.text.encode(prompt), 2, Sampling(temperature=1.0)).items():
            found[self.text.decode(path[:1] if path[0] == EOS else path)] += p
        return found


@pytest.fixture(scope="module")
def llm():
    return Toy()


def distance(law: Law, exact) -> float:
    """Total variation."""
    got = dict(zip(law.values, law.weights, strict=True))
    return sum(abs(got.get(value, 0.0) - exact.get(value, 0.0)) for value in {*got, *exact}) / 2


TWO = Sampling(temperature=1.0, max_tokens=2)


def test_draws_have_the_models_law(llm):
    """1500 draws of one seed: total variation .09 here; of another prompt's law it is over .5."""
    [found] = Sampled(parse=str, n=1500, sampling=TWO, asking=RAW).estimate(llm, [PROMPT], [1])
    assert distance(found.law, llm.law(PROMPT)) < 0.12
    assert distance(found.law, llm.law("abcba")) > 0.4
    assert found.n_tokens == sum(len(text) + (len(text) < 2) for text in found.texts)


@pytest.mark.parametrize(("drawn", "wanted"), [(1.0, 0.5), (2.0, 1.0)])
def test_importance_weights_aim_at_another_temperature(llm, drawn, wanted):
    """p^(1/T) over whole answers, here all of two tokens; 1500 draws of one seed."""
    sampling = Sampling(temperature=drawn, max_tokens=2)
    [found] = Sampled(parse=str, n=1500, sampling=sampling, temperature=wanted, asking=RAW).estimate(llm, ["ab"], [1])
    [plain] = Sampled(parse=str, n=1500, sampling=sampling, asking=RAW).estimate(llm, ["ab"], [1])
    mass = {text: p ** (1 / wanted) for text, p in llm.law("ab").items()}
    exact = {text: p / sum(mass.values()) for text, p in mass.items()}
    assert distance(found.law, exact) < 0.15 < distance(plain.law, exact) - 0.05


def test_weights_need_draws_at_a_temperature_alone():
    with pytest.raises(OptionError, match="top_k"):
        Sampled(parse=str, sampling=Sampling(temperature=1.0, top_k=3), temperature=0.5)


def test_scored_draws_have_the_models_weights(llm):
    [found] = Scored(parse=str, n=60, sampling=TWO, asking=RAW).estimate(llm, [PROMPT], [3])
    drawn = {text: p for text, p in llm.law(PROMPT).items() if text in found.texts}
    assert len(drawn) > 5
    assert distance(found.law, {text: p / sum(drawn.values()) for text, p in drawn.items()}) < 1e-6
    assert found.law.covered == pytest.approx(sum(drawn.values()))


def test_candidates_are_exact_and_forms_of_one_value_are_summed(llm):
    pairs = ((1.0, "a"), (1.0, "ab"), (2.0, "b"), (3.0, "cc"))
    [found] = Enumerated(candidates=pairs, asking=RAW).estimate(llm, [PROMPT], [0])
    context = llm.text.encode(PROMPT)
    mass = {}
    for value, text in pairs:
        path = (*llm.text.encode(text), EOS)
        p = llm.model.exact_law(context, len(path), Sampling(temperature=1.0))[path]
        mass[value] = mass.get(value, 0.0) + p
    assert found.law.values == (1.0, 2.0, 3.0)
    assert found.law.weights == pytest.approx([p / sum(mass.values()) for p in mass.values()])
    assert found.law.covered == pytest.approx(sum(mass.values()))


def test_candidates_are_the_limit_of_many_draws(llm):
    texts = ["a", "b", "g", "h", "p"]
    [exact] = Enumerated(candidates=tuple((t, t) for t in texts), asking=RAW).estimate(llm, [PROMPT], [0])
    parse = {text: text for text in texts}.get
    [drawn] = Sampled(parse=parse, n=1500, sampling=Sampling(temperature=1.0, max_tokens=3), asking=RAW).estimate(
        llm, [PROMPT], [2]
    )
    assert drawn.law.covered == pytest.approx(exact.law.covered, abs=0.03)
    assert distance(drawn.law, dict(zip(exact.law.values, exact.law.weights, strict=True))) < 0.15


def test_after_reasoning_the_laws_of_all_chains_are_averaged(llm):
    inner = Enumerated(candidates=(("a", "a"), ("b", "b")), asking=RAW)
    reasoned = Reasoned(then=inner, bridge="gg", n=5, sampling=Sampling(temperature=1.0, max_tokens=3), asking=RAW)
    [found] = reasoned.estimate(llm, [PROMPT], [4])
    chains = llm.sample_many([PROMPT], 5, Sampling(temperature=1.0, max_tokens=3), seeds=[4], chat=False)[0]
    each = inner.estimate(llm, [PROMPT + chain.text + "gg" for chain in chains], [0] * 5)
    assert found.law.weights == pytest.approx(np.mean([e.law.weights for e in each], axis=0))
    assert found.n_tokens == sum(len(c.tokens) for c in chains) + sum(e.n_tokens for e in each)


def test_a_row_is_the_same_whatever_stands_around_it(llm):
    estimator = Sampled(parse=str, n=6, sampling=TWO, asking=RAW)
    prompts = [PROMPT, "ab", PROMPT, "cc"]
    all_ = decided(llm, prompts, "accuracy", estimator, rows=["w", "x", "y", "z"], seed=9)
    assert all_[0].estimate.texts != all_[2].estimate.texts  # the same prompt in another row
    for prompt, row, one in zip(prompts, "wxyz", all_, strict=True):
        [alone] = decided(llm, [prompt], "accuracy", estimator, rows=[row], seed=9)
        assert (alone.estimate.texts, alone.prediction, alone.seed) == (one.estimate.texts, one.prediction, one.seed)
    assert mixed(1, 2) != mixed(1, "2") != mixed(12, 2)


def test_decide_from_the_front_door(llm):
    one = llm.decide(PROMPT, "accuracy", candidates=["a", "b", "p"], chat=False)
    best = max(["a", "b", "p"], key=lambda text: llm.score(PROMPT, [text], chat=False).logprobs[0])
    assert one.prediction == best
    numbers = llm.decide([PROMPT, "ab"], "rmse", candidates={"a": 1, "b": 2}, chat=False)
    assert [each.prediction for each in numbers] == [pytest.approx(float(x.law.weights @ [1, 2])) for x in numbers]
    for options in ({"n": 3}, {"price": 0.1}):
        with pytest.raises(OptionError, match="scored, not drawn"):
            llm.decide(PROMPT, "accuracy", candidates=["a"], chat=False, **options)
    with pytest.raises(OptionError, match="one each"):
        llm.decide([PROMPT], "accuracy", candidates=["a"], rows=[1, 2], chat=False)


def test_what_more_draws_are_worth_for_the_squared_error():
    """s^2 / n - s^2 / (n + m) by theory; 64 laws of one seed: within 40 %."""
    rng = np.random.default_rng(0)
    values = rng.normal(0, 3, 40).round(2).tolist()
    gain = Worth(metric="rmse", price=1.0).gain(Law.of(values), 40, 10)
    s2 = np.var(values)
    assert gain == pytest.approx(s2 / 40 - s2 / 50, rel=0.4)


def test_a_close_vote_goes_on_and_a_clear_one_stops():
    worth = Worth(metric="accuracy", price=0.001)
    assert worth(Law.of(["a", "b"], [15, 1]), 16, 4)
    assert not worth(Law.of(["a", "b"], [9, 7]), 16, 4)
    assert worth(Law.of(["a", "b"], [900, 700]), 1600, 4)
    assert not worth(Law.of(["a"]), 4, 4)  # too few to know
    assert not worth(Law.of([None]), 16, 4)  # nothing was read


def test_drawing_stops_by_row(llm):
    class After:
        def __call__(self, law, n_drawn, n_more):
            return n_drawn >= 4 and law.weights.max() > 0.3

    estimator = Sampled(parse=str, n=12, batch=2, enough=After(), sampling=TWO, asking=RAW)
    found = estimator.estimate(llm, [PROMPT, "ab", "cc", "pq"], [0, 1, 2, 3])
    full = Sampled(parse=str, n=12, sampling=TWO, asking=RAW).estimate(llm, [PROMPT, "ab", "cc", "pq"], [0, 1, 2, 3])
    lengths = [len(each.texts) for each in found]
    assert len(set(lengths)) > 1
    assert all(some.texts == all_.texts[: len(some.texts)] for some, all_ in zip(found, full, strict=True))


def test_what_has_no_loss_on_a_row_has_no_price():
    with pytest.raises(OptionError, match="no loss on one row"):
        estimator_for("pearson", price=0.1)
    with pytest.raises(OptionError, match="positive"):
        Worth(metric="rmse", price=0)
