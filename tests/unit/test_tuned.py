"""What was tuned is used without being told, for exactly what it was measured for."""

from __future__ import annotations

import json

import pytest

from wager import machine
from wager.llm import LLM
from wager.machine import fingerprint
from wager.models import tuned
from wager.models.openvino import load_model
from wager.models.profiles import HELD_WIDTHS, OWN_WIDTHS, PROFILES
from wager.models.tuned import Tuned

FOUND = Tuned({**PROFILES["fast"].properties, "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}, False, (1, 4, 8))


def load(ir_dir, **options):
    return load_model(ir_dir, **{"profile": "fast", "threads": None, "kv_cache_bytes": 1 << 24, **options})


def untuned_widths(model):
    """Our kernels have no need of a second row (design fact 5)."""
    return OWN_WIDTHS if model.kernels else HELD_WIDTHS[1:]


def test_the_next_load_uses_it(tiny_llama):
    plain = load(tiny_llama)
    assert plain.widths == untuned_widths(plain)
    tuned.save(tiny_llama, "fast", FOUND, {})
    model = load(tiny_llama)
    assert model.properties == FOUND.properties
    assert model.passes["merge_products"] == 0
    assert (model.widths, model.width_for(2), model.width_for(5)) == ((4, 8), 4, 8)
    assert (model.profile.name, model.profile.rules) == ("fast", PROFILES["fast"].rules)


def test_only_where_nothing_else_is_asked_for(tiny_llama):
    tuned.save(tiny_llama, "fast", FOUND, {})
    for asked in ({"profile": "reference"}, {"prepare": lambda graph: None}, {"threads": 1}):
        model = load(tiny_llama, **asked)
        assert model.widths == untuned_widths(model)
    one = Tuned({**FOUND.properties, "INFERENCE_NUM_THREADS": "1"}, True, (1, 8))
    tuned.save(tiny_llama, "fast", one, {})
    assert load(tiny_llama, threads=1).widths == (8,)


@pytest.mark.parametrize(
    ("part", "said"), [("machine", "machine was"), ("openvino", "openvino was 1.0, is "), ("format", "format was 1.0")]
)
def test_what_was_measured_for_something_else_is_not_used(tiny_llama, part, said):
    path = tuned.save(tiny_llama, "fast", FOUND, {})
    record = json.loads(path.read_text())
    record["key"][part] = {**record["key"][part], "n_cores": 999} if part == "machine" else "1.0"
    path.write_text(json.dumps(record))
    kept, reason = tuned.read(tiny_llama, "fast")
    assert kept == record
    assert said in reason
    assert load(tiny_llama).properties == PROFILES["fast"].properties | {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "32"}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"key": {}, "tuned": {"properties": {}, "widths": [4, 2]}}'])
def test_a_damaged_record_is_not_used_and_named(tiny_llama, content, caplog):
    path = tuned.record_path(tiny_llama, "fast")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    record, reason = tuned.read(tiny_llama, "fast")
    assert record is None
    assert f"{path} is damaged" in reason
    model = load(tiny_llama)
    assert model.widths == untuned_widths(model)
    assert "run `wager tune` again" in caplog.text


def test_a_setting_has_measurements_and_a_fingerprint_of_its_own(tiny_llama):
    before = LLM(tiny_llama, kv_cache_gb=0.02)
    tuned.save(tiny_llama, "fast", FOUND, {})
    after = LLM(tiny_llama, kv_cache_gb=0.02)
    assert after.fingerprint != before.fingerprint
    assert machine.load_measurements(after.fingerprint) is not None
    assert after.info["properties"] == FOUND.properties
    sampling = before.sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
    assert after.generate("ab", sampling, speculate=False).tokens == after.generate("ab", sampling).tokens


def test_every_part_of_a_setting_is_in_the_fingerprint():
    def of(merged, group, widths):
        return fingerprint("model", {"merge_products": merged}, {"GROUP": group}, widths=widths)

    assert len({of(0, "0", (1, 2)), of(1, "0", (1, 2)), of(0, "32", (1, 2)), of(0, "0", (1, 2, 4))}) == 4


def test_a_setting_is_the_same_after_the_file():
    assert Tuned.from_json(json.loads(json.dumps(FOUND.to_json()))) == FOUND
