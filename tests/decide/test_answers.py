"""What counts as the same answer, and which number a text gives."""

from __future__ import annotations

import pytest

from wager.decide.answers import alone, answer_in, canonical, number_in
from wager.decide.law import Law
from wager.decide.rules import decide, rule_for

SAME = [
    ["1/2", "0.5", "0.50", ".5", "½", " 50 / 100", "(.5)", r"\frac{1}{2}", r"$\frac{1}{2}$", "x = 1/2"],
    ["1200", "$1,200", "1200 dollars", "1,200.00", "1.2e3", "£1,200.", "**1200**", "１２００", r"\$1200"],
    ["-5", "−5", "$-5", "-$5", "-5.0", "- 5"],
    ["12%", "12 %", "12", r"12\%", "12 percent"],
    ["5.5", "5½", "5 1/2", "11/2", "5 1/2 cups"],
    ["60", "60 km/h", "60km", "60°", "60 miles per hour"],
    ["yes", "Yes.", " YES ", "'yes'", "yes!"],
    ["new york", "New  York", "new york."],
]
TEXTS = ["4th", "12:30", "3.14.15", "1,2345", "5 or 6", "1/0", "1e999", "about 5", "1 2", "9" * 500, "--5"]


@pytest.mark.parametrize("forms", SAME, ids=lambda forms: forms[0])
def test_forms_of_one_answer_are_equal(forms: list[str]) -> None:
    assert len({canonical(form) for form in forms}) == 1, [canonical(form) for form in forms]


def test_different_answers_stay_different() -> None:
    assert len({canonical(forms[0]) for forms in SAME}) == len(SAME)
    assert canonical("0.333") != canonical("1/3")


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:10])
def test_what_is_no_number_stays_a_text(text: str) -> None:
    assert isinstance(canonical(text), str)
    assert alone(text) is None


def test_blank_answers_are_none() -> None:
    assert [canonical(text) for text in ("", "  ", "...", "\n")] == [None] * 4


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("I think 3, no 4.", 3, 4),
        ("at 12:30 we had 5 of them", 5, 5),
        ("v2 costs $3.50.", 3.5, 3.5),
        ("It is 5-3=2", 5, 2),
        ("$1,000,000 in 1/2/2024", 1e6, 1e6),
        ("the 3rd of 7", 7, 7),
        ("score:4", 4, 4),
        ("from -3 degrees to 3-4", -3, 4),
        ("1,2345 and 3.14.15", None, None),
        ("none", None, None),
    ],
)
def test_numbers_in_running_text(text: str, first: float | None, last: float | None) -> None:
    assert number_in(text, which="first") == first
    assert number_in(text) == last


def test_numbers_outside_the_range_are_dropped_or_clipped() -> None:
    assert number_in("7", low=0, high=5) is None
    assert number_in("7", low=0, high=5, outside="clip") == 5
    assert number_in("-7", low=0, high=5, outside="clip") == 0
    assert number_in("4/5") == 0.8
    assert number_in("4/5", fractions=False) == 4


def test_the_answer_stands_after_the_mark() -> None:
    assert answer_in("2 + 2\n#### 4\nmore") == "4"
    assert answer_in("The answer is 5.\n") == "5."
    assert answer_in("Answer: 1 Final answer: 2") == "2"
    assert answer_in(r"so \boxed{\frac{1}{2}} it is") == r"\frac{1}{2}"
    assert answer_in(r"cut off: \boxed{12") == "12"
    assert answer_in("first\n\nlast\n") == "last"
    assert answer_in("") is None
    assert answer_in("answer:") is None


def test_votes_are_counted_by_value() -> None:
    """ "7" has most strings, one half has most votes; what did not parse has none."""
    texts = ["7", "1/2", "7", "0.5", "50/100", "", "  "]
    law = Law.of([canonical(text) for text in texts])
    assert decide(law, rule_for("accuracy")).value == 0.5
    assert law.covered == pytest.approx(5 / 7)
