"""The journal outlives crashes and refuses other settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from wager.errors import OptionError
from wager.journal import Journal, read

FIRST = {"settings": {"n": 1}}
WORDS = {"holds": "answers", "remedy": "give another --out"}


def test_a_row_cut_within_a_character_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path, FIRST, **WORDS)
    journal.add({"text": "é" * 40_000})
    journal.close()
    whole = path.read_bytes()
    journal = Journal(path, FIRST, **WORDS)
    journal.add({"text": "日" * 40_000})
    journal.close()
    path.write_bytes(path.read_bytes()[:-5])  # killed in the middle of a character, far from the last line's start
    again = Journal(path, FIRST, **WORDS)
    assert [row["text"][0] for row in again] == ["é"]
    again.close()
    assert path.read_bytes() == whole


def test_a_journal_cut_in_its_first_line_starts_over(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"kind": "prov')
    journal = Journal(tmp_path / "j", FIRST, **WORDS)
    journal.close()
    assert not journal.resumed
    assert list(read(tmp_path / "j")) == [{"kind": "provenance", **FIRST}]


def test_other_settings_are_refused_with_both_values(tmp_path: Path) -> None:
    Journal(tmp_path / "j", FIRST, **WORDS).close()
    with pytest.raises(OptionError, match="holds answers with n `1`, not `2`: give another --out"):
        Journal(tmp_path / "j", {"settings": {"n": 2}}, **WORDS)
    with pytest.raises(OptionError, match="cannot be written"):
        Journal(tmp_path / "none" / "j", FIRST, **WORDS)


def test_a_journal_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    first = Journal(tmp_path / "j", FIRST, **WORDS)
    with pytest.raises(OptionError, match="in use by another process"):
        Journal(tmp_path / "j", FIRST, **WORDS)
    first.close()
    Journal(tmp_path / "j", FIRST, **WORDS).close()
