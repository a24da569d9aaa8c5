"""Models of random weights: real graphs, finite activations, the sizes asked for, and no pretence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from deep_tools import batch_of, opened
from wager.cli import main
from wager.errors import CapacityError, OptionError
from wager.models import graph, random_ir
from wager.models.describe import describe
from wager.models.random_ir import SHAPES, RandomWeights, check_form, n_bytes, shape_named, write_random
from wager.text import Text

SMALL = "llama-3.2-1b:n_layers=2,hidden=256,n_heads=4,n_kv_heads=2,head_dim=64,ffn=512,vocab=1000"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random") / "small"
    write_random(folder, SMALL, shape_named(SMALL))
    return folder


def logits_of(folder: Path) -> np.ndarray:
    model = opened(folder)
    forward = model.forward(batch_of([72, 105, 33, 499], 0, [1]))
    return np.array(forward.logits)


def test_a_random_model_computes_like_a_real_one(small: Path) -> None:
    logits = logits_of(small)
    assert logits.shape == (4, 1000)
    assert np.isfinite(logits).all()
    assert 0.2 < logits.std() < 5
    assert np.abs(np.corrcoef(logits)[np.triu_indices(4, 1)]).max() < 0.9, "the text makes no difference"
    network = ov.Core().read_model(small / "openvino_model.xml")
    assert graph.weights_group(network) == 64


def test_no_two_matrices_are_equal(small: Path) -> None:
    """Equal ones would be stored once, and the file would not have its size."""
    size = (small / "openvino_model.bin").stat().st_size
    assert size == pytest.approx(n_bytes(shape_named(SMALL), "int4-64"), rel=0.02)


def test_the_seed_fixes_the_weights(small: Path, tmp_path: Path) -> None:
    for seed, same in ((0, True), (1, False)):
        write_random(tmp_path / "again", SMALL, shape_named(SMALL), seed=seed)
        files = [(folder / "openvino_model.bin").read_bytes() for folder in (small, tmp_path / "again")]
        assert (files[0] == files[1]) is same


def test_it_says_that_it_is_random(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = describe(small)
    assert info.quantisation == "int4-64"
    assert info.vocab_size == Text(small).vocab_size == 1000
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(small)])
    assert not ended.value.code
    assert "random weights in the shape of llama-3.2-1b" in capsys.readouterr().out
    assert json.loads((small / "wager.json").read_text())["random_weights"] is True


@pytest.mark.parametrize(("form", "group"), [("int4-128", 128), ("int8-channel", 0)])
def test_other_forms_and_a_head_of_its_own(tmp_path: Path, form: str, group: int) -> None:
    shape = shape_named("llama-3.1-8b:n_layers=1,hidden=256,n_heads=4,n_kv_heads=4,head_dim=64,ffn=256,vocab=512")
    write_random(tmp_path / "m", "x", shape, form=form)
    assert np.isfinite(logits_of(tmp_path / "m")[:, :512]).all()
    assert (tmp_path / "m" / "openvino_model.bin").stat().st_size == pytest.approx(n_bytes(shape, form), rel=0.02)
    assert graph.weights_group(ov.Core().read_model(tmp_path / "m" / "openvino_model.xml")) == group


def test_a_block_of_codes_serves_all_layers() -> None:
    """Memory is that of the largest matrix, however many layers there are."""
    few, many = (RandomWeights(shape_named(f"smollm2-135m:n_layers={n}"), 0) for n in (1, 1000))
    for layer in range(30):
        many.stored([f"blk.{layer}.ffn_down.weight"], [576], 1536, "int4-64", gathered=False)
    sizes = [sum(a.nbytes for a in (w._codes, w._factors, *w._scales.values())) for w in (few, many)]
    assert sizes[1] < 1.3 * sizes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llama-9", "give one of smollm2-135m"),
        ("llama-3.2-1b:depth=3", "depth=3"),
        ("llama-3.2-1b:n_layers=0", "n_layers=0"),
        ("n_layers=3,hidden=64", "all of n_layers"),
        ("llama-3.2-1b:n_kv_heads=5", "multiple"),
        ("llama-3.2-1b:vocab=100", "vocab"),
    ],
)
def test_shapes_that_are_not_there_are_refused(text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        shape_named(text)


def test_a_free_shape_names_all_its_sizes() -> None:
    shape = shape_named("n_layers=3,hidden=64,n_heads=2,n_kv_heads=1,head_dim=32,ffn=96,vocab=500")
    assert (shape.n_layers, shape.vocab, shape.inv_freq.shape) == (3, 500, (16,))


def test_forms_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="int3"):
        check_form(SHAPES["llama-3.2-1b"], "int3")
    with pytest.raises(OptionError, match="no multiple of 128"):
        check_form(SHAPES["smollm2-135m"], "int4-128")
    monkeypatch.setattr(random_ir, "n_bytes", lambda shape, form: 1 << 60)
    with pytest.raises(CapacityError):
        write_random(tmp_path / "m", "x", SHAPES["smollm2-135m"])
    assert not list(tmp_path.iterdir())
