"""What a model makes of our kernels: no promise where they do only a part, no name where they do nothing."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as op

from wager.models.graph import products_with_weights
from wager.models.kernels import kernels
from wager.models.openvino import OpenVINOModel, load_model
from wager.models.profiles import PROFILES, profile_named
from wager.tuning import execution


@pytest.fixture(autouse=True)
def _kernels() -> None:
    found, reason = kernels()
    if found is None:
        pytest.skip(str(reason))


def load(ir_dir: Path, *, profile: str = "fast", n_plain: int = 0) -> OpenVINOModel:
    """The first ``n_plain`` products have weights that our kernels do not know."""

    def prepare(graph: ov.Model) -> None:
        for product in products_with_weights(graph)[:n_plain]:
            shape = list(product.input_value(1).get_shape())
            product.input(1).replace_source_output(op.constant(np.ones(shape, np.float32)).output(0))

    return load_model(ir_dir, profile=profile, threads=None, kv_cache_bytes=1 << 24, prepare=prepare)


def test_a_row_is_any_row_only_where_our_kernels_do_everything(tiny_llama: Path) -> None:
    whole, part = load(tiny_llama), load(tiny_llama, n_plain=1)
    assert whole.profile.rules == ("any", *PROFILES["fast"].rules)
    assert part.kernels == whole.kernels
    assert part.profile.rules == PROFILES["fast"].rules
    assert part.rows_rule == part.profile.rules[0]


def test_a_model_is_freed_when_nobody_has_it(tiny_llama: Path) -> None:
    model = load(tiny_llama)
    gone = weakref.ref(model)
    del model
    assert gone() is None


def test_tuning_measures_and_keeps_what_a_load_will_run(tiny_llama: Path) -> None:
    model = load(tiny_llama, profile="max")
    assert execution._widths(model, []) == model.widths
    loaded = execution._as_loaded(profile_named("max"), model)
    assert (loaded.properties, loaded.widths) == (model.profile.properties, model.widths)
