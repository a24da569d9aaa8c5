"""Import of whole files: what openvino-genai makes of the same file, what the folder holds, and what damage gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai
import pytest
from gguf import GGMLQuantizationType as QType
from test_gguf_graph import EXACT, IDS, expected, run, source, tensors, tiny

from wager.errors import CapacityError, ModelError
from wager.models.describe import check_ir
from wager.models.fidelity import EXACT_PROPERTIES, PROBE, fidelities, fidelity
from wager.models.gguf import import_gguf
from wager.models.profiles import Profile

DATA = Path(__file__).parents[1] / "data"


def gguf_file(folder: Path, arch: str = "llama", qtype: QType = QType.Q8_0, **options: object) -> Path:
    return source(folder, arch, qtype, **options).path


def broken_file(folder: Path, arch: str = "llama", **options: object) -> Path:
    """Write a file that ``Source`` refuses; its path."""
    tokens, merges = tiny.vocabulary()
    path = folder / "broken.gguf"
    settings = {"parts": tensors("llama"), "tokens": tokens, "qtype": QType.F16} | options
    parts, tokens = settings.pop("parts"), settings.pop("tokens")
    tiny.write_gguf(path, arch, parts, tokens, merges, **settings)
    return path


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_openvino_genai_reads_the_same_model_from_the_file(tmp_path: Path, arch: str) -> None:
    """Independent proof of the numpy model (row order, biases, norms): another reader of the same Q8_0 file."""
    src = source(tmp_path, arch, QType.Q8_0)
    openvino_genai.LLMPipeline(str(src.path), "CPU", enable_save_ov_model=True)
    theirs = ov.Core().compile_model(str(tmp_path / "openvino_model.xml"), "CPU", EXACT).create_infer_request()
    np.testing.assert_allclose(expected(src), run(theirs, IDS[None])[0], atol=1e-3)


@pytest.mark.parametrize("backend", ["PA", "SDPA"])
def test_openvino_genai_runs_the_folder(backend: str) -> None:
    pipeline = openvino_genai.LLMPipeline(str(DATA / "tiny-llama"), "CPU", ATTENTION_BACKEND=backend, **EXACT)
    prompt = ov.Tensor(IDS[None, :12].astype(np.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=8, do_sample=False, ignore_eos=True)
    config.apply_chat_template = False
    theirs = pipeline.generate(prompt, config).tokens[0]
    request = (
        ov.Core().compile_model(str(DATA / "tiny-llama" / "openvino_model.xml"), "CPU", EXACT).create_infer_request()
    )
    ids = IDS[:12].tolist()
    for _ in range(8):
        request.reset_state()
        ids.append(int(run(request, np.array([ids]))[0, -1].argmax()))
    assert theirs == ids[12:]


def test_the_folder_holds_what_it_should(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = gguf_file(tmp_path, qtype=QType.Q4_1)
    import_gguf(path, tmp_path / "ir", progress=lambda *step: seen.append(step))
    check_ir(tmp_path / "ir")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ir", path.name]
    config = json.loads((tmp_path / "ir" / "config.json").read_text())
    assert (config["vocab_size"], config["max_position_embeddings"], config["model_type"]) == (384, 512, "llama")
    generation = json.loads((tmp_path / "ir" / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2}
    made = json.loads((tmp_path / "ir" / "wager.json").read_text())
    assert made["form"] == "int8-32"
    assert made["matrices"] == {"int8-32": 4 * tiny.LAYERS + 2}
    assert made["source"]["tensors"] == {"F32": 2 * tiny.LAYERS + 1, "Q4_1": 7 * tiny.LAYERS + 2}
    assert len(made["source"]["sha256"]) == 64
    assert ("weights", tiny.LAYERS + 1, tiny.LAYERS + 1) in seen
    assert seen[-1] == ("write", 1, 1)


def test_tokenizer_round_trip_and_chat_template() -> None:
    tokenizer = openvino_genai.Tokenizer(str(DATA / "tiny-llama"))
    text = "the fox 🦊 and the river\n"
    ids = tokenizer.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text.encode())
    said = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    assert said == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_tiny_vocabularies_are_alike_and_permuted() -> None:
    a, b, q = (
        openvino_genai.Tokenizer(str(DATA / name)).get_vocab() for name in ("tiny-llama", "tiny-llama-b", "tiny-qwen3")
    )
    assert a == b
    assert a.keys() == q.keys()
    assert a != q


def test_sampling_defaults_of_the_file_are_kept(tmp_path: Path) -> None:
    def change(writer: tiny.GGUFWriter) -> None:
        writer.add_float32("general.sampling.temp", 0.5)
        writer.add_int32("general.sampling.top_k", 20)

    import_gguf(gguf_file(tmp_path, change=change), tmp_path / "ir")
    generation = json.loads((tmp_path / "ir" / "generation_config.json").read_text())
    assert (generation["temperature"], generation["top_k"], generation["do_sample"]) == (0.5, 20, True)


def test_fidelity_tells_a_faithful_import_from_a_coarse_one(tmp_path: Path) -> None:
    path = gguf_file(tmp_path, qtype=QType.Q4_1)
    import_gguf(path, tmp_path / "good")
    import_gguf(path, tmp_path / "exact", form="int4-sum")
    profile = Profile("exact", dict(EXACT_PROPERTIES))
    (good,) = fidelities(tmp_path / "good", path, [profile])
    (exact,) = fidelities(tmp_path / "exact", path, [profile])
    assert exact.kl < good.kl / 2 < 5e-3
    assert good.faithful
    assert good.n_tokens == 512
    other = gguf_file(tmp_path, qtype=QType.F16, parts=tiny.weights(99, 384))
    wrong = fidelity(tmp_path / "good", other, properties=EXACT_PROPERTIES)
    assert wrong is not None
    assert wrong.kl > 0.1
    assert not wrong.faithful


def test_fidelity_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    path = gguf_file(tmp_path, parts=tiny.weights(1, 416))
    with pytest.raises(ModelError, match=r"have 416 and 384 tokens: give the file it was imported from"):
        fidelity(DATA / "tiny-llama", path)


def test_fidelity_without_a_source_is_unknown() -> None:
    assert fidelity(DATA / "tiny-llama", None) is None
    assert len(PROBE.split()) > 300


def _refuse(path: Path, match: str) -> None:
    """The import is refused, and leaves nothing beside the file."""
    before = sorted(path.parent.iterdir())
    with pytest.raises(ModelError, match=match):
        import_gguf(path, path.parent / "out")
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.5, 0.999])
def test_truncated_file(tmp_path: Path, share: float) -> None:
    path = gguf_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: max(4, int(len(content) * share))])
    _refuse(path, "is cut short or damaged: fetch it again")


def test_wrong_magic_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"<!doctype html><html>")
    _refuse(path, r"starts with b'<!do', not with GGUF")
    with pytest.raises(ModelError, match=r"is not a file: give the path of a .gguf file"):
        import_gguf(tmp_path / "none.gguf", tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight", "blk.0.ffn_norm.weight"]
)
def test_missing_tensor(tmp_path: Path, name: str) -> None:
    parts = tensors("llama")
    del parts[name]
    _refuse(broken_file(tmp_path, parts=parts), f"lacks the tensor `{name}`.*fetch it again")


def test_tensor_of_another_size(tmp_path: Path) -> None:
    parts = tensors("llama")
    parts["blk.0.attn_q.weight"] = parts["blk.0.attn_q.weight"][:-32]
    _refuse(broken_file(tmp_path, parts=parts), r"`blk.0.attn_q.weight` .* is \(96, 64\), expected \(128, 64\)")


def test_unknown_tensor(tmp_path: Path) -> None:
    parts = tensors("llama") | {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    _refuse(
        broken_file(tmp_path, parts=parts), "holds `blk.0.attn_sinks.weight`, which llama models here have no use for"
    )


def test_no_tokenizer(tmp_path: Path) -> None:
    _refuse(broken_file(tmp_path, tokens=[]), "has no tokenizer .*convert it again with its vocabulary")


def test_tokenizer_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pieces(writer: tiny.GGUFWriter, tokens: list[str], merges: list[str]) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))

    monkeypatch.setattr(tiny, "add_tokenizer", pieces)
    _refuse(broken_file(tmp_path), r"cannot convert the tokenizer in `broken.gguf` .*optimum-cli export openvino")


def test_other_architecture(tmp_path: Path) -> None:
    _refuse(broken_file(tmp_path, arch="gemma2"), "architecture `gemma2`: supported are llama, qwen2, qwen3")


CHANGES: dict[str, tuple[Callable[[tiny.GGUFWriter], None], str]] = {
    "experts": (lambda w: w.add_expert_count(8), "mixture of experts"),
    "window": (lambda w: w.add_sliding_window(64), "sliding window of 64"),
    "rope": (
        lambda w: w.add_string("llama.rope.scaling.type", "yarn"),
        "rope scaling `yarn`: supported are none, linear",
    ),
    "parts": (lambda w: w.add_uint16("split.count", 3), "one of 3 parts: join them with gguf-split --merge"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_not_supported_is_named(tmp_path: Path, kind: str) -> None:
    change, match = CHANGES[kind]
    _refuse(broken_file(tmp_path, change=change), match)


def test_other_quantisation(tmp_path: Path) -> None:
    parts = {name: np.tile(value, (1, 4)) if value.ndim == 2 else value for name, value in tensors("llama").items()}
    _refuse(broken_file(tmp_path, parts=parts, qtype=QType.TQ1_0), "quantised as TQ1_0: supported are Q4_0, Q4_1")


@pytest.mark.parametrize(("free", "error"), [(1000, CapacityError), (10**9, ModelError)])
def test_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, error: type[Exception]
) -> None:
    """What the serialiser says of a full disk is only "iostream error": the space that is left tells."""
    path = gguf_file(tmp_path)

    def fail(*_: object) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - free, free))
        raise RuntimeError("basic_ios::clear: iostream error")

    monkeypatch.setattr(ov, "serialize", fail)
    with pytest.raises(
        error, match=r"0 MB free and about .* MB are needed" if free < 10**9 else "could not be written"
    ):
        import_gguf(path, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_too_small_a_disk_is_seen_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gguf_file(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(
        CapacityError, match=r"has 0 MB free and about 8 MB are needed: free some space or set WAGER_HOME"
    ):
        import_gguf(path, tmp_path / "out", progress=lambda what, *_: pytest.fail(what) if what == "weights" else None)


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    path = gguf_file(tmp_path)

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "write":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_gguf(path, tmp_path / "out", progress=interrupt)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]
