"""Suffix arrays against sorting, and stores as files: whole or not at all, for one vocabulary, listed and removed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_tools import store_of, tokens_of
from wager import stores
from wager.corpus import SEPARATOR, Corpus, Source
from wager.errors import CapacityError, OptionError, VocabularyError
from wager.hidden import read_keys
from wager.models.toy import ToyModel
from wager.nearest import Keys
from wager.text import Text

DOCUMENTS = st.lists(st.lists(st.integers(0, 3), max_size=14), max_size=8)
CORPUS = Corpus(tokens_of([[5, 6, 5, 6, 7], [5, 6]]), (Source("a.txt", 12, "ab" * 32),))


@pytest.fixture(scope="module")
def text(tiny_llama: Path) -> Text:
    return Text(tiny_llama)


def suffixes_by_sorting(tokens: list[int]) -> list[int]:
    """Each suffix up to its first separator, then its place: what the order is defined as."""
    return sorted(range(len(tokens)), key=lambda at: (tokens[at : tokens.index(SEPARATOR, at) + 1], at))


@settings(deadline=None)
@given(DOCUMENTS)
def test_suffix_array_is_the_sorted_suffixes(documents: list[list[int]]) -> None:
    """Fails if separators were one token (documents would be compared across them), or a round of doubling is lost."""
    tokens = tokens_of(documents)
    assert stores.suffix_array(tokens).tolist() == suffixes_by_sorting(tokens.tolist())


@pytest.mark.parametrize("documents", [[[1] * 3000], [[1, 2] * 700, [2, 1] * 700], [list(range(40)) * 3] * 12])
def test_suffix_array_of_long_repeats(documents: list[list[int]]) -> None:
    tokens = tokens_of(documents)
    assert stores.suffix_array(tokens).tolist() == suffixes_by_sorting(tokens.tolist())


def test_suffix_array_of_a_text_like_corpus() -> None:
    """40 000 tokens by Zipf's law with a long passage repeated (seed 0): neighbours in order, every place once."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, 25_000), 5000).astype(np.int32)
    tokens = np.concatenate((words, [SEPARATOR], words[10_000:24_999], [SEPARATOR])).astype(np.int32)
    order = stores.suffix_array(tokens)
    assert np.array_equal(np.sort(order), np.arange(len(tokens)))
    listed = tokens.tolist()
    for a, b in zip(order[:-1:17].tolist(), order[1::17].tolist(), strict=False):
        ends = listed.index(SEPARATOR, a), listed.index(SEPARATOR, b)
        assert (listed[a : ends[0] + 1], a) < (listed[b : ends[1] + 1], b)


@settings(deadline=None)
@given(DOCUMENTS)
def test_starts_are_where_each_id_begins(documents: list[list[int]]) -> None:
    store = store_of(documents, 6)
    first = store.tokens[store.suffixes]
    assert store.starts.tolist() == [int(np.count_nonzero(first < token)) for token in range(7)]


def test_progress_of_sorting_grows_to_the_end() -> None:
    seen: list[tuple[str, int, int]] = []
    stores.suffix_array(tokens_of([[1, 2] * 50]), progress=lambda *what: seen.append(what))
    assert {(what, total) for what, _, total in seen} == {("sorting", 101)}
    done = [done for _, done, _ in seen]
    assert (done, done[0], done[-1]) == (sorted(done), 0, 101)
    assert len(done) > 5, "a round for every doubling"


def test_written_and_mapped_again(text: Text) -> None:
    info = stores.build("mine", CORPUS, text, model="tiny")
    assert (info.n_tokens, info.n_documents, info.vocab_size) == (7, 2, text.vocab_size)
    store = stores.load("mine")
    assert store.info == info
    assert store.tokens.tolist() == CORPUS.tokens.tolist()
    assert store.suffixes.tolist() == suffixes_by_sorting(CORPUS.tokens.tolist())
    assert len(store.starts) == text.vocab_size + 1
    assert not store.tokens.flags.writeable
    assert isinstance(store.tokens.base, np.memmap), "read into memory instead of mapped"
    assert [(s.name, s.info, s.problem) for s in stores.local_stores()] == [("mine", info, None)]


def test_models_of_one_vocabulary_share_a_store(text: Text, tiny_llama: Path) -> None:
    """The tokenizers' files differ (numbers of nodes), the vocabulary does not; the other has it in another order."""
    b, other = (Text(tiny_llama.with_name(name)) for name in ("tiny-llama-b", "tiny-qwen3"))
    xml = "openvino_tokenizer.xml"
    assert (text.path / xml).read_bytes() != (b.path / xml).read_bytes()
    assert sorted(text.vocab) == sorted(other.vocab)
    stores.build("mine", CORPUS, text, model="some/model")
    store = stores.load("mine")
    stores.check_vocabulary(store, text)
    stores.check_vocabulary(store, b)
    with pytest.raises(VocabularyError, match=r"`some/model` .* `tiny-qwen3` has others .*wager store build") as error:
        stores.check_vocabulary(store, other)
    assert "\n" not in str(error.value)


