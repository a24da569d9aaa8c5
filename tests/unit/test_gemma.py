"""Gemma 3 from GGUF: windows, norms, scores of pieces; against numpy, a plain merging loop, and openvino-genai."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai
import pytest
from gguf import GGMLQuantizationType as QType
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gguf_graph import EXACT, expected, paged, request_of, run

from engine_tools import RandomTrees
from tiny_gguf import CONTROL, WHOLE, WINDOW, scored, tiny, write_gemma
from wager.engine import Engine
from wager.errors import ModelError
from wager.models import graph
from wager.models.describe import describe
from wager.models.gguf import import_gguf
from wager.models.gguf_graph import build
from wager.models.gguf_read import Source
from wager.models.gguf_text import merges
from wager.models.openvino import OpenVINOModel
from wager.models.selfcheck import check_exact
from wager.policies import Fixed
from wager.text import Text
from wager.types import Sampling

N_VOCAB = len(scored()[0])
IDS = np.random.default_rng(3).integers(0, N_VOCAB, 40)
TEXT = "the quick brown fox jumps over  the lazy dog\n\nand <b> then\tthere is é 🦊 all around. "


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an imported tiny Gemma, its matrices as they are."""
    place = tmp_path_factory.mktemp("gemma")
    import_gguf(write_gemma(place / "tiny-gemma.gguf", qtype=QType.Q8_0), place / "tiny-gemma")
    return place / "tiny-gemma"


@pytest.fixture(scope="module")
def text(gemma: Path) -> Text:
    return Text(gemma)


# -- the graph --------------------------------------------------------------------------------------------------------


def test_the_graph_is_the_numpy_model(tmp_path: Path) -> None:
    src = Source(write_gemma(tmp_path / "g.gguf"))
    assert [src.shape.is_local(layer) for layer in range(tiny.LAYERS)] == [True, False]
    model, _ = build(src, "f32", lambda *_: None)
    request = request_of(model)
    np.testing.assert_allclose(run(request, IDS[None])[0], expected(src, IDS), atol=2e-3)
    request.reset_state()
    pieces = [run(request, IDS[None, a:b], past=a)[0] for a, b in ((0, 9), (9, 10), (10, 40))]
    np.testing.assert_allclose(np.concatenate(pieces), expected(src, IDS), atol=2e-3)


def test_the_paged_graph_keeps_the_window(tmp_path: Path) -> None:
    """One token more or less in the window, or none at all, would be seen."""
    src = Source(write_gemma(tmp_path / "g.gguf"))
    want = expected(src, IDS)
    for wrong in (WINDOW - 1, WINDOW + 1, 10**6):
        src.shape = replace(src.shape, window=wrong)
        assert np.abs(expected(src, IDS) - want).max() > 0.05
    model, _ = build(Source(src.path), "f32", lambda *_: None)
    assert graph.paged_attention(model) == tiny.LAYERS
    np.testing.assert_allclose(paged(ov.Core().compile_model(model, "CPU", EXACT), IDS), want, atol=2e-3)


@pytest.mark.parametrize("backend", ["PA", "SDPA"])
def test_openvino_genai_reads_the_folder_alike(gemma: Path, backend: str) -> None:
    pipeline = openvino_genai.LLMPipeline(str(gemma), "CPU", ATTENTION_BACKEND=backend, **EXACT)
    config = openvino_genai.GenerationConfig(max_new_tokens=8, do_sample=False, ignore_eos=True)
    config.apply_chat_template = False
    theirs = pipeline.generate(ov.Tensor(IDS[None].astype(np.int64)), config).tokens[0]
    model = OpenVINOModel(gemma, profile="reference", kv_cache_bytes=1 << 24, context_length=512)
    engine = Engine(model)
    seq = engine.submit(IDS.tolist(), Sampling(max_tokens=8, ignore_eos=True), seed=0)
    while engine.has_work:
        engine.step()
    assert theirs == seq.output


@pytest.mark.parametrize("profile", ["fast", "reference"])
def test_text_does_not_depend_on_drafts_beyond_the_window(gemma: Path, profile: str) -> None:
    model = OpenVINOModel(gemma, profile=profile, kv_cache_bytes=1 << 24, context_length=512)
    exactness = check_exact(model, model.vocab_size, budget_s=60)
    assert exactness.reason is None
    model.max_rows, model.rows_rule = exactness.max_rows, exactness.rule
    sampling = Sampling(temperature=0.8, max_tokens=24, ignore_eos=True, logprobs=5)
    found = []
    for drafter in (None, RandomTrees(vocab_size=model.vocab_size)):
        engine = Engine(model, drafter=drafter, policy=Fixed(6, depth=3, width=2))
        seqs = [engine.submit(IDS[:n].tolist(), sampling, seed=n) for n in (1, 7, 40)]
        while engine.has_work:
            engine.step()
        found.append([(seq.output, seq.logprobs) for seq in seqs])
    assert found[0] == found[1]


