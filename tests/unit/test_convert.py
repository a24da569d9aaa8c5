"""Conversion without the packages it can do without: settings, names, float16, provenance, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from gguf import GGMLQuantizationType as QType

from tiny_gguf import tiny
from wager.cli import main
from wager.errors import ModelError, OptionError
from wager.home import models_home
from wager.llm import LLM
from wager.models import catalog, convert, convert_source
from wager.models.convert_passes import check_groups, forms, inputs_for, is_full_precision, to_f16
from wager.models.fidelity import EXACT_PROPERTIES, imported_logits
from wager.models.gguf import import_gguf
from wager.models.openvino import read_graph
from wager.types import Sampling

IDS = list(range(3, 40))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "little.gguf"
    tokens, merges = tiny.vocabulary()
    tiny.write_gguf(path, "llama", tiny.weights(1, len(tokens)), tokens, merges, qtype=QType.Q8_0)
    return path


@pytest.fixture(scope="module")
def full(gguf: Path) -> Path:
    import_gguf(gguf, gguf.parent / "full", form="f32")
    return gguf.parent / "full"


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["convert", *args])
    return int(exit_.value.code or 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"format": "int3"}, "--weight-format"),
        ({"format": "int8", "group_size": 32}, "--group-size"),
        ({"format": "f16", "ratio": 0.5}, "--ratio"),
        ({"format": "int8", "awq": True}, "--awq"),
        ({"format": "int4", "group_size": 48}, "48"),
        ({"format": "int4", "ratio": 0.0}, "--ratio"),
        ({"format": "int4", "ratio": 1.5}, "1.5"),
        ({"format": "int4", "awq": True}, "--calibration"),
        ({"format": "int4", "scale_estimation": True}, "--calibration"),
        ({"format": "int4", "calibration": Path("x.txt")}, "nothing uses it"),
        ({"format": "int4", "awq": True, "calibration": Path("nowhere.txt")}, "no file"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        convert.Weights(**settings)


@pytest.mark.parametrize("name", ["a/b", "", ".hidden", "x.gguf", "smollm2-135m", "taken"])
def test_names_that_cannot_be_given(name: str) -> None:
    (models_home() / "taken").mkdir(parents=True)
    with pytest.raises(OptionError, match=f"`{name}`"):
        convert.target_folder(name)


def test_group_size_must_divide_some_product(full: Path) -> None:
    model = read_graph(ov.Core(), full)
    check_groups(model, 128)  # inputs are 64 and 128
    model = ov.Core().read_model(str(full / "openvino_model.xml"))
    with pytest.raises(OptionError, match="divides none"):
        check_groups(model, 256)


def test_float16_rounds_matrices_and_nothing_else(full: Path) -> None:
    """Each weight moves by half a unit in the last place; norms and frequencies not at all."""
    before, after = (read_graph(ov.Core(), full) for _ in range(2))
    to_f16(after)
    assert set(forms(after)) == {"f16"}
    assert is_full_precision(after)

    def constants(model: ov.Model) -> list[np.ndarray]:
        nodes = [n for n in model.get_ordered_ops() if n.get_type_name() == "Constant"]
        return sorted((n.data for n in nodes if n.get_element_type().is_real()), key=lambda d: (d.size, d.sum()))

    for old, new in zip(constants(before), constants(after), strict=True):
        if old.ndim == 2 and min(old.shape) > 1:
            assert new.dtype == np.float16
            assert np.abs(old - new.astype(np.float32)).max() <= 2**-11 * np.abs(old).max()
        else:
            np.testing.assert_array_equal(old, new)


def test_float16_refuses_what_it_cannot_hold(full: Path) -> None:
    model = read_graph(ov.Core(), full)
    to_f16(model)  # holds
    product = next(n for n in model.get_ordered_ops() if n.get_type_name() == "MatMul")
    big = ov.op.Constant(np.full(list(product.input_value(1).get_shape()), 1e5, np.float32))
    product.input(1).replace_source_output(big.output(0))
    with pytest.raises(ModelError, match="beyond float16"):
        to_f16(model)


def test_a_gguf_file_becomes_a_named_model(gguf: Path, full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(gguf), "mine", "--weight-format", "f16", "--no-check") == 0
    folder = models_home() / "mine"
    assert capsys.readouterr().out.strip() == str(folder)
    assert [p.name for p in models_home().iterdir()] == ["mine"]  # no scratch left
    info = catalog.describe(catalog.resolve("mine"))
    assert (info.quantisation, info.architecture) == ("f16", "llama")
    made = json.loads((folder / "wager.json").read_text())
    assert made["convert"] == {"weight_format": "f16"}
    assert made["source"]["sha256"] == convert_source.sha256_of(gguf)
    assert set(made["versions"]) == {"wager", "openvino", "openvino-genai", "gguf"}
    ours, exact = (imported_logits(f, IDS, EXACT_PROPERTIES) for f in (folder, full))
    assert 0 < np.abs(ours - exact).max() < 2**-8 * np.abs(exact).max()
    llm = LLM("mine", drafter="lookup", threads=1)
    assert llm.text.has_chat_template
    plain, drafted = (
        llm.generate(IDS * 2, Sampling(max_tokens=24, ignore_eos=True), speculate=s).tokens for s in (False, True)
    )
    assert plain == drafted
    assert run(str(gguf), "mine", "--weight-format", "f16") == 2
    assert "is there already" in capsys.readouterr().err


def test_an_openvino_folder_is_a_source_unless_it_is_compressed(
    full: Path, tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(full, plain)
    (plain / "wager.json").unlink()
    assert run(str(plain), "--weight-format", "f16", "--no-check") == 0
    made = json.loads((models_home() / "plain-f16" / "wager.json").read_text())
    assert (made["source"]["kind"], made["source"]["name"]) == ("openvino", "plain")
    assert run(str(tiny_llama), "again", "--weight-format", "f16") == 2
    assert "compressed already (int8-32)" in capsys.readouterr().err


def test_a_stopped_conversion_leaves_nothing(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("wager.models.gguf.save", stop)
    assert run(str(gguf), "mine", "--weight-format", "f16") == 130
    assert list(models_home().iterdir()) == []


def test_missing_packages_are_named(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(convert, "find_spec", lambda name: None)
    monkeypatch.setattr(convert_source, "find_spec", lambda name: None)
    assert run(str(gguf), "mine", "--weight-format", "int4") == 2
    assert "pip install 'wager[convert]'" in capsys.readouterr().err
    assert run(str(tmp_path), "mine", "--weight-format", "f16") == 2
    assert "neither openvino_model.xml nor config.json" in capsys.readouterr().err
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    assert run(str(tmp_path), "mine", "--weight-format", "f16") == 2
    assert "pip install 'wager[convert-hf]'" in capsys.readouterr().err


def test_what_is_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nothing-here", "mine", "--weight-format", "f16") == 2
    assert "`nothing-here` is nothing to convert" in capsys.readouterr().err


def test_calibration_reads_pieces_of_the_whole_text(full: Path) -> None:
    model = read_graph(ov.Core(), full)
    pieces = inputs_for(model, list(range(100_000)))
    firsts = [int(piece["input_ids"][0, 0]) for piece in pieces]
    assert len(pieces) == 64
    assert firsts[0] == 0
    assert 99_000 < firsts[-1] + 256 <= 100_000
    assert set(pieces[0]) == {port.get_any_name() for port in model.inputs}
    assert inputs_for(model, list(range(10))) == []


class FolderHub:
    """A hub of one repository, which is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self, repo: str) -> list[str]:
        return [p.name for p in self.folder.iterdir()]

    def download(self, repo: str, patterns: list[str], progress: object) -> Path:
        return self.folder


def silent(what: str, done: int, total: int) -> None:
    pass


def test_a_repository_of_the_hub_is_a_source(gguf: Path, full: Path, tmp_path: Path) -> None:
    """A GGUF file, an OpenVINO model, or else a model of transformers, which needs optimum-intel here."""

    def source(folder: Path) -> dict:
        final = models_home() / "mine"
        with convert_source.full_precision("own/er", final, site=FolderHub(folder), progress=silent) as found:
            assert (found.folder / "openvino_model.xml").is_file()
            return found.source

    (tmp_path / "one").mkdir()
    shutil.copy(gguf, tmp_path / "one")
    assert source(tmp_path / "one")["name"] == gguf.name
    assert source(full)["kind"] == "openvino"
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "README.md").touch()
    with pytest.raises(ModelError, match="neither openvino_model"):
        source(tmp_path / "two")
