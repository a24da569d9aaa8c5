"""What a model says after single tokens: asked in batches, kept on disk, made again where the file is no good."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine_tools import V, run, toy
from wager.drafters import prior as module
from wager.drafters.prior import Prior, ask, load_prior
from wager.engine import Engine
from wager.types import Sampling


def _rows(prior):
    return [prior.row(token) for token in range(V)]


@pytest.mark.parametrize(("before", "block_size", "max_rows"), [([5], 4, 64), ([5, 6, 7, 8, 9], 4, 6), ([5], 1, 64)])
def test_rows_are_the_models_own(before: list[int], block_size: int, max_rows: int) -> None:
    model = toy(block_size=block_size, max_rows=max_rows, rows_rule="any", order=3)
    prior = ask(model, before, n_ids=V, n_valid_ids=V)
    for token, row in enumerate(_rows(prior)):
        law = model.law([*before, token])
        assert row.ids == np.argsort(-law, kind="stable")[:8].tolist()
        assert row.logits == pytest.approx(law[row.ids].tolist())
    assert prior.row(V) is None


def test_it_stops_in_time_and_what_is_there_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(now))
    prior = ask(toy(max_rows=4, rows_rule="any"), [5], n_ids=V, n_valid_ids=V, budget_s=2.5)
    assert len(prior.ids) == 8
    assert prior.row(7) is not None
    assert prior.row(8) is None


def test_a_running_engine_reads_again_what_was_overwritten() -> None:
    model = toy(rows_rule="any")
    sampling = Sampling(max_tokens=20, ignore_eos=True)
    plain = run(toy(rows_rule="any"), sampling, batch=[[1, 2, 3]]).tokens
    engine = Engine(model)
    seq = engine.submit([1, 2, 3], sampling, seed=0)
    for _ in range(5):
        engine.step()
    ask(model, [5], n_ids=V, n_valid_ids=V)
    while engine.has_work:
        engine.step()
    assert [seq.tokens] == plain


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("WAGER_HOME", str(tmp_path / "home"))
    (tmp_path / "model").mkdir()
    for name in ("openvino_model.xml", "openvino_model.bin"):
        (tmp_path / "model" / name).write_bytes(b"x")
    text = SimpleNamespace(encode=lambda text: [5])
    model = toy(rows_rule="any")
    return SimpleNamespace(ir_dir=tmp_path / "model", n_valid_ids=V, text=text, model=model, progress=None)


def test_asked_once_and_kept(target) -> None:
    first = load_prior(target)
    n_forwards = target.model.n_forwards
    again = load_prior(target)
    assert target.model.n_forwards == n_forwards > 0
    assert _rows(again) == _rows(first)


def _path() -> Path:
    return next((module.wager_home() / "prior").iterdir())


@pytest.mark.parametrize("at", [0, 40, -1])
def test_a_damaged_file_is_made_again(target, at: int) -> None:
    first = load_prior(target)
    data = bytearray(_path().read_bytes())
    data[at] ^= 1
    for damaged in (bytes(data), b"", bytes(data[:50])):
        _path().write_bytes(damaged)
        assert _rows(load_prior(target)) == _rows(first)


def test_ids_of_another_vocabulary_are_not_taken(target) -> None:
    first = load_prior(target)
    module._write(_path(), Prior(first.ids + 1000, first.logits))
    assert _rows(load_prior(target)) == _rows(first)


def test_what_cannot_be_kept_is_said_and_serves(target, caplog: pytest.LogCaptureFixture) -> None:
    first = load_prior(target)
    path = _path()
    path.unlink()
    path.mkdir()
    assert _rows(load_prior(target)) == _rows(first)
    assert "asked again next time" in caplog.text


def test_what_time_cut_off_is_asked_for_in_later_starts(target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 4)
    monkeypatch.setattr(module.time, "perf_counter", iter(range(100)).__next__)
    monkeypatch.setattr(module, "_FIRST_S", 2.5)
    assert len(load_prior(target).ids) == 8
    monkeypatch.setattr(module, "_LATER_S", 1.5)
    assert len(load_prior(target).ids) == 12
    monkeypatch.setattr(module, "_LATER_S", 9.0)
    assert _rows(load_prior(target)) == _rows(ask(toy(rows_rule="any"), [5], n_ids=V, n_valid_ids=V))