def test_a_vocabulary_is_its_pieces_in_order() -> None:
    vocabularies = ([b"ab", b"c"], [b"a", b"bc"], [b"c", b"ab"], [b"ab", b"c", b""], [b"abc"])
    assert len({stores.tokenizer_hash(SimpleNamespace(vocab=pieces)) for pieces in vocabularies}) == 5


def test_an_existing_name_needs_force(text: Text) -> None:
    stores.build("mine", CORPUS, text, model="tiny")
    old = stores.load("mine")
    with pytest.raises(OptionError, match=r"`mine` is a store already: .*--force"):
        stores.build("mine", CORPUS, text, model="tiny")
    new = Corpus(tokens_of([[1, 2, 3]]), ())
    stores.build("mine", new, text, model="tiny", force=True)
    assert stores.load("mine").tokens.tolist() == new.tokens.tolist()
    assert old.tokens.tolist() == CORPUS.tokens.tolist(), "who has the old store mapped keeps it"


@pytest.mark.parametrize("name", ["", ".x", "../x", "a/b", "a:b", "a b", "ä", "x" * 101])
def test_impossible_names_are_refused(text: Text, name: str) -> None:
    with pytest.raises(OptionError, match="is no name for a store"):
        stores.build(name, CORPUS, text, model="tiny")
    with pytest.raises(OptionError, match="is no store here"):
        stores.load(name)


def test_too_many_tokens_are_refused(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MOST_ROWS", len(CORPUS.tokens) - 1)
    with pytest.raises(OptionError, match="a store at most 8"):
        stores.build("mine", CORPUS, text, model="tiny")


DENSE = Corpus(tokens_of([[5, 6, 5, 6, 7, 8, 9] * 3, [5, 6]]), ())


def build_dense(text: Text, *, n_hidden: int = 4, corpus: Corpus = DENSE, **options) -> stores.StoreInfo:
    model = ToyModel(text.vocab_size, n_hidden=n_hidden)
    return stores.build(
        "mine", corpus, text, model="tiny", model_hash="ab" * 32, read=partial(read_keys, model), **options
    )


def test_keys_are_written_and_mapped_again(text: Text) -> None:
    """Fails if an array comes back in another order of memory, as products do."""
    made: list[Keys] = []

    def read(tokens: np.ndarray, vocab_size: int) -> Keys:
        made.append(read_keys(ToyModel(vocab_size, n_hidden=4), tokens, vocab_size))
        return made[0]

    info = stores.build("mine", DENSE, text, model="tiny", model_hash="ab" * 32, read=read)
    assert info.dense == stores.KeysInfo("ab" * 32, 19, 4, 4)
    store = stores.load("mine")
    assert store.info == info
    assert store.keys is not None
    assert not made[0].projection.flags.c_contiguous, "the order of memory is what this is about"
    for name in ("mean", "projection", "vectors", "places", "buckets"):
        array = getattr(store.keys, name)
        assert np.array_equal(array, getattr(made[0], name)), name
        assert isinstance(array.base, np.memmap), "read into memory instead of mapped"
    assert store.keys.vectors.dtype == np.float16
    assert [(s.info, s.problem) for s in stores.local_stores()] == [(info, None)]


@pytest.mark.parametrize("documents", [[], [[1]], [[1, 2, 3]]])
def test_a_store_without_keys_to_speak_of(text: Text, documents: list[list[int]]) -> None:
    info = build_dense(text, corpus=Corpus(tokens_of(documents), ()))
    store = stores.load("mine")
    assert store.info == info
    assert store.keys is not None
    assert store.keys.vectors.shape == (len(documents[0]) == 3 if documents else 0, 0)


def test_keys_belong_to_a_model(text: Text) -> None:
    build_dense(text)
    store = stores.load("mine")
    stores.check_model(store, "ab" * 32, "tiny")
    with pytest.raises(
        OptionError, match=r"hidden states of `tiny` \(abababab\), and `other` is another model.*--dense"
    ):
        stores.check_model(store, "cd" * 32, "other")
    stores.build("mine", CORPUS, text, model="tiny", force=True)
    with pytest.raises(OptionError, match=r"store `mine` has no keys: build one that has with .*--dense"):
        stores.check_model(stores.load("mine"), "ab" * 32, "tiny")


def test_ctrl_c_while_the_model_reads_leaves_nothing(text: Text) -> None:
    def stop(*_: object) -> Keys:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stores.build("mine", CORPUS, text, model="tiny", model_hash="ab" * 32, read=stop)
    assert list(stores.stores_home().iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("when", ["sorting", "writing"])
def test_an_interrupt_leaves_nothing_half_made(
    text: Text, monkeypatch: pytest.MonkeyPatch, force: bool, when: str
) -> None:
    if force:
        stores.build("mine", Corpus(tokens_of([[1, 2, 3]]), ()), text, model="tiny")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if when == "writing":
        monkeypatch.setattr(np.lib.format, "write_array_header_1_0", stop)
    with pytest.raises(KeyboardInterrupt):
        stores.build("mine", CORPUS, text, model="tiny", force=force, progress=stop if when == "sorting" else None)
    assert [path.name for path in stores.stores_home().iterdir()] == (["mine"] if force else [])
    assert not force or stores.load("mine").info.n_tokens == 3


def test_a_full_disk_is_said(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(CapacityError, match="free some space"):
        stores.build("mine", CORPUS, text, model="tiny")
    assert list(stores.stores_home().iterdir()) == []


def test_too_small_a_disk_is_said_before_the_sorting(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=8))
    with pytest.raises(CapacityError, match="free some space"):
        stores.build("mine", CORPUS, text, model="tiny", progress=lambda *_: pytest.fail("sorts"))


def _set(key: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        meta[key] = value
        (folder / "meta.json").write_text(json.dumps(meta), "utf-8")

    return change


def _overwritten(file: str) -> Callable[[Path], None]:
    """Right in shape and type, and all else is noise (seed 0)."""

    def change(folder: Path) -> None:
        path = folder / f"{file}.npy"
        array = np.load(path)
        noise = np.random.default_rng(0).bytes(array.nbytes)
        np.save(path, np.frombuffer(noise, array.dtype).reshape(array.shape))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "meta.json").unlink(),
        lambda f: (f / "meta.json").write_text("{", "utf-8"),
        lambda f: (f / "meta.json").write_text("[]", "utf-8"),
        _set("version", 2),
        _set("sources", 3),
        _set("more", 3),
        _set("dense", 3),
        _set("dense", {"model_hash": "", "n_keys": 7}),
        _set("dense", {"model_hash": "", "n_keys": 7, "n_dims": 4, "n_hidden": 4}),
        _set("n_tokens", 8),
        _set("vocab_size", 8),
        lambda f: (f / "tokens.npy").unlink(),
        lambda f: (f / "suffixes.npy").write_bytes(b""),
        lambda f: (f / "suffixes.npy").write_bytes((f / "suffixes.npy").read_bytes()[:-4]),
        lambda f: np.save(f / "tokens.npy", CORPUS.tokens.astype(np.int64)),
        _set("n_tokens", "x"),
        _set("n_tokens", -1),
        _set("n_documents", None),
        _set("vocab_size", [3]),
        _set("vocab_size", 1.5),
        _set("tokenizer", 3),
        _set("model", None),
        _set("sources", [{"path": 3, "n_bytes": 12, "sha256": ""}]),
        _set("dense", {"model_hash": 3, "n_keys": 7, "n_dims": 4, "n_hidden": 4}),
        _set("dense", {"model_hash": "", "n_keys": "x", "n_dims": 4, "n_hidden": 4}),
        *(_overwritten(file) for file in ("tokens", "suffixes", "starts")),
        lambda f: np.save(f / "tokens.npy", np.full(len(CORPUS.tokens), 5, np.int32)),
    ],
)
def test_damaged_stores_are_refused_and_can_be_removed(text: Text, damage: Callable[[Path], object]) -> None:
    stores.build("mine", CORPUS, text, model="tiny")
    damage(stores.stores_home() / "mine")
    with pytest.raises(OptionError, match=r"store `mine` cannot be read .*build it again"):
        stores.load("mine")
    (found,) = stores.local_stores()
    assert found.info is None
    assert "build it again with --force" in str(found.problem)
    stores.remove("mine")
    assert list(stores.stores_home().iterdir()) == []


