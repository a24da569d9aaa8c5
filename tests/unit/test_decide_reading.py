"""What may be answered, and how answers and targets are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from wager.decide.candidates import Candidates, parse_labels, read_candidates
from wager.decide.metrics import metric_named
from wager.decide.reading import Reading, kind_of
from wager.errors import OptionError


def test_a_grid_has_exact_values_and_the_ways_to_write_them() -> None:
    grid = parse_labels("-0.2..0.2:0.1")
    assert grid.values == (-0.2, -0.1, 0.0, 0.1, 0.2)
    assert [text for value, text in grid.pairs if value == 0] == ["0", "0.0"]
    assert len(parse_labels("0..5:0.25").values) == 21
    assert [text for value, text in parse_labels("0..5:0.25").pairs if value == 2.5] == ["2.5", "2.50"]
    assert [text for value, text in parse_labels("9..11").pairs if value == 10] == ["10", "10.0"]
    assert len({text for _, text in parse_labels("-5..5:0.25").pairs}) == len(parse_labels("-5..5:0.25").pairs)


def test_labels_are_numbers_if_all_are_or_if_each_is_given_one() -> None:
    assert parse_labels("1,2.5, 10").pairs == ((1.0, "1"), (2.5, "2.5"), (10.0, "10"))
    assert parse_labels("1,2,many").pairs == (("1", "1"), ("2", "2"), ("many", "many"))
    named = parse_labels("very bad=-2,bad=-1,poor=-1,good=1")
    assert named.pairs[0] == (-2.0, "very bad")
    assert named.values == (-2.0, -1.0, 1.0)
    assert named.spaced().pairs[2] == (-1.0, " poor")
    assert named.numbers == named.values
    assert parse_labels("a,b").numbers == ()


def test_candidates_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("very bad\t-2\n\nso, so=1\t0\n", encoding="utf-8")
    assert read_candidates(path).pairs == ((-2.0, "very bad"), (0.0, "so, so=1"))
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(OptionError, match="not UTF-8"):
        read_candidates(path)
    path.write_text("\n")
    with pytest.raises(OptionError, match="no candidates"):
        read_candidates(path)


@pytest.mark.parametrize(
    ("labels", "text", "answer"),
    [
        ("0..5", " 4\n", 4.0),
        ("0..5", "4/5, I think", 4.0),
        ("0..5", "about 7", 5.0),
        ("0..5", "none", None),
        ("bad=-1,very bad=-2,good=1", " Very bad!", -2.0),
        ("bad=-1,very bad=-2,good=1", "badly made", None),
        ("bad=-1,very bad=-2,good=1", "it is bad", None),
        ("yes,no", "No.", "no"),
        ("yes,no", "", None),
    ],
)
def test_answers_among_candidates(labels: str, text: str, answer: object) -> None:
    candidates = parse_labels(labels)
    kind = "numbers" if candidates.numbers else "labels"
    assert Reading(kind, candidates).answer(text) == answer


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        ("numbers", "3 + 4 = 7\n#### 1,200", 1200.0),
        ("labels", "so the answer is $18.00.", 18.0),
        ("labels", "It is\nParis.", "paris"),
        ("sets", "red, Blue; red", frozenset({"red", "blue"})),
        ("texts", " a text \n", "a text"),
        ("texts", " \n", None),
    ],
)
def test_free_answers(kind: str, text: str, answer: object) -> None:
    assert Reading(kind, None).answer(text) == answer  # type: ignore[arg-type]


def test_targets_are_labels_of_those_given_or_numbers() -> None:
    assert Reading("labels", parse_labels("yes,no")).target(" NO ") == "no"
    assert Reading("labels", parse_labels("yes,no")).target("maybe") is None
    named = Reading("numbers", parse_labels("bad=-1,good=1"))
    assert (named.target("good"), named.target("0.25"), named.target("fine")) == (1.0, 0.25, None)
    assert Reading("numbers", parse_labels("0..5")).target("7.5") == 7.5


def test_where_only_labels_count_what_lies_between_is_no_answer() -> None:
    reading = Reading("numbers", parse_labels("0..5"), only_labels=True)
    assert (reading.answer("4"), reading.answer("3.5"), reading.answer("7")) == (4.0, None, 5.0)
    assert (reading.target("4.0"), reading.target("3.5"), reading.target("7")) == (4.0, None, None)
    assert Reading("numbers", parse_labels("no=0,No=0")).answer("NO") == 0.0  # two ways to write one value


def test_metrics_that_do_not_go_together_are_refused() -> None:
    def kind(names: str, candidates: Candidates | None) -> str:
        return kind_of(tuple(metric_named(name) for name in names.split(",")), candidates)

    assert kind("rmse,accuracy", parse_labels("0..5")) == "numbers"
    assert kind("accuracy,brier", parse_labels("a,b")) == "labels"
    assert kind("accuracy", None) == "labels"
    assert kind("f1,hamming", None) == "sets"
    with pytest.raises(OptionError, match="say what each stands for"):
        kind("rmse", parse_labels("a,b"))
    with pytest.raises(OptionError, match="in two runs"):
        kind("f1", parse_labels("a,b"))
    with pytest.raises(OptionError, match="in two runs"):
        kind("rmse,rouge-l", None)
