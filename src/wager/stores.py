"""Stores: a corpus as tokens with its suffix array, in files that drafters map into memory.

A store is a folder below WAGER_HOME/stores: ``tokens.npy`` (N,) int32, every document followed by ``SEPARATOR``;
``suffixes.npy`` (N,) int32, their suffix array; ``starts.npy`` (V + 1,) int32, where in it the suffixes begin that
start with each id; ``meta.json``, a ``StoreInfo``. A store is tied to the vocabulary, not to the files of a tokenizer:
token ids mean pieces, and exporters number the nodes of one and the same tokenizer differently. So all models with one
vocabulary share it. A dense store has the arrays of ``nearest.Keys`` besides, which belong to one model.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from wager.corpus import SEPARATOR, Corpus, Source
from wager.errors import OptionError, VocabularyError
from wager.home import atomic_folder, is_partial, wager_home
from wager.nearest import N_DIMS, Keys
from wager.text import Text
from wager.types import I32

HOW_TO_BUILD = "`wager store build NAME --model MODEL FILES`"
HOW_TO_BUILD_DENSE = "`wager store build NAME --dense --model MODEL FILES`"
FORMAT = 1  # raised when older stores cannot be read any more
_META = "meta.json"
_KEYS = tuple(field.name for field in fields(Keys))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_ROWS = 2**31 - 1  # int32

Progress = Callable[[str, int, int], None]
_Info = TypeVar("_Info", "Source", "KeysInfo", "StoreInfo")


@dataclass(frozen=True, slots=True)
class KeysInfo:
    """``model_hash``: of the model whose hidden states the keys are."""

    model_hash: str
    n_keys: int
    n_dims: int
    n_hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """``model`` is the one that it was made with, ``tokenizer`` its ``tokenizer_hash``; separators are not counted.

    ``dense`` is None in a store without keys.
    """

    name: str
    model: str
    tokenizer: str
    vocab_size: int
    n_tokens: int
    n_documents: int
    sources: tuple[Source, ...]
    dense: KeysInfo | None = None
    version: int = FORMAT


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """``tokens`` (N,), ``suffixes`` (N,) and ``starts`` (V + 1,) int32, mapped from files; N counts separators.

    ``keys`` is None where the store is not dense.
    """

    info: StoreInfo
    tokens: I32
    suffixes: I32
    starts: I32
    keys: Keys | None = None


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A folder below WAGER_HOME. ``problem`` says why it cannot be used; ``info`` is None then."""

    name: str
    path: Path
    n_bytes: int
    info: StoreInfo | None
    problem: str | None


def stores_home(home: Path | None = None) -> Path:
    return (wager_home() if home is None else home) / "stores"


def tokenizer_hash(text: Text) -> str:
    """64 hex digits of the vocabulary: every id's piece in order, lengths included."""
    digest = hashlib.sha256()
    for piece in text.vocab:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.hexdigest()


def check_new(name: str, *, force: bool = False, home: Path | None = None) -> None:
    """Raises ``OptionError`` unless ``name`` may be built."""
    if not _NAME.fullmatch(name):
        raise OptionError(f"`{name}` is no name for a store: give letters, digits, and . _ - after the first")
    if not force and (stores_home(home) / name).exists():
        raise OptionError(f"`{name}` is a store already: give another name, or --force to replace it")