@pytest.mark.parametrize("file", ["mean", "projection", "vectors", "places", "buckets"])
def test_damaged_keys_are_refused(text: Text, file: str) -> None:
    build_dense(text)
    path = stores.stores_home() / "mine" / f"{file}.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OptionError, match=r"store `mine` cannot be read .*build it again"):
        stores.load("mine")
    assert stores.local_stores()[0].problem is not None


@pytest.mark.parametrize("file", ["places", "buckets"])
def test_keys_that_lead_nowhere_are_refused(text: Text, file: str) -> None:
    build_dense(text)
    _overwritten(file)(stores.stores_home() / "mine")
    with pytest.raises(OptionError, match=rf"store `mine` cannot be read \({file} .*build it again"):
        stores.load("mine")


def test_a_removal_that_was_stopped_does_not_stop_the_next(text: Text) -> None:
    stores.build("mine", CORPUS, text, model="tiny")
    left = stores.stores_home() / ".mine.0.removed.partial"
    left.mkdir()
    (left / "tokens.npy").write_bytes(b"x")
    stores.remove("mine")
    assert list(stores.stores_home().iterdir()) == []


def test_what_is_not_here_is_said_with_what_is(text: Text) -> None:
    for act in (stores.load, stores.remove):
        with pytest.raises(OptionError, match="`mine` is no store here: build one with `wager store build"):
            act("mine")
    for name in ("b", "a"):
        stores.build(name, CORPUS, text, model="tiny")
    for act in (stores.load, stores.remove):
        with pytest.raises(OptionError, match="`mine` is no store here: give one of a, b, or build one"):
            act("mine")
