"""The default model's GGUF at f16, int8 and int4 in three group sizes (make test-convert)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import convert_tools as t
from wager.models import convert
from wager.models.convert_source import FullModel, full_precision
from wager.models.fidelity import EXACT_PROPERTIES as EXACT
from wager.models.fidelity import divergence, imported_logits, probe_ids

pytestmark = [pytest.mark.convert, pytest.mark.model, pytest.mark.timeout(900)]
N_IDS = 192

# Bounds on KL in nats a token. KL is about half the variance, under the law, of what the logits move by: to first order
# the squared relative errors of the 121 products, times the logits' own variance (10 is allowed for). An error is at
# most 2^-12 on average in f16 (4e-5), .01 in int8 by rows (.06). In int4 it is .08 and more, beyond first order: the
# source is 4-bit already, on another lattice, and what is bounded is that a language model is left.
FORMS = {
    "f16": (convert.Weights(format="f16"), 4e-5),
    "int8": (convert.Weights(format="int8"), 0.06),
    "int4-32": (convert.Weights(format="int4", group_size=32), 0.8),
    "int4-64": (convert.Weights(format="int4", group_size=64), 1.2),
    "int4-128": (convert.Weights(format="int4", group_size=128), 1.6),
}
PROMPT = "Write the numbers from one to thirty, then the same list once more: one, two, three, four, one, two, three,"


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullModel]:
    """The GGUF at full precision; by the file, since a model's name leads to the same."""
    place = tmp_path_factory.mktemp("full")
    with full_precision("smollm2-135m", place / "made", progress=silent) as model:
        assert model.source["name"].endswith(".gguf")
        yield model


@pytest.mark.parametrize("name", FORMS)
def test_default_model_in_every_form(
    full: FullModel, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, bound = FORMS[name]
    folder = tmp_path / name
    found = convert.convert(full, folder, weights, progress=silent)
    assert weights.form in found
    ids = probe_ids(folder)[:N_IDS]
    kl = divergence(imported_logits(full.folder, ids, EXACT), imported_logits(folder, ids, EXACT)).mean()
    assert 0 <= kl < bound
    t.assert_speculation_keeps_text(str(folder), PROMPT, n_tokens=24)
