"""Tiny random Hugging Face models through optimum-intel and NNCF, against torch (make test-convert)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import convert_tools as t
import hf_tools
from tiny_gguf import tiny
from wager.cli import main
from wager.home import models_home
from wager.models import catalog, convert
from wager.models.convert_source import FullModel, full_precision
from wager.text import Text

pytestmark = pytest.mark.convert
IDS = [int(i) for i in np.random.default_rng(3).integers(3, 380, 6 * hf_tools.WINDOW)]
FORMS = {"f16": {}, "int8": {}, "int4": {"group_size": 32}}


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module", params=hf_tools.KINDS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """(the Hugging Face folder, its full-precision export)."""
    place = tmp_path_factory.mktemp(request.param)
    hf_tools.make(request.param, place / "source")
    with full_precision(str(place / "source"), place / "made", progress=silent) as full:
        yield place / "source", full


def test_the_export_is_the_model(exported: tuple[Path, FullModel]) -> None:
    """Float32 against float32, longer than the window: only the order of additions differs."""
    source, full = exported
    assert t.logit_error(t.engine_logits(full.folder, IDS), hf_tools.logits(source, IDS)) < 1e-4


@pytest.mark.parametrize("name", FORMS)
def test_weights_and_logits_are_within_what_the_format_loses(exported: tuple[Path, FullModel], name: str) -> None:
    """Weight by weight half a step; logits, to first order, by no more than the relative errors of all matrices."""
    source, full = exported
    folder = convert.target_folder("mine")
    wanted = convert.Weights(format=name, **FORMS[name])
    found = convert.convert(full, folder, wanted, progress=silent)
    assert wanted.form in found
    before, after = t.weights(full.folder), t.weights(folder)
    form_of = [wanted.form if name != "int4" else None] * len(before)
    for old, new, form in zip(before, after, form_of, strict=True):
        one_of = [form] if form else [wanted.form, "int8-channel"]
        assert any((np.abs(new - old) <= 1.01 * t.half_steps(old, f) + 1e-7).all() for f in one_of)
    errors = t.relative_errors(before, after)
    assert (errors > 0).all()
    assert t.logit_error(t.engine_logits(folder, IDS), hf_tools.logits(source, IDS)) < errors.sum()
    t.assert_speculation_keeps_text("mine", tiny.TEXT, n_merged=2 * tiny.LAYERS)  # q/k/v and gate/up


def test_the_command_makes_a_complete_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hf_tools.make("llama", tmp_path / "little")
    with pytest.raises(SystemExit) as exit_:
        main(["convert", str(tmp_path / "little"), "--weight-format", "int4", "--group-size", "32"])
    assert exit_.value.code == 0
    out, err = capsys.readouterr()
    folder = models_home() / "little-int4-32"
    assert out.strip() == str(folder)
    assert "| little-int4-32 | int4-32 " in err  # the quality table
    assert [p.name for p in models_home().iterdir()] == ["little-int4-32"]
    info, text = catalog.describe(catalog.resolve("little-int4-32")), Text(folder)
    assert (info.quantisation, info.architecture, info.eos_ids) == ("int4-32", "llama", (2,))
    assert text.decode(text.encode(tiny.TEXT)) == tiny.TEXT
    assert text.has_chat_template
    made = json.loads((folder / "wager.json").read_text())
    assert made["source"]["kind"] == "huggingface"
    assert set(made["source"]["files"]) == {"config.json", "model.safetensors"}
    assert {"nncf", "optimum-intel", "torch", "transformers"} <= set(made["versions"])
    with pytest.raises(SystemExit) as exit_:
        main(["convert", str(folder), "again"])
    assert exit_.value.code == 2
    assert "compressed already" in capsys.readouterr().err


def test_activations_help_to_choose(exported: tuple[Path, FullModel], tmp_path: Path) -> None:
    """AWQ and scale estimation run on a text, and change what the weights become."""
    _, full = exported
    text = tmp_path / "text.txt"
    text.write_text(tiny.TEXT * 8)
    plain = convert.Weights(format="int4", group_size=32)
    tuned = convert.Weights(format="int4", group_size=32, awq=True, scale_estimation=True, calibration=text)
    for name, wanted in (("plain", plain), ("tuned", tuned)):
        convert.convert(full, convert.target_folder(name), wanted, progress=silent)
    a, b = (t.weights(models_home() / name) for name in ("plain", "tuned"))
    assert any((x != y).any() for x, y in zip(a, b, strict=True))


def test_what_optimum_refuses_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "of-my-own"}')
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(SystemExit) as exit_:
        main(["convert", str(tmp_path), "mine"])
    assert exit_.value.code == 2
    assert "optimum-intel cannot export" in capsys.readouterr().err
    assert not any(models_home().iterdir())
