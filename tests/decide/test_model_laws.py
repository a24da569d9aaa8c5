"""Rows to laws, with an estimator that stands in for a model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from wager.decide import MetricAwarePredictor
from wager.decide.asked import ModelLaws
from wager.decide.estimate import Estimate
from wager.decide.law import Law
from wager.decide.template import Template
from wager.errors import OptionError


class Noted:
    """The law of a prompt is its length, and a number made of its seed."""

    def estimate(self, llm: Any, prompts: Sequence[Any], seeds: Sequence[int]) -> list[Estimate]:
        laws = [Law.of([float(len(prompt)), float(seed % 97)]) for prompt, seed in zip(prompts, seeds, strict=True)]
        return [Estimate(law=law, texts=(), values=(), logprobs=np.zeros(0)) for law in laws]


def model_laws(prompt: str | None = None, *, seed: int = 0) -> ModelLaws:
    template = Template(prompt) if prompt else None
    return ModelLaws(llm=object(), estimator=Noted(), prompt=template, seed=seed)  # type: ignore[arg-type]


def test_a_row_has_its_law_wherever_it_stands() -> None:
    ask = model_laws()
    first, second = (law.values for law in ask(["ab", "abc"]))
    assert [law.values for law in ask(["abc", "ab"])] == [second, first]
    assert ask(["ab"])[0].values == first
    assert (first[0], second[0]) == (2.0, 3.0)
    assert model_laws(seed=1)(["ab"])[0].values[1] != first[1]


def test_mappings_fill_the_template() -> None:
    ask = model_laws("Rate {a}: {b}")
    assert ask([{"a": "xy", "b": 3}])[0].values == ask(["Rate xy: 3"])[0].values
    with pytest.raises(OptionError, match="b"):
        ask([{"a": "xy"}])
    for row in (3, {"a": "xy"}):
        with pytest.raises(OptionError, match="template"):
            model_laws()([row])


def test_clones_share_the_model() -> None:
    ask = model_laws()
    assert copy.deepcopy(ask) is ask
    predictor = MetricAwarePredictor(ask, metric="mae")
    assert clone(predictor).laws is ask
    assert predictor.predict(np.array(["ab", "abc"])).shape == (2,)
