"""The picture of `wager decide` takes whatever a model may write."""

from __future__ import annotations

import warnings
from pathlib import Path

from wager.decide.answered import Answered
from wager.decide.law import Law
from wager.decide.plot import Picture


def test_values_of_any_text_and_sets_are_drawn_without_a_word(tmp_path: Path) -> None:
    """An unfinished formula stopped it, and what cannot be printed or is very long made it warn."""
    texts = ["$x^{$", "tab\tand line\n", "long " * 400, "plain"]
    for name, values in (("texts", texts), ("sets", [frozenset(texts[:2]), frozenset()])):
        picture = Picture(frozenset((1, 2)))
        for number in (1, 2):
            row = Answered(part="data", number=number, line=number + 1, target=values[1], greedy=values[0])
            picture.add(row, Law.of(values), {"rule": values[1]})
        path = tmp_path / f"{name}.png"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            picture.draw(path)
        assert path.read_bytes().startswith(b"\x89PNG")