def build(
    name: str,
    corpus: Corpus,
    text: Text,
    *,
    model: str,
    model_hash: str = "",
    read: Callable[[I32, int], Keys] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    home: Path | None = None,
) -> StoreInfo:
    """Write a store, whole or not at all. ``model`` is what people call the model that ``text`` belongs to.

    ``read(tokens, vocab_size)`` makes the keys of a dense store, with the model of ``model_hash``.
    ``progress(what, done, total)`` is told about the sorting.
    Raises ``OptionError`` for a name that is taken or impossible and for too large a corpus, ``CapacityError`` for a
    full disk.
    """
    check_new(name, force=force, home=home)
    n_rows = len(corpus.tokens)
    if n_rows > _MOST_ROWS:
        raise OptionError(f"the files have {n_rows} tokens, a store at most {_MOST_ROWS}: give fewer of them")
    n_documents = int(np.count_nonzero(corpus.tokens == SEPARATOR))
    info = StoreInfo(
        name=name,
        model=model,
        tokenizer=tokenizer_hash(text),
        vocab_size=text.vocab_size,
        n_tokens=n_rows - n_documents,
        n_documents=n_documents,
        sources=corpus.sources,
    )
    folder = stores_home(home) / name
    n_bytes = 2 * corpus.tokens.nbytes + (0 if read is None else n_rows * (2 * N_DIMS + 4))
    with atomic_folder(folder, needed_bytes=n_bytes) as place:
        found: Mapping[str, npt.NDArray[Any]] = arrays(corpus.tokens, text.vocab_size, progress=progress)
        if read is not None:
            keys = read(corpus.tokens, text.vocab_size)
            info = replace(info, dense=KeysInfo(model_hash, len(keys.vectors), keys.vectors.shape[1], len(keys.mean)))
            found = {**found, **{file: getattr(keys, file) for file in _KEYS}}
        for file, array in found.items():
            _save(place / f"{file}.npy", array)
        meta = {key: value for key, value in asdict(info).items() if key != "name"}  # the folder has it
        (place / _META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
    return info


def arrays(tokens: I32, vocab_size: int, *, progress: Progress | None = None) -> dict[str, I32]:
    """What a ``Store`` of ``tokens`` holds, by name."""
    n_each = np.bincount(tokens[tokens != SEPARATOR], minlength=vocab_size)
    n_documents = len(tokens) - int(n_each.sum())
    starts = np.concatenate(([n_documents], n_documents + np.cumsum(n_each))).astype(np.int32)
    return {"tokens": tokens, "suffixes": suffix_array(tokens, progress=progress), "starts": starts}


def suffix_array(tokens: I32, *, progress: Progress | None = None) -> I32:
    """(N,) int32: where the suffixes of ``tokens`` start, in lexicographic order.

    ``tokens`` is empty or ends in ``SEPARATOR``. A suffix ends at its first separator; of those that are equal up to
    there the earlier comes first. Prefix doubling (Manber, Myers 1993) of the suffixes that are not yet alone in their
    group (Larsson, Sadakane 2007), each round a sort of integers: O(N log^2 N), with as many rounds as the longest
    repeated passage has doublings.
    """
    n = len(tokens)
    tell = progress or _silent
    tell("sorting", 0, n)
    assert n == 0 or tokens[-1] == SEPARATOR, "the last document has no end"
    ends = tokens == SEPARATOR
    n_ends = int(np.count_nonzero(ends))
    # Ranks are places in the array: a group has that of its first member. Separators differ from each other.
    key = np.where(ends, np.cumsum(ends) - 1, tokens.astype(np.int64) + n_ends)
    order = np.argsort(key)
    rank = np.empty(n, np.int64)
    unsorted = _regroup(key[order], order, np.arange(n), rank)
    length = 1
    while len(unsorted):
        tell("sorting", n - len(unsorted), n)
        members = order[unsorted]
        # In a group nobody has met a separator yet, so ``length`` further on there is still a token.
        key = rank[members] * n + rank[members + length]
        by_key = np.argsort(key)
        order[unsorted] = members[by_key]
        unsorted = _regroup(key[by_key], order[unsorted], unsorted, rank)
        length *= 2
    tell("sorting", n, n)
    return order.astype(np.int32)


def _regroup(
    key: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    rank: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Rank the ``members`` at ``places``, sorted by ``key``; the places of those that share their key with others."""
    starts = np.ones(len(key), bool)
    starts[1:] = key[1:] != key[:-1]
    rank[members] = places[starts][np.cumsum(starts) - 1]
    alone = starts & np.append(starts[1:], True)
    shared: npt.NDArray[np.int64] = places[~alone]
    return shared


def load(name: str, *, home: Path | None = None) -> Store:
    """Map a store into memory. Raises ``OptionError`` for one that is not here, damaged, or of another version."""
    folder = stores_home(home) / name
    if not _NAME.fullmatch(name) or not folder.is_dir():
        raise OptionError(f"`{name}` is no store here: {choices(home)}")
    return _mapped(folder)


def opened(drafter: str, name: str, *, home: Path | None = None) -> Store:
    """The store that ``drafter:name`` asks for. Raises ``OptionError`` as ``load`` does, and where there is no name."""
    if not name:
        raise OptionError(f"`drafter` is {drafter!r}, which needs a store ({drafter}:NAME): {choices(home)}")
    return load(name, home=home)


def _mapped(folder: Path) -> Store:
    info = _info(folder)
    n_rows, dense, keys = info.n_tokens + info.n_documents, info.dense, None
    if dense is not None:
        keys = Keys(
            mean=_map(folder, "mean", (dense.n_hidden,), np.float32),
            projection=_map(folder, "projection", (dense.n_hidden, dense.n_dims), np.float32),
            vectors=_map(folder, "vectors", (dense.n_keys, dense.n_dims), np.float16),
            places=_map(folder, "places", (dense.n_keys,)),
            buckets=_map(folder, "buckets", (info.vocab_size + 1,)),
        )
    tokens, suffixes = (_map(folder, file, (n_rows,)) for file in ("tokens", "suffixes"))
    store = Store(info, tokens, suffixes, _map(folder, "starts", (info.vocab_size + 1,)), keys)
    _check_bounds(folder, store)
    return store


def _map(folder: Path, file: str, shape: tuple[int, ...], kind: type[np.generic] = np.int32) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(folder / f"{file}.npy", mmap_mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(folder, str(error)) from error
    if array.shape != shape or array.dtype != kind:
        raise _damaged(folder, f"{file} are {array.dtype} {array.shape}, not {np.dtype(kind)} {shape}")
    return array


def _check_bounds(folder: Path, store: Store) -> None:
    """Raises ``OptionError`` where an array points outside another one. Nobody checks the order of the suffixes."""
    info, n_rows = store.info, len(store.tokens)
    ranges = [
        ("tokens", store.tokens, SEPARATOR, info.vocab_size - 1),
        ("last of tokens", store.tokens[-1:], SEPARATOR, SEPARATOR),
        ("suffixes", store.suffixes, 0, n_rows - 1),
    ]
    rising = [("starts", store.starts, info.n_documents, n_rows)]
    if store.keys is not None:
        ranges.append(("places", store.keys.places, 0, n_rows - 2))  # a token follows each
        rising.append(("buckets", store.keys.buckets, 0, len(store.keys.places)))
    for file, array, low, high in ranges:
        if len(array) and not low <= int(array.min()) <= int(array.max()) <= high:
            raise _damaged(folder, f"{file} are not in {low} … {high}")
    for file, array, first, last in rising:
        if (array[0], array[-1]) != (first, last) or np.any(array[1:] < array[:-1]):
            raise _damaged(folder, f"{file} do not rise from {first} to {last}")


def check_vocabulary(store: Store, text: Text) -> None:
    """Raises ``VocabularyError`` where the ids of ``store`` mean other pieces than those of ``text``."""
    own = tokenizer_hash(text)
    if store.info.tokenizer != own:
        name, model = store.info.name, store.info.model
        raise VocabularyError(
            f"store `{name}` has the tokens of `{model}` (vocabulary {store.info.tokenizer[:8]}), but "
            f"`{text.path.name}` has others ({own[:8]}): build one for it with {HOW_TO_BUILD}"
        )


def check_dense(store: Store) -> KeysInfo:
    """Raises ``OptionError`` for a store without keys."""
    if store.info.dense is None:
        raise OptionError(f"store `{store.info.name}` has no keys: build one that has with {HOW_TO_BUILD_DENSE}")
    return store.info.dense


def check_model(store: Store, model_hash: str, said: str) -> None:
    """Raises ``OptionError`` unless the keys of a store are hidden states of the model of ``model_hash``, which people
    know as ``said``.
    """
    name, dense = store.info.name, check_dense(store)
    if dense.model_hash != model_hash:
        raise OptionError(
            f"store `{name}` holds hidden states of `{store.info.model}` ({dense.model_hash[:8]}), and `{said}` is "
            f"another model ({model_hash[:8]}): build one for it with {HOW_TO_BUILD_DENSE}"
        )


def choices(home: Path | None = None) -> str:
    """What a user can do who named no store, or one that is not here."""
    names = ", ".join(store.name for store in local_stores(home))
    return f"give one of {names}, or build one with {HOW_TO_BUILD}" if names else f"build one with {HOW_TO_BUILD}"


def local_stores(home: Path | None = None) -> list[LocalStore]:
    """Every store folder below WAGER_HOME, by name."""
    root = stores_home(home)
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if path.is_dir() and not is_partial(path):
            n_bytes = sum(f.stat().st_size for f in path.iterdir() if f.is_file())
            try:
                found.append(LocalStore(path.name, path, n_bytes, _mapped(path).info, None))
            except OptionError as error:
                found.append(LocalStore(path.name, path, n_bytes, None, str(error)))
    return found


def remove(name: str, *, home: Path | None = None) -> None:
    """Delete a store, damaged ones too; who has it mapped keeps it. Raises ``OptionError`` for one that is not here."""
    if name not in [store.name for store in local_stores(home)]:
        raise OptionError(f"`{name}` is no store here: {choices(home)}")
    folder = stores_home(home) / name
    doomed = folder.with_name(f".{name}.0.removed.partial")  # the name of a left-over: swept should we be stopped here
    try:
        if doomed.exists():  # an earlier removal was stopped
            shutil.rmtree(doomed)
        folder.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise OptionError(f"`{name}` cannot be removed ({error.strerror}): check who owns `{folder}`") from error


def _info(folder: Path) -> StoreInfo:
    try:
        meta: dict[str, Any] = json.loads((folder / _META).read_text("utf-8"))
        version, sources = meta["version"], tuple(_typed(Source(**source)) for source in meta.pop("sources"))
        keys = meta.pop("dense", None)
        dense = None if keys is None else _typed(KeysInfo(**keys))
        made = StoreInfo(**meta, name=folder.name, sources=sources, dense=dense) if version == FORMAT else None
        info = None if made is None else _typed(made)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(folder, f"{_META}: {error}") from error
    if info is None:
        raise _damaged(folder, f"version {version}, this is {FORMAT}")
    return info


def _typed(info: _Info) -> _Info:
    """``info``, whose strings are strings and whose counts are counts. Raises TypeError."""
    for field in fields(info):
        value = getattr(info, field.name)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if (field.type == "int" and not is_count) or (field.type == "str" and not isinstance(value, str)):
            raise TypeError(f"{field.name} is {value!r}")
    return info


def _damaged(folder: Path, reason: str) -> OptionError:
    return OptionError(f"store `{folder.name}` cannot be read ({reason}): build it again with --force, or remove it")


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """An .npy file. numpy itself would not say why a write fails: its errors have no errno."""
    rows = np.ascontiguousarray(array)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.write(rows.data)


def _silent(what: str, done: int, total: int) -> None:
    pass
