"""Rows and prompts: what is read, where what cannot be read stands, and what templates ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from wager.decide.table import Table
from wager.decide.template import Template, read_template
from wager.errors import OptionError


def written(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def rows(path: Path) -> list[tuple[int, int, dict[str, object], str]]:
    return [(row.number, row.line, dict(row.values), row.problem) for row in Table(path)]


def test_csv_has_quotes_and_line_ends_within_fields(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", '\ufeffid,text\r\n1,"a ""b"", c\nd"\r\n\r\n2,é\r\n')
    assert Table(path).columns == ["id", "text"]
    assert rows(path) == [(1, 2, {"id": "1", "text": 'a "b", c\nd'}, ""), (2, 5, {"id": "2", "text": "é"}, "")]


def test_a_quote_in_tsv_is_a_character(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", 'id\ttext\n1\t"  the player\n2\ta, "b"\n')
    assert [row[2]["text"] for row in rows(path)] == ['"  the player', 'a, "b"']


def test_json_lines_keep_their_types(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"n": 1, "t": "x"}\n\n{"n": [2, null], "t": "y"}\n')
    assert rows(path) == [(1, 1, {"n": 1, "t": "x"}, ""), (2, 3, {"n": [2, None], "t": "y"}, "")]
    assert [Template("{n}").fill(row.values) for row in Table(path)] == ["1", "[2, null]"]


def test_parquet_is_read(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"n": [1.5, None], "t": ["x", "y"]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [(1, 1, {"n": 1.5, "t": "x"}, ""), (2, 2, {"n": None, "t": "y"}, "")]
    with pytest.raises(OptionError, match="no readable Parquet"):
        Table(written(tmp_path / "b.parquet", "PAR1, or so it says"))


@pytest.mark.parametrize(
    ("name", "data", "line", "problem"),
    [
        ("a.csv", b"a,b\n1,2\n1,2,3\n", 3, "3 fields, the header 2"),
        ("a.csv", b"a,b\n1,2\ncaf\xe9,2\n3,4\n", 3, "byte 0xe9 is not UTF-8"),
        ("a.csv", b'a,b\n1,2\n1,"x\n3,4\n', 3, "unexpected end"),
        ("a.tsv", b"a\tb\n1\t2\n1\n", 3, "1 fields"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', 2, "not JSON"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', 2, "no JSON object"),
        ("a.jsonl", b'{"a": 1}\n' + b"[" * 200_000 + b"\n", 2, "not JSON"),
        ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', 2, "byte 0xff"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(
    tmp_path: Path, name: str, data: bytes, line: int, problem: str
) -> None:
    bad = [row for row in rows(written(tmp_path / name, data)) if row[3]]
    assert [(row[1], row[2]) for row in bad] == [(line, {})]
    assert problem in bad[0][3]


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"\n\n", "is empty"),
        ("a.csv", "a,b\n".encode("utf-16"), "UTF-16"),
        ("a.csv", b"a,b,a\n1,2,3\n", "column `a` twice"),
        ("a.csv", b"a,\xff\n1,2\n", "header .* 0xff"),
        ("a.xls", b"a\n", "unknown kind"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, data: bytes, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        Table(written(tmp_path / name, data))


def test_a_table_that_is_not_there_and_a_column_that_is_not(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not there"):
        Table(tmp_path / "a.csv")
    table = Table(written(tmp_path / "a.csv", "a,b\n1,2\n"))
    with pytest.raises(OptionError, match=r"--target `c` is no column .* a, b"):
        table.require("c", "--target")


def test_a_template_is_filled_once() -> None:
    template = Template("{{x}} {a b}: {c}{a b}}}")
    assert template.fields == ("a b", "c")
    assert template.fill({"a b": "{c}", "c": 1.5}) == "{x} {c}: 1.5{c}}"
    template.check(["c", "a b"])
    with pytest.raises(OptionError, match=r"column \{c\}, and the data has a b, d"):
        template.check(["a b", "d"])


@pytest.mark.parametrize("text", ["a {b", "a } {b}", "{} {b}", "no field", "{{b}}"])
def test_braces_that_name_nothing_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"names no column|no \{column\}"):
        Template(text)


def test_a_template_comes_from_a_file(tmp_path: Path) -> None:
    assert read_template(written(tmp_path / "t", "\ufeffQ: {q}\r\nA:\r\n")).text == "Q: {q}\nA:"
    for data, match in ((b"", "is empty"), (b"\xff{a}", "not UTF-8"), (b"{", "line 1 has the brace")):
        with pytest.raises(OptionError, match=match):
            read_template(written(tmp_path / "t", data))
    with pytest.raises(OptionError, match="cannot be read"):
        read_template(tmp_path / "none")
