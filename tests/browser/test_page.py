"""The server's page in a real browser: keyboard, streaming with colours, comparison, stopping, phone width, dark."""

from __future__ import annotations

import pytest

from http_tools import serving
from wager.serve.config import Settings

pytestmark = pytest.mark.browser
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tiny_llama, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(tiny_llama, Settings(drafters=("suffix",))) as server:
            yield server
            server.settled()


@pytest.fixture(params=[(1100, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(browser, server, request):
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    troubles = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda asked: troubles.append(asked.url) if f":{server.port}/" not in asked.url else None)
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("#drafter option", state="attached")
    yield page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert [said for said in troubles if "400 (Bad Request)" not in said] == []


def test_a_chat_by_keyboard_streams_in_colours_and_compares(page):
    page.keyboard.press("Tab")
    page.fill("#max-tokens", "40")
    page.check("#compare")
    page.fill("#prompt", "ab ab ab ab ab ab ab")
    page.press("#prompt", "Enter")
    page.locator("#against", has_text="×").wait_for()
    assert "same text" in page.inner_text("#against")
    assert page.locator(".turn.user").count() == 1
    assert page.locator(".turn.assistant .token").count() > 5
    assert page.locator(".turn.assistant .token.own").count() > 0
    drafted, accepted = page.inner_text("#accepted"), page.locator(".turn.assistant .token.drafted").count()
    assert "of" in drafted
    assert accepted <= int(drafted.split()[0])
    assert page.locator("#depths .bar").count() > 0
    page.fill("#prompt", "and again")
    page.press("#prompt", "Enter")
    page.locator(".turn.assistant").nth(1).locator(".token").first.wait_for()


def test_the_drafter_picked_is_the_one_that_drafts(page):
    assert page.locator("#drafter option").all_inner_texts() == ["lookup", "suffix", "blend", "none (plain)"]
    assert page.input_value("#drafter") == "lookup"
    page.select_option("#drafter", "suffix")
    page.fill("#max-tokens", "20")
    page.fill("#prompt", "ab ab ab ab ab ab ab")
    with page.expect_response("**/v1/chat/completions") as asked:
        page.press("#prompt", "Enter")
    page.locator("#accepted", has_text=" of ").wait_for()
    assert '"drafter":"suffix"' in asked.value.text()


def test_a_decision_shows_the_law_and_an_answer_for_each_metric_ticked(page):
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert not page.locator("#law-title").is_visible()
    page.get_by_label("mae", exact=True).uncheck()
    page.get_by_label("crps", exact=True).check()
    page.fill("#labels", "1,2,3")
    page.locator("#judge").get_by_role("button").click()
    page.locator("#verdict table").wait_for()
    assert page.locator("#verdict tbody th").all_inner_texts() == ["rmse", "crps", "accuracy"]
    assert page.locator("#law .bar").count() == 3
    assert page.locator("#verdict tbody td").nth(1).inner_text().count("%") == 3


def test_escape_stops_an_answer_and_frees_it(page, server):
    page.fill("#max-tokens", "400")
    page.fill("#prompt", "go on")
    page.press("#prompt", "Enter")
    page.locator(".turn.assistant .token").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("#send:not([disabled])").wait_for()
    server.settled()


def test_an_error_is_shown_and_read_out(page):
    page.fill("#temperature", "-1")
    page.fill("#prompt", "go")
    page.evaluate("() => document.querySelector('#ask').noValidate = true")
    page.press("#prompt", "Enter")
    page.locator("#trouble", has_text="temperature").wait_for()
    assert page.get_attribute("#trouble", "role") == "alert"
    assert page.locator(".turn.assistant").count() == 0
    page.fill("#temperature", "0")


def test_every_control_has_a_name(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input, select, textarea, button')].filter(
            (e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))
        ).map((e) => e.id)"""
    )
    assert unnamed == []


def test_a_page_for_a_server_with_keys_asks_for_one(browser, tiny_llama, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
    with serving(tiny_llama, Settings(keys=("right",))) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator("#trouble", has_text="API key").wait_for()
        page.fill("#key", "right")
        page.press("#key", "Tab")
        page.locator("#served", has_text="tiny-llama").wait_for()
        context.close()
