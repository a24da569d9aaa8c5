"""From text to an answer: numbers found in it, and a form in which equal answers are equal.

``Law.of([canonical(text) for text in texts])`` counts votes by numeric equality rather than by string: self-consistency
(Wang et al. 2203.11171). All functions give None where there is no answer; such a draw has no vote.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction
from typing import Literal

Which = Literal["first", "last"]
Outside = Literal["drop", "clip"]

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d{1,3})?|\.\d+(?:e[+-]?\d{1,3})?"
_CURRENCY = "[$£€¥]"
# An amount: a sign, then "1 1/2", or a number and perhaps another that it is divided by.
_AMOUNT = (
    rf"(?P<sign>[-+]?)\s?{_CURRENCY}?\s?(?P<sign2>[-+]?)(?:(?P<whole>\d+)\s+(?=\d+\s*/\s*\d))?"
    rf"(?P<top>{_DIGITS})(?:\s*/\s*(?P<bottom>{_DIGITS}))?"
)
_ORDINAL = r"(?!(?:st|nd|rd|th)\b)"
# In running text an amount starts no date, time or version, and is not the end of a word or of another number.
_IN_TEXT = re.compile(rf"(?<![\w.,/])(?<!\d:){_AMOUNT}(?!\d|[.,/:]\d){_ORDINAL}", re.IGNORECASE)
# A whole answer may have a unit: signs or letters at once ("5km", "12%", "60 km/h"), then up to three words.
_UNIT = rf"\s?(?:[%°{_CURRENCY[1:-1]}]\s?[a-z]?|{_ORDINAL}[a-zµ]{{1,4}}[23]?(?:/[a-z]{{1,3}}[23]?)?)?"
_ALONE = re.compile(rf"{_AMOUNT}{_UNIT}(?:\s+[^\W\d]+){{0,3}}", re.IGNORECASE)
_MARKS = re.compile(r"####|\banswer\s*(?:is|:|=)\s*:?", re.IGNORECASE)
_AROUND = " \t\r\n,;:!?*`'\"“”‘’()[]{}\\"
_LONGEST = 400  # characters of an amount: float's range has fewer digits


def canonical(text: str) -> float | str | None:
    """The answer as a number if it is one, else in lower case, with single spaces and no marks around it.

    "1/2", "0.5", "0.50" and ".5" are one answer, as are "$1,200" and "1200 dollars": currency and units are taken
    off, whatever they are, and so is "%" ("12%" is 12). What stands before the last "=" is taken off a number.
    """
    tidy = _tidy(text).rstrip(_AROUND + ".").lstrip(_AROUND)
    tidy = tidy if re.match(r"\.\d", tidy) else tidy.lstrip(_AROUND + ".")
    number = alone(tidy.rpartition("=")[2])
    return number if number is not None else (" ".join(tidy.casefold().split()) or None)


def alone(text: str) -> float | None:
    """The number that ``text`` is, sign, currency, fraction and unit included; None for any other text."""
    found = _ALONE.fullmatch(_tidy(text).strip())
    return _value(found, fractions=True) if found else None


def answer_in(text: str) -> str | None:
    r"""What follows the last "####", "answer is" or "answer:" on its line, or stands in the last \boxed{...}.

    A text without any of these gives its last line that is not blank.
    """
    boxed = _boxed(text)
    if boxed is not None:
        return boxed
    marks = list(_MARKS.finditer(text))
    lines = [line.strip() for line in text[marks[-1].end() if marks else 0 :].splitlines() if line.strip()]
    if not lines:
        return None
    return lines[0] if marks else lines[-1]


def number_in(
    text: str,
    *,
    which: Which = "last",
    low: float = -math.inf,
    high: float = math.inf,
    outside: Outside = "drop",
    fractions: bool = True,
) -> float | None:
    """The first or last number in ``text``; one outside [low, high] is no answer ("drop") or the nearer end ("clip").

    "4/5" is 0.8; without ``fractions`` it is 4, as in a rating.
    """
    matches = list(_IN_TEXT.finditer(_tidy(text)))
    values = [value for found in matches if (value := _value(found, fractions=fractions)) is not None]
    if not values:
        return None
    value = values[0 if which == "first" else -1]
    if low <= value <= high:
        return value
    return min(max(value, low), high) if outside == "clip" else None


def _tidy(text: str) -> str:
    r"""Compatibility forms written out: ½ as 1/2 (5½ as 5 1/2), wide digits, every minus as "-", \frac{1}{2} as 1/2."""
    plain = re.sub(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", re.sub(r"\\([$%])", r"\1", text))
    spaced = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", plain)
    return unicodedata.normalize("NFKC", spaced).translate({0x2212: "-", 0x2010: "-", 0x2013: "-", 0x2044: "/"})


def _value(found: re.Match[str], *, fractions: bool) -> float | None:
    """The amount's value, exact until the last step; None where it is none (x / 0, or beyond what a float holds)."""
    if len(found[0]) > _LONGEST or (found["sign"] and found["sign2"]):
        return None
    parts = {name: Fraction((found[name] or "").replace(",", "") or "0") for name in ("whole", "top", "bottom")}
    value = parts["top"]
    if found["bottom"] and fractions:
        if not parts["bottom"]:
            return None
        value = parts["whole"] + parts["top"] / parts["bottom"]
    elif found["whole"]:
        value = parts["whole"]
    try:
        return float(-value if "-" in (found["sign"], found["sign2"]) else value)
    except OverflowError:
        return None


def _boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    body, depth = text[start + len("\\boxed{") :], 1
    for i, char in enumerate(body):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if not depth:
            return body[:i].strip()
    return body.strip()
