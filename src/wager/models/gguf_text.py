"""Tokenizer and detokenizer of a GGUF file, as the OpenVINO graphs that openvino-genai reads.

Byte-level BPE is converted by openvino-genai itself. What it cannot convert is a vocabulary with scores (Google's
SentencePiece BPE, ``tokenizer.ggml.model`` llama): here that becomes the same operations, with the merges that scores
mean. Two neighbouring pieces that make a piece are a merge, the best score first (Kudo and Richardson 1808.06226).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import openvino as ov

from wager.errors import ModelError
from wager.models.gguf_read import CONTROL, Source, Special

_FILES = tuple(f"openvino_{kind}.{end}" for kind in ("tokenizer", "detokenizer") for end in ("xml", "bin"))
BYTE, UNUSED = 6, 5  # token types
_NORMAL, _WHOLE = 1, 4  # more of them; a whole piece is looked for in the text before anything is merged
_SPACE = "▁"  # how pieces with scores write a space
_RESERVED = re.compile(r"<unused\d+>")  # no text means these, and looking for thousands of them takes time
_SPELLED_OUT = r"<(?=unused\d+>|0x[0-9A-F]{2}>)"  # cut here: text that looks like such a piece, or like a byte, is text
_CACHED_WORDS = 20_000
_NO_LIMIT = 1 << 30


class Vocabulary(Protocol):
    """What is read of a file for a vocabulary with scores: special ids, and metadata by name."""

    @property
    def special(self) -> Special: ...
    def value(self, key: str, default: Any = None) -> Any: ...


def write_tokenizer(source: Source, folder: Path) -> None:
    """Write both graphs, chat template included, to ``folder``. Raises ``ModelError`` for a kind nobody can convert."""
    if source.value("tokenizer.ggml.model") == "llama" and source.value("tokenizer.ggml.add_space_prefix") is False:
        write_scored(source, folder)
    else:
        _converted(source.path, folder)


def write_scored(source: Vocabulary, folder: Path) -> None:
    """Both graphs of a vocabulary with scores."""
    for model, name in zip(_scored(source), ("tokenizer", "detokenizer"), strict=True):
        ov.save_model(model, str(folder / f"openvino_{name}.xml"), compress_to_fp16=False)


def _converted(gguf_path: Path, folder: Path) -> None:
    """By openvino-genai, which writes beside the file it is given: so it is given a link in a folder of its own."""
    import openvino_genai

    with tempfile.TemporaryDirectory(dir=folder) as place:
        link = Path(place) / "model.gguf"
        os.symlink(gguf_path.absolute(), link)
        try:
            openvino_genai.Tokenizer(str(link), enable_save_ov_model=True)
        except (RuntimeError, IndexError, ValueError) as error:
            raise _no_tokenizer(gguf_path, (str(error).strip().splitlines() or ["?"])[-1]) from error
        for name in _FILES:
            if not (Path(place) / name).exists():
                raise ModelError(
                    f"`{gguf_path.name}` has no tokenizer that openvino-genai can convert: use another file"
                )
            (Path(place) / name).rename(folder / name)


def _no_tokenizer(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"openvino-genai cannot convert the tokenizer in `{path.name}` ({reason}), byte-level BPE is what it knows: "
        "export the original with `optimum-cli export openvino --model OWNER/NAME FOLDER`"
    )


def _scored(source: Vocabulary) -> tuple[ov.Model, ov.Model]:
    """Tokenizer and detokenizer of a vocabulary with scores, without a space put in front of the text."""
    from openvino_tokenizers import tokenizer_pipeline as parts
    from openvino_tokenizers.utils import change_inputs_type, change_outputs_type

    tokens: list[str] = source.value("tokenizer.ggml.tokens")
    kinds: list[int] = source.value("tokenizer.ggml.token_type")
    control = [token for token, kind in enumerate(kinds) if kind == CONTROL]
    whole = [token for token, kind in enumerate(kinds) if kind in (CONTROL, _WHOLE)]
    literal = {tokens[token]: token for token in whole if not _RESERVED.fullmatch(tokens[token])}
    special = source.special
    bos = [special.bos] if source.value("tokenizer.ggml.add_bos_token") and special.bos is not None else []
    pipeline = parts.TokenizerPipeline()
    pipeline.add_steps(
        [
            parts.SpecialTokensSplit.from_string_iter(literal),
            parts.RegexNormalizationStep.replace_spaces_metaspace(_SPACE),
            parts.RegexSplitStep(_SPELLED_OUT, behaviour="isolate"),
            parts.BPETokenizationStep(
                list(tokens),
                merges(tokens, source.value("tokenizer.ggml.scores"), kinds),
                unk_token=tokens[source.value("tokenizer.ggml.unknown_token_id", 0)],
                fuse_unk=True,
                byte_fallback=True,
                added_tokens=literal,
                cache_capacity=_CACHED_WORDS,
            ),
            parts.TruncationStep(max_length=_NO_LIMIT),  # openvino-genai leaves BOS out only where there is one
            parts.CombineSegmentsStep(
                [*(parts.AddToken(_token_id=token, token_type_id=0) for token in bos), parts.Sequence(token_type_id=0)]
            ),
            parts.PaddingStep(_token_id=special.pad or 0, pad_right=False),
            parts.VocabDecoderStep([token.replace(_SPACE, " ") for token in tokens], control),
            parts.ByteFallbackStep(),
            parts.FuseStep(),
        ]
    )
    tokenizer = change_outputs_type(pipeline.get_tokenizer_ov_subgraph(), ov.Type.i64)
    detokenizer = change_inputs_type(pipeline.get_detokenizer_ov_subgraph(), ov.Type.i64)
    for model in (tokenizer, detokenizer):
        _describe(model, source)
    return tokenizer, detokenizer


def merges(tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int]) -> list[tuple[str, str]]:
    """Pairs of pieces that make a piece, in the order in which they are merged."""
    normal = {token: i for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == _NORMAL}
    found = [
        (-scores[i], normal[token[:cut]], normal[token[cut:]])
        for token, i in normal.items()
        for cut in range(1, len(token))
        if token[:cut] in normal and token[cut:] in normal
    ]
    return [(tokens[left], tokens[right]) for _, left, right in sorted(found)]


def _describe(model: ov.Model, source: Vocabulary) -> None:
    """What openvino-genai asks of a tokenizer: special ids, template, and the version that its switches came with."""
    from importlib.metadata import version

    special = source.special
    facts: dict[str, Any] = {"bos": special.bos, "eos": special.end[0] if special.end else None, "pad": special.pad}
    for name, token in facts.items():
        if token is not None:
            model.set_rt_info(token, f"{name}_token_id")
    template = source.value("tokenizer.chat_template")
    if template:
        model.set_rt_info(template, "chat_template")
    model.set_rt_info(version("openvino-tokenizers"), "openvino_tokenizers_version")
