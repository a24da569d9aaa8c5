"""The front door: what is remembered about a machine, what is refused, what a call returns. On the tiny model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine_tools import kv_views
from wager import LLM
from wager.errors import CapacityError, IdentityError, ModelError, OptionError
from wager.llm import sampling_defaults
from wager.models.openvino import OpenVINOModel


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _one_home(home, monkeypatch, _own_home):
    monkeypatch.setenv("WAGER_HOME", str(home))


@pytest.fixture(scope="module")
def llm(tiny_llama, home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(home))
        return LLM(tiny_llama, kv_cache_gb=0.1)


def measured(home):
    return [file for file in (home / "machines").iterdir() if not file.name.startswith("text-")]


def test_what_cannot_be_remembered_is_said_and_does_not_stop(tiny_llama, monkeypatch, caplog):
    def full(key, data):
        raise CapacityError("the disk is full")

    monkeypatch.setattr("wager.measured.load_measurements", lambda key: None)
    monkeypatch.setattr("wager.measured.save_measurements", full)
    llm = LLM(tiny_llama, kv_cache_gb=0.1)
    assert llm.generate("ab", llm.sampling(max_tokens=3), chat=False).tokens
    assert "the disk is full" in caplog.text


def test_what_is_known_of_a_tokenizer_is_remembered(llm, home):
    [file] = (home / "machines").glob("text-*")
    assert json.loads(file.read_text()) == llm.text.facts()


def test_a_machine_is_measured_once(llm, tiny_llama, home):
    assert len(measured(home)) == 1
    seen = []
    LLM(tiny_llama, kv_cache_gb=0.1, progress=lambda what, done, total: seen.append(what))
    assert not any("measuring" in what or "checking" in what for what in seen)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"exactness": {}}', '{"exactness": {"max_rows": 64}, "cost": {}}'])
def test_damaged_measurements_are_taken_again(llm, tiny_llama, home, content):
    [file] = measured(home)
    file.write_text(content)
    again = LLM(tiny_llama, kv_cache_gb=0.1)
    assert again.info["exactness"] == "bit-identical"
    assert json.loads(file.read_text())["exactness"]["rule"] == again.info["rows_rule"]


def test_info_says_what_is_in_force(llm):
    info = llm.info
    assert info["profile"] == "fast"
    assert info["drafter"] == "blend"
    assert info["rows_rule"] in ("any", "split", "pair")  # which one is the machine's to say
    assert info["properties"]["KV_CACHE_PRECISION"] == "f16"
    assert len(info["system_fingerprint"]) == 12
    json.dumps(info)


def test_profile_max_promises_nothing_and_can_be_refused(tiny_llama):
    llm = LLM(tiny_llama, profile="max", kv_cache_gb=0.1)
    assert llm.info["exactness"].startswith("max (not bit-identical here")
    assert llm.generate("ab", llm.sampling(max_tokens=5), chat=False).tokens
    with pytest.raises(IdentityError, match="reference"):
        LLM(tiny_llama, profile="max", kv_cache_gb=0.1, require_identical=True)


def test_max_feeds_single_rows_and_masks(tiny_llama):
    draft = tiny_llama.parent / "tiny-llama-b"
    drafter = f"model:{draft}"
    llm = LLM(tiny_llama, profile="max", drafter=drafter, num_draft_tokens=3, tree_width=2, kv_cache_gb=0.1)
    widths = []
    engine = llm.make_engine(drafter=None, on_step=lambda record: widths.append(record.width))
    engine.submit([5, 6, 7], llm.sampling(max_tokens=5, ignore_eos=True), seed=0)
    while engine.has_work:
        engine.step()
    assert widths[1:] == [1, 1, 1, 1]
    answer = llm.generate("abab" * 6, llm.sampling(max_tokens=20, ignore_eos=True), chat=False)
    assert answer.stats.n_accepted > 0


def test_fixed_shape_graphs_give_the_same_bits(tiny_llama):
    """Also for fewer rows than they are made for, where that can be."""
    from wager.calibrate import _batch

    model = OpenVINOModel(tiny_llama, kv_cache_bytes=1 << 24, context_length=512)
    for cache in kv_views(model):  # the context is whatever memory holds, and NaN equals nothing
        cache[:] = 0.1
    batches = [_batch(model, n_rows, 40) for n_rows in (8, 3, 2, 1, 7, 4)]
    before = [model.forward(batch).logits.copy() for batch in batches]
    for width in (8, 4, 1):
        model._lanes.add(width)
        for batch, logits in zip(batches, before, strict=True):
            assert (model.forward(batch).logits == logits).all()


def test_of_a_graph_for_more_rows_only_what_is_asked_for_is_read(tiny_llama):
    """A batch after another larger one, and logits of some of its rows."""
    from wager.calibrate import _batch

    model = OpenVINOModel(tiny_llama, kv_cache_bytes=1 << 24, context_length=512)
    for cache in kv_views(model):
        cache[:] = 0.1
    few = _batch(model, 5, 40)
    want = model.forward(few).logits.copy()
    model.warm_up()
    for rows in ([], [4], [1, 3], [0, 1, 2, 3, 4]):
        model.forward(_batch(model, 8, 100))
        got = model.forward(replace(few, rows=np.array(rows, np.int64))).logits
        assert (got == want[rows]).all()


def test_graphs_are_prepared_one_by_one_where_they_are_cheap(tiny_llama):
    model = OpenVINOModel(tiny_llama, kv_cache_bytes=1 << 24, context_length=512)
    assert model.prepare(7) == model.lanes_are_cheap
    assert not model.prepare(7)
    if not model.lanes_are_cheap:
        assert not model.prepare()
        return
    assert 8 in model._lanes  # takes seven as well
    assert 1 not in model._lanes
    n_more = 0
    while model.prepare():
        n_more += 1
    assert n_more > 1
    assert 1 in model._lanes
    assert model.switches_are_free


def test_a_graph_is_made_when_doing_without_has_cost_as_much(tiny_llama):
    from wager.calibrate import _batch

    model = OpenVINOModel(tiny_llama, kv_cache_bytes=1 << 24, context_length=512)
    two, eight = _batch(model, 2, 40), _batch(model, 8, 40)
    for _ in range(300):
        model.forward(two)
        model.forward(eight)
    assert (4 if model.lanes_are_cheap else 2) in model._lanes
    assert 8 in model._lanes
    assert 1 not in model._lanes


def test_what_generate_returns(llm):
    sampling = llm.sampling(max_tokens=6, temperature=1.0, seed=1)
    one = llm.generate("ab", sampling, chat=False)
    assert [c.tokens for c in llm.generate(["ab"], sampling, chat=False)] == [one.tokens]
    three = llm.generate("ab", sampling, chat=False, n=3)
    assert three[0].tokens == one.tokens
    assert len({tuple(c.tokens) for c in three}) == 3
    two_of_two = llm.generate(["ab", "cd"], sampling, chat=False, n=2)
    assert len(two_of_two) == 4
    assert two_of_two[1].tokens == three[1].tokens
    assert llm.generate([5, 6], sampling).n_prompt == 2
    with pytest.raises(OptionError, match="`n`"):
        llm.generate("ab", sampling, n=0)


def test_chat_keeps_the_prefix(llm):
    messages = [{"role": "user", "content": "hello there, this is a long enough question " * 3}]
    before = llm._engine.cache.n_prefix_hits
    first = llm.chat_stream(messages, llm.sampling(max_tokens=5), on_event=lambda event: None)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "and now?"}]
    second = llm.chat_stream(messages, llm.sampling(max_tokens=5), on_event=lambda event: None)
    assert llm._engine.cache.n_prefix_hits - before >= 32
    assert second.n_prompt > first.n_prompt


def test_sampling_defaults_come_from_the_model(tmp_path):
    def defaults(text):
        (tmp_path / "generation_config.json").write_text(text)
        return sampling_defaults(tmp_path)

    assert defaults('{"temperature": 0.6, "top_p": 0.9, "do_sample": true}') == {"temperature": 0.6, "top_p": 0.9}
    assert defaults('{"temperature": 0.6, "do_sample": false, "repetition_penalty": 1.1}') == {
        "repetition_penalty": 1.1
    }
    assert defaults("{}") == {}
    with pytest.raises(ModelError, match="JSON"):
        defaults("{")


def test_too_little_memory_says_how_much_is_needed(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.setenv("WAGER_HOME", str(tmp_path))  # measured anew: the self-check needs the most
    for too_little in (1e-6, 1.5e-4):
        with pytest.raises(CapacityError, match="give at least") as refused:
            LLM(tiny_llama, kv_cache_gb=too_little)
    enough = float(str(refused.value).split()[-1])
    llm = LLM(tiny_llama, kv_cache_gb=1.05 * enough)
    assert llm.info["exactness"] == "bit-identical"
    assert llm.generate("ab", llm.sampling(max_tokens=5, ignore_eos=True), chat=False).stats.n_tokens == 5


@pytest.mark.parametrize("kv_cache_gb", [0.0, -1.0, float("nan"), float("inf")])
def test_memory_that_is_no_amount_is_refused(tiny_llama, kv_cache_gb):
    with pytest.raises(OptionError, match="kv_cache_gb"):
        LLM(tiny_llama, kv_cache_gb=kv_cache_gb)


def test_a_folder_that_is_no_model(tmp_path):
    (tmp_path / "openvino_model.xml").write_text("nonsense")
    with pytest.raises(ModelError):
        LLM(Path(tmp_path))
