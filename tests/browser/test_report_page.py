"""The report of `wager bench` in a browser: complete by itself, and readable on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench_tools import Bench
from browser_tools import Browser, chromium
from wager.bench.journal import FILE
from wager.cli import main

pytestmark = pytest.mark.browser

DESK = {"width": 1200, "height": 900}
PHONE = {"width": 390, "height": 844, "mobile": True}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with every section, as an address: made by the command, from rows with known times."""
    folder = tmp_path_factory.mktemp("measured")
    names = "plain,lookup,suffix:local:n=8,lookup+recycling:n=4,genai,genai:lookup,transformers:lookup:defaults"
    speeds = {"lookup": 0.5, "suffix:local:n=8": 0.4, "genai": 1.1, "transformers:lookup:defaults": 9.0}
    bench = Bench(folder, names, **speeds)
    for runner in bench.runners.values():
        runner.settings["weights_bytes"] = 150_000_000
    bench.runners["lookup"]._reply = lambda request: [request.tokens[0]] * 12
    bench.measure(bandwidth={"large_bytes_per_s": 25e9})
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "report", str(folder)])
    assert exit_.value.code == 1, "one text differs"
    (folder / FILE).unlink()
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
def test_the_page_fits_and_nothing_complains(
    browser: Browser, report: str, screen: dict[str, int], dark: bool, tmp_path: Path
) -> None:
    browser.open(report, **screen, dark=dark)
    assert browser.evaluate("innerWidth") == screen["width"]
    assert browser.wider_than_screen() == []
    assert browser.complaints == []
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(", "))) < 150) == dark


def test_the_page_says_what_the_tables_say(browser: Browser, report: str) -> None:
    browser.open(report, **PHONE)
    titles = browser.evaluate("[...document.querySelectorAll('h1, h2')].map(e => e.textContent)")
    assert titles[0] == "m on chip, 2 cores"
    assert len(titles) == 8
    assert "NOT IDENTICAL" in browser.evaluate("document.querySelector('.alarm').textContent")
    assert browser.evaluate("document.querySelectorAll('.chart[role=img][aria-label]').length") == 6
    assert browser.evaluate("document.querySelectorAll('.scroll[tabindex] table th[scope=row]').length") > 30
    assert browser.evaluate("document.querySelectorAll('.chart circle').length") > 30
    assert browser.evaluate("Math.min(...[...document.querySelectorAll('.label, td')].map("
                            "e => parseFloat(getComputedStyle(e).fontSize)))") >= 12  # fmt: skip
    narrowest = "Math.min(...[...document.querySelectorAll('.chart > svg')].map(e => e.clientWidth))"
    assert browser.evaluate(narrowest) > 300, "plots take the width of a phone"


def test_a_page_that_sticks_out_or_asks_elsewhere_is_found(browser: Browser, report: str, tmp_path: Path) -> None:
    """So that the other tests can fail."""
    page = tmp_path / "wide.html"
    viewport = "<meta name=viewport content='width=device-width'>"
    wrong = "<p style='width: 500px'>wide</p><img src='http://example.invalid/x.png'><script>nope()</script>"
    page.write_text(viewport + wrong)
    browser.open(page.as_uri(), **PHONE)
    assert any("wide" in found for found in browser.wider_than_screen())
    assert any("another host" in said for said in browser.complaints)
    assert any("nope" in said for said in browser.complaints)
