"""Numbers, plots and page of a report, from rows with known times."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench_tools import Bench
from wager.bench.charts import PLOTS, linear, logarithmic
from wager.bench.journal import rows_of
from wager.bench.page import page
from wager.bench.report import markdown, sections
from wager.bench.stats import Percentiles, percentiles
from wager.bench.summary import Line, Summary, summarise

ROOT = Path(__file__).parents[2]
EMPTY = {"area", "base", "br", "circle", "col", "hr", "img", "input", "line", "link", "meta", "rect"}


@pytest.fixture
def measured(tmp_path: Path) -> Summary:
    bench = Bench(tmp_path, "plain,lookup,model:<b>&m,genai,llamacpp", plain=0.004, lookup=0.002)
    for name, runner in bench.runners.items():
        runner.settings = {"weights_bytes": 50_000_000, "forgets": not name.startswith("model")}
    bench.runners["llamacpp"].settings = {"weights_bytes": 25_000_000}
    bench.measure(repeats=2, bandwidth={"large_bytes_per_s": 25e9})
    return summarise(rows_of(tmp_path))


def test_percentiles_are_those_of_the_values() -> None:
    assert percentiles([]) is None
    assert percentiles([3.0]) == Percentiles(3, 3, 3, 1)
    assert percentiles(list(map(float, range(101)))) == Percentiles(50, 90, 99, 101)


def test_the_roofline_is_bytes_over_bandwidth(measured: Summary) -> None:
    lines = {line.method: line for line in measured.lines}
    assert lines["plain"].roofline_ms == pytest.approx(2.0)
    assert lines["plain"].of_roofline == pytest.approx(0.5)
    assert lines["lookup"].of_roofline == pytest.approx(1.0), "two tokens a reading"
    assert lines["llamacpp"].roofline_ms == pytest.approx(1.0), "of its own weights"
    assert lines["llamacpp"].gap_ms is None, "it tells a mean"
    text = markdown(measured)
    assert "at the 25.0 GB/s measured here" in text
    assert re.search(r"\| plain +\| 50 MB +\| 2.0 +\| 4.0 +\| 50%", text)


def test_a_measurement_without_a_bandwidth_has_no_roofline(tmp_path: Path) -> None:
    Bench(tmp_path, "plain,lookup").measure()
    summary = summarise(rows_of(tmp_path))
    assert all(line.of_roofline is None for line in summary.lines)
    assert "roofline" not in [section.name for section in sections(summary)]


def test_who_knows_repeated_prompts_is_said(measured: Summary) -> None:
    assert measured.keep_replayed == ["model:<b>&m"]
    assert "`model:<b>&m` knows repeated prompts" in markdown(measured)


def test_gaps_are_between_arrivals_and_depths_add_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup", lookup=0.0)  # all tokens at once
    bench.measure()
    line = summarise(rows_of(tmp_path)).lines[1]
    assert line.gap_ms is None
    assert line.accepted_by_depth == [[3, 9], [3, 3]]
    [table] = [s for s in sections(summarise(rows_of(tmp_path))) if s.name == "depths"]
    assert table.rows == [["plain", "0.33 of 9", "1.00 of 3"], ["lookup", "0.33 of 9", "1.00 of 3"]]


@pytest.mark.parametrize("values", [[1.0], [0.34, 5.31], [0.001], [130.0, 7.0], [99.0, 101.0], [1e-3, 1e4]])
def test_scales_hold_their_values(values: list[float]) -> None:
    for scale in (linear(values), logarithmic(values)):
        assert all(0 < scale(value) < 100 for value in values)
        assert 2 <= len(scale.ticks) <= 9
        assert sorted(map(scale, scale.ticks)) == [scale(tick) for tick in scale.ticks]
    assert linear(values)(0.0) < linear(values)(max(values))


class Outline(HTMLParser):
    """Titles, and whatever is wrong: tags that do not match, addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.titles: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        assert not {"src", "href", "onload"} & {name for name, _ in attrs}, attrs
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.titles.append(data)


def test_the_page_is_whole_and_needs_nothing_else(measured: Summary) -> None:
    text = page(measured)
    assert Outline(text).titles == ["m on chip, 2 cores", *(section.title for section in sections(measured))]
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert "model:&lt;b&gt;&amp;m" in text
    assert "<b>&" not in text
    assert text.count('role="img"') == len(PLOTS) + 2, "latency has three"
    for section in sections(measured):
        for row in section.rows:
            assert all(f">{cell}</t" in text for cell in row if "<" not in cell)


def test_a_measurement_that_was_stopped_at_once_has_a_page(tmp_path: Path) -> None:
    Bench(tmp_path, "plain,lookup").measure()
    for rows in (rows_of(tmp_path)[:1], rows_of(tmp_path)[:4]):
        assert Outline(page(summarise(rows))).titles[0] == "m on chip, 2 cores"


def test_every_number_of_the_report_is_defined() -> None:
    text = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    for name in Line.__dataclass_fields__.keys() - {"method", "n_requests"}:
        assert f"`{name}`" in text, f"docs/numbers.md does not define {name}"
