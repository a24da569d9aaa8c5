"""A headless Chromium, driven over its DevTools pipe: pages are opened as a screen of a given size would show them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
_FREE = 10  # file descriptors from here on are nobody's


class Browser:
    """One tab. ``complaints``: what the console, the log or the network said since the page was opened."""

    def __init__(self, commands: int, answers: int) -> None:
        self._out, self._in = os.fdopen(commands, "wb", buffering=0), os.fdopen(answers, "rb")
        self._n, self._session = 0, ""
        self.complaints: list[str] = []
        tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; what happens in between is looked through for complaints."""
        self._n += 1
        message = {"id": self._n, "method": method, "params": params}
        self._out.write(json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._n:
                assert "error" not in got, f"{method}: {got['error']}"
                result: dict[str, Any] = got["result"]
                return result

    def open(self, url: str, *, width: int, height: int, dark: bool = False, mobile: bool = False) -> None:
        """Load a page to its end, on a screen of so many CSS pixels."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.complaints.clear()
        self.call("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page, not just what fits the screen."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def wider_than_screen(self) -> list[str]:
        """The page, if it scrolls sideways, and what sticks out of it to the right."""
        return list(
            self.evaluate("""(() => {
              const page = document.documentElement, width = page.clientWidth, found = [];
              if (page.scrollWidth > width) found.push("page " + page.scrollWidth);
              for (const e of document.querySelectorAll("body *")) {
                if (e.closest(".scroll > *, pre *")) continue;
                if (e.getBoundingClientRect().right <= width + 1) continue;
                found.push(e.tagName + " " + e.textContent.slice(0, 40));
              }
              return found;
            })()""")
        )

    def close(self) -> None:
        self._out.close()
        self._in.close()

    def _next(self) -> dict[str, Any]:
        data = bytearray()
        while not data.endswith(b"\0"):
            byte = self._in.read(1)
            assert byte, "the browser ended"
            data += byte
        got: dict[str, Any] = json.loads(data[:-1])
        self._look(got.get("method", ""), got.get("params", {}))
        return got

    def _look(self, method: str, params: dict[str, Any]) -> None:
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method in ("Runtime.exceptionThrown", "Network.loadingFailed"):
            self.complaints.append(str(params))
        elif method == "Network.requestWillBeSent" and not _is_here(params["request"]["url"]):
            self.complaints.append(f"asks another host: {params['request']['url']}")


def _is_here(url: str) -> bool:
    return url.startswith(("file:", "data:", "about:", "blob:", "http://127.0.0.1", "http://localhost"))


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a new profile; skips where there is none (make test-browser says how to get it)."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on PATH")
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE) for fd in (theirs_in, theirs_out)]
    # The pipe has to have the numbers 3 and 4.
    start = f"import os, sys; os.dup2({high[0]}, 3); os.dup2({high[1]}, 4); os.execv(sys.argv[1], sys.argv[1:])"
    args = [program, *_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", start, *args], pass_fds=high, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for fd in (theirs_in, theirs_out, *high):
        os.close(fd)
    browser = Browser(ours_out, ours_in)
    try:
        yield browser
    finally:
        browser.call("Browser.close")
        process.wait(timeout=30)
        browser.close()
