"""`wager store` on a tiny model: build, list, draft from it, remove; and what is said when that cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wager import stores

Wager = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n", "utf-8")
    line = {"prompt": "the sea", "response": "and the sun"}
    (tmp_path / "b.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    return [str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")]


def test_built_listed_and_removed(wager: Wager, tiny_llama: Path, files: list[str]) -> None:
    assert "none yet: `wager store build" in wager("store", "list").out
    built = wager("store", "build", "mine", "-m", str(tiny_llama), *files)
    assert (built.code, built.out) == (0, f"{stores.stores_home() / 'mine'}\n")
    store = stores.load("mine")
    for part in (
        "tokenising …",
        "in 2 documents",
        f"{store.info.n_tokens} tokens",
        "--drafter retrieval:mine or cacheback:mine",
    ):
        assert part in built.err
    shown = wager("store", "list").out
    for part in (str(stores.stores_home()), "mine", f"{store.info.n_tokens} tokens, 2 documents", str(tiny_llama)):
        assert part in shown
    found = json.loads(wager("store", "list", "--json").out)
    (described,) = found["stores"]
    assert (described["name"], described["problem"]) == ("mine", None)
    assert described["n_bytes"] > 4 * len(store.tokens)
    assert [source["path"] for source in described["info"]["sources"]] == files
    assert len(described["info"]["sources"][0]["sha256"]) == 64
    removed = wager("store", "remove", "mine")
    assert (removed.code, removed.err) == (0, "removed mine\n")
    assert json.loads(wager("store", "list", "--json").out)["stores"] == []


def test_text_is_identical_and_drafts_from_the_store_are_accepted(
    wager: Wager, tiny_llama: Path, tmp_path: Path
) -> None:
    """The store is the model's own answer to another seed and to this one; tokenising it gives most of its tokens."""
    args = ("run", "the sea and the sun", "-m", str(tiny_llama), "-t", "0.8", "-n", "80", "--json")
    lines = [
        {"prompt": "the sea and the sun", "response": json.loads(wager(*args, "--seed", s).out)["text"]} for s in "34"
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert wager("store", "build", "own", "-m", str(tiny_llama), str(tmp_path / "own.jsonl")).code == 0
    more = ("--seed", "3", "--compare", "--drafter", "retrieval:own", "--num-draft-tokens", "4")
    result = wager(*args, *more)
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["identical"]
    assert found["speculative"]["stats"]["n_accepted"] > 0


def test_a_dense_store_is_read_by_the_model(wager: Wager, tiny_llama: Path, files: list[str]) -> None:
    built = wager("store", "build", "mine", "--dense", "--threads", "2", "-m", str(tiny_llama), *files)
    assert (built.code, built.out) == (0, f"{stores.stores_home() / 'mine'}\n"), built.err
    for part in ("reading with the model …", "--drafter dense:mine, retrieval:mine or cacheback:mine"):
        assert part in built.err
    assert "tiny-llama, dense\n" in wager("store", "list").out
    (described,) = json.loads(wager("store", "list", "--json").out)["stores"]
    info = described["info"]
    assert 0 < info["dense"]["n_keys"] < info["n_tokens"]
    assert described["n_bytes"] > 2 * info["dense"]["n_keys"] * info["dense"]["n_dims"]
    args = ("run", "the sea and the sun", "-t", "0.8", "-n", "60", "--seed", "3", "--json", "--compare")
    for drafter in ("dense:mine", "lookup+dense:mine"):
        result = wager(*args, "-m", str(tiny_llama), "--drafter", drafter, "--num-draft-tokens", "4")
        assert result.code == 0, result.err
        assert json.loads(result.out)["identical"]
    other = wager(*args, "-m", str(tiny_llama.with_name("tiny-llama-b")), "--drafter", "dense:mine")
    assert other.code == 2
    assert "and `tiny-llama-b` is another model" in other.err


def test_wrong_stores_are_refused_before_a_model_is_loaded(wager: Wager, tiny_llama: Path, files: list[str]) -> None:
    assert wager("store", "build", "mine", "-m", str(tiny_llama), *files).code == 0
    for drafter, said in (
        ("retrieval", "needs a store (retrieval:NAME): give one of mine"),
        ("retrieval:other", "`other` is no store here: give one of mine"),
        ("lookup+retrieval:other", "`other` is no store here"),
        ("dense:other", "`other` is no store here"),
        ("dense:mine", "store `mine` has no keys: build one that has with `wager store build NAME --dense"),
        ("copy:int8", "the one kind of copy is int4"),
        ("lookup+copy:int4", "'copy:int4' runs a model"),
        ("lookup+lookup", "'lookup' is in it twice"),
        ("lookup+cacheback:1,x", "give cacheback"),
        ("lookup+cacheback:other", "`other` is no store here"),
    ):
        result = wager("run", "x", "-m", "nothing/here", "--drafter", drafter)
        assert (result.code, result.out) == (2, ""), drafter
        assert said in result.err, drafter


def test_a_damaged_store_is_listed_as_one(wager: Wager, tiny_llama: Path, files: list[str]) -> None:
    assert wager("store", "build", "mine", "-m", str(tiny_llama), *files).code == 0
    meta = stores.stores_home() / "mine" / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text("utf-8")) | {"n_tokens": "x"}), "utf-8")
    assert "cannot be read (meta.json: n_tokens is 'x')" in wager("store", "list").out
    refused = wager("run", "x", "-m", str(tiny_llama), "--drafter", "retrieval:mine")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines()[-1].startswith("error: store `mine` cannot be read (meta.json: n_tokens is 'x')")
    meta.unlink()
    assert "cannot be read (meta.json" in wager("store", "list").out
    (described,) = json.loads(wager("store", "list", "--json").out)["stores"]
    assert described["info"] is None
    assert "build it again with --force" in described["problem"]
    assert wager("store", "build", "mine", "--force", "-m", str(tiny_llama), *files).code == 0
    suffixes = stores.stores_home() / "mine" / "suffixes.npy"
    suffixes.write_bytes(suffixes.read_bytes()[:-4])
    assert "cannot be read (mmap" in wager("store", "list").out


def test_mistakes_are_one_line_and_leave_nothing(wager: Wager, tiny_llama: Path, files: list[str]) -> None:
    build = ("store", "build", "mine", "-m", str(tiny_llama))
    for args, said in (
        (("store", "build", "a/b", "-m", "nothing/here", *files), "`a/b` is no name for a store"),
        ((*build, *files, "nothere.txt"), "`nothere.txt` cannot be read"),
        (("store", "remove", "mine"), "`mine` is no store here: build one"),
        (("run", "x", "-m", str(tiny_llama), "--drafter", "retrieval"), "needs a store (retrieval:NAME): build one"),
    ):
        result = wager(*args)
        assert (result.code, result.out) == (2, ""), args
        assert said in result.err
        assert result.err.splitlines()[-1].startswith("error: ")
    assert stores.local_stores() == []
    assert wager(*build, *files).code == 0
    assert "`mine` is a store already" in wager(*build, *files).err
    assert wager(*build, "--force", files[0]).code == 0
    assert stores.load("mine").info.n_documents == 1


def test_ctrl_c_leaves_nothing(
    wager: Wager, tiny_llama: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stores, "suffix_array", stop)
    result = wager("store", "build", "mine", "-m", str(tiny_llama), *files)
    assert (result.code, result.out) == (130, "")
    assert list(stores.stores_home().iterdir()) == []
