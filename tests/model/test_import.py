"""The default model, pulled: faithful, fused, and readable by openvino-genai."""

from __future__ import annotations

import openvino as ov
import openvino_genai
import pytest

from wager.models import catalog
from wager.models.fidelity import EXACT_PROPERTIES, fidelity

pytestmark = pytest.mark.model


def test_default_model_is_faithful() -> None:
    folder = catalog.pull("smollm2-135m")
    found = fidelity(folder, catalog.source_of(folder), properties=EXACT_PROPERTIES)
    assert found is not None
    assert found.n_tokens >= 300
    assert found.kl <= 1e-3  # required: 5e-3
    assert found.argmax_agreement >= 0.97  # required: 0.95


def test_default_model_is_described() -> None:
    info = catalog.describe(catalog.pull("smollm2-135m"))
    assert (info.architecture, info.context_length, info.vocab_size) == ("llama", 8192, 49152)
    assert (info.bos_id, info.eos_ids[0], info.quantisation) == (1, 2, "int8-32")


def test_openvino_genai_runs_the_default_model() -> None:
    """In exact arithmetic: where activations are int8 (VNNI), the two best first tokens of this answer swap places."""
    pipeline = openvino_genai.LLMPipeline(str(catalog.pull("smollm2-135m")), "CPU", **EXACT_PROPERTIES)
    config = openvino_genai.GenerationConfig(max_new_tokens=24, do_sample=False)
    assert "Paris" in str(pipeline.generate("What is the capital of France?", config))


def test_graph_is_fused() -> None:
    from openvino._offline_transformations import paged_attention_transformation

    model = ov.Core().read_model(str(catalog.pull("smollm2-135m") / "openvino_model.xml"))
    paged_attention_transformation(model, False, False, False, False, False, False, True)
    compiled = ov.Core().compile_model(model, "CPU", dict(EXACT_PROPERTIES))
    kinds = [str(node.get_rt_info()["layerType"].value) for node in compiled.get_runtime_model().get_ops()]
    wanted = {"PagedAttention": 30, "RoPE": 60, "RMS": 61, "FullyConnected": 121, "MatMul": 0, "Transpose": 0}
    assert {kind: kinds.count(kind) for kind in wanted} == wanted
