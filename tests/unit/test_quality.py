"""The quality table: what is zero for a model against itself, what one knows of another, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wager.bench import quality
from wager.cli import main
from wager.errors import OptionError
from wager.models.fidelity import EXACT_PROPERTIES, imported_logits, log_softmax
from wager.text import Text


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog and then the other one sits in the sun " * 30)
    return path


def test_a_model_is_its_own_reference(tiny_llama: Path, text: Path) -> None:
    table = quality.measure([str(tiny_llama)], profiles=["reference"], text=text, n_prompts=0, progress=silent)
    row = table.rows[0]
    assert row.kl == pytest.approx(0, abs=1e-9)
    assert row.agreement == 1
    assert row.perplexity == pytest.approx(table.perplexity)
    assert row.plain_tokens_per_s is None


def test_numbers_are_those_of_the_stateful_graph(tiny_llama: Path, text: Path) -> None:
    """Perplexity by another path: the unpaged graph, window by window."""
    other = tiny_llama.parent / "tiny-llama-b"
    table = quality.measure(
        [str(other)], profiles=["reference"], reference=str(tiny_llama), text=text, n_prompts=0, progress=silent
    )
    ids = Text(tiny_llama).encode(text.read_text())
    windows = [ids[i : i + quality.WINDOW] for i in range(0, len(ids), quality.WINDOW)]
    assert len(windows) > 1
    nll, kl, n = 0.0, 0.0, 0
    for window in windows:
        p, q = (log_softmax(imported_logits(f, window, EXACT_PROPERTIES))[:-1] for f in (tiny_llama, other))
        nll -= float(q[np.arange(len(q)), window[1:]].sum())
        kl += float((np.exp(p) * (p - q)).sum())
        n += len(q)
    assert table.n_tokens == n
    assert table.rows[0].perplexity == pytest.approx(math.exp(nll / n), rel=1e-4)
    assert table.rows[0].kl == pytest.approx(kl / n, rel=1e-3)
    assert table.rows[0].kl > 0.01


def test_u8_keys_and_values_take_half_the_memory_and_lose_something(tiny_llama: Path, text: Path) -> None:
    table = quality.measure([str(tiny_llama)], profiles=["fast", "u8"], text=text, n_prompts=0, progress=silent)
    fast, u8 = table.rows
    assert (fast.profile, u8.profile) == ("fast", "u8")
    assert u8.kv_bytes_per_token < 0.75 * fast.kv_bytes_per_token  # heads of 32: scales weigh most there
    assert u8.kl > fast.kl


def test_the_command_times_what_it_compares(tiny_llama: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--text", str(text), "--prompts", "1", "-n", "8", "--threads", "1"]
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "quality", str(tiny_llama), *args, "--json"])
    assert exit_.value.code == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["plain_tokens_per_s"] > 0
    assert row["spec_tokens_per_s"] > 0
    assert row["same_text"] is True


def test_the_table_leaves_out_what_was_not_timed() -> None:
    row = quality.Row(
        model="m", profile="fast", weights="int8-32", n_bytes=2_000_000, kv_bytes_per_token=23_040, perplexity=9.87,
        kl=0.0123, agreement=0.955,
    )  # fmt: skip
    table = quality.Table(reference="m", perplexity=9.5, text="t.txt", n_tokens=10, clock="cpu", rows=[row])
    assert "tok/s" not in quality.markdown(table)
    timed = replace(table, rows=[replace(row, plain_tokens_per_s=70.4, spec_tokens_per_s=99.6, same_text=False)])
    assert "processor time" in quality.markdown(timed)
    cells = [cell.strip() for cell in quality.markdown(timed).splitlines()[-1].split("|")[1:-1]]
    assert cells == ["m", "int8-32", "fast", "2.0 MB", "23.0 kB", "9.87", "0.012", "95.5%", "70", "100", "no"]


def test_refusals(tiny_llama: Path, tmp_path: Path) -> None:
    def measured(*models: str, text: Path | None = None, **options: object) -> None:
        quality.measure(models, text=text, progress=silent, **options)

    short = tmp_path / "short.txt"
    short.write_text("a")
    mine = str(tiny_llama)
    with pytest.raises(OptionError, match="give a longer one"):
        measured(mine, text=short)
    with pytest.raises(OptionError, match="cannot be read as UTF-8"):
        measured(mine, text=tmp_path / "nowhere.txt")
    with pytest.raises(OptionError, match="another vocabulary"):
        measured(mine, str(tiny_llama.parent / "tiny-qwen3"), n_prompts=0)
    with pytest.raises(OptionError, match="`profile` is 'slow'"):
        measured(mine, profiles=["slow"])
    with pytest.raises(OptionError, match="--clock"):
        measured(mine, clock="sun")
    with pytest.raises(OptionError, match="--prompts"):
        measured(mine, n_prompts=-1)