def test_a_folder_says_what_it_is(gemma: Path) -> None:
    info = describe(gemma)
    assert (info.architecture, info.vocab_size, info.bos_id, info.eos_ids) == ("gemma3_text", N_VOCAB, 2, (1, 5))


def test_only_layers_that_see_all_have_their_rotations_stretched(tmp_path: Path) -> None:
    def change(writer: tiny.GGUFWriter) -> None:
        writer.add_string("gemma3.rope.scaling.type", "linear")
        writer.add_float32("gemma3.rope.scaling.factor", 8.0)
        writer.add_float32("gemma3.rope.freq_base_swa", 5000.0)

    plain, long = (
        Source(write_gemma(tmp_path / f"{i}.gguf", **o)).shape for i, o in enumerate(({}, {"change": change}))
    )
    np.testing.assert_allclose(long.inv_freq * 8, plain.inv_freq, rtol=1e-6)
    np.testing.assert_allclose(plain.local_inv_freq, 10000.0 ** (-np.arange(0, 1, 2 / tiny.HEAD_DIM)), rtol=1e-6)
    np.testing.assert_allclose(long.local_inv_freq, 5000.0 ** (-np.arange(0, 1, 2 / tiny.HEAD_DIM)), rtol=1e-6)


def test_what_other_gemmas_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capped = write_gemma(
        tmp_path / "capped.gguf", change=lambda writer: writer.add_float32("gemma3.final_logit_softcapping", 30.0)
    )
    with pytest.raises(ModelError, match=r"`capped.gguf` caps logits \(`final_logit_softcapping`\)"):
        Source(capped)
    monkeypatch.setattr("wager.models.gguf_read._GEMMA_27B_LAYERS", tiny.LAYERS)
    with pytest.raises(ModelError, match=r"`large.gguf` scales queries as only Gemma 3 27B does"):
        Source(write_gemma(tmp_path / "large.gguf"))


# -- the tokenizer ----------------------------------------------------------------------------------------------------


def merged_plainly(text: str) -> list[int]:
    """SentencePiece's BPE as it is defined: the neighbours with the best score become one, until none can."""
    tokens, scores, kinds = scored()
    place = {token: i for i, token in enumerate(tokens)}
    whole = sorted((t for t, kind in zip(tokens, kinds, strict=True) if kind == WHOLE), key=len, reverse=True)
    normal = {t for t, kind in zip(tokens, kinds, strict=True) if kind == 1}
    out: list[int] = []
    while text:
        piece = next((t for t in whole if text.startswith(t)), "")
        if piece:
            out, text = [*out, place[piece]], text[len(piece) :]
            continue
        end = min((at for t in whole if (at := text.find(t)) > 0), default=len(text))
        parts, text = list(text[:end].replace(" ", "▁")), text[end:]
        while pairs := [(-scores[place[a + b]], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in normal]:
            _, i = min(pairs)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        for part in parts:
            out += [place[part]] if part in normal else [place[f"<0x{byte:02X}>"] for byte in part.encode()]
    return out


@given(st.lists(st.sampled_from(["the", " the", "  ", " ", "\n", "qu", "e", "é", "🦊", "<b>", "ove", "r", "is", "."])))
@settings(max_examples=200, deadline=None)
def test_pieces_are_those_of_plain_merging(text: Text, words: list[str]) -> None:
    said = "".join(words)
    assert text.encode(said, False) == merged_plainly(said)
    assert text.decode(text.encode(said)) == said


def test_beginning_of_text_and_turns(text: Text) -> None:
    assert text.encode(TEXT) == [2, *text.encode(TEXT, False)]
    assert text.decode(text.encode(TEXT)) == TEXT
    turn = text.chat([{"role": "user", "content": "the fox"}])
    assert turn == [4, *text.encode("user\nthe fox", False), 5, *text.encode("\n", False)]
    assert text.decode(turn) == "user\nthe fox\n"
    assert text.special_ids == frozenset(range(7))
    spelled = "the <unused0> is not <0x41>"
    assert 6 not in text.encode(spelled)
    assert text.decode(text.encode(spelled)) == spelled
    assert (text.eos_ids, text.joins_bytes) == (frozenset((1, 5)), True)


def test_merges_are_ordered_by_score() -> None:
    assert merges(["a", "b", "c", "bc", "abc"], [0, 0, 0, -1.0, -2.0], [1] * 5) == [("b", "c"), ("a", "bc")]
    assert merges(["a", "b", "ab"], [0, 0, -1.0], [1, CONTROL, 1]) == []


def test_vocabularies_that_put_a_space_in_front_are_refused(tmp_path: Path) -> None:
    for space_prefix in (True, None):
        path = write_gemma(tmp_path / "spaced.gguf", space_prefix=space_prefix)
        with pytest.raises(ModelError, match=r"cannot convert the tokenizer in `spaced.gguf`"):
            import_gguf(path, tmp_path / "out")
