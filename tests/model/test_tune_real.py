"""What the search asks about the real default model: how far settings are from the reference, and which keep bits."""

from __future__ import annotations

import pytest

from wager.models import catalog
from wager.models.fidelity import FAITHFUL_KL
from wager.tuning import space
from wager.tuning.lab import OpenVINOLab
from wager.tuning.search import KERNELS, acceptable, changed

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


def test_settings_are_told_apart():
    lab = OpenVINOLab(catalog.resolve("smollm2-135m"), "fast")
    group, n_merged = lab.graph_facts()
    assert (group, n_merged) == (32, 0)  # the import writes merged products
    own = space.untuned("fast", threads=None, weights_group=group)
    assert acceptable(lab.quality(own))
    assert lab.exactness(own).reason is None
    base = changed(own, KERNELS, "off")
    near, exact = lab.quality(base), lab.quality(changed(base, "DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"))
    assert acceptable(near)
    assert exact.kl < 1e-4 < near.kl < FAITHFUL_KL  # the int8 rounding of activations
    assert lab.exactness(base).reason is None
    lab.keep(base)
    quantised = changed(base, "KV_CACHE_PRECISION", "u8")
    assert "logits differ" in (lab.exactness(quantised).reason or "")


def test_a_forward_reads_what_the_roofline_counts():
    lab = OpenVINOLab(catalog.resolve("smollm2-135m"), "fast")
    model = lab.model(space.untuned("fast", threads=None, weights_group=32))
    n_weights = 49152 * 576 + 30 * (960 * 576 + 576 * 576 + 3072 * 576 + 576 * 1536)
    head = 49152 * 576 * (1 + 2 / 32)  # int8, f16 scales of 32
    own = head + (n_weights - 49152 * 576) * (1 / 2 + 4 / 32)  # four bits, f16 scales and offsets
    plugin = n_weights * (1 + 4 / 32)  # int8, f32 scales
    assert model.weight_bytes == pytest.approx(own if model.kernels else plugin, rel=0.01)
    assert model.kv_bytes_per_token == 30 * 2 * 3 * 64 * 2  # layers, keys and values, heads, size, f16
