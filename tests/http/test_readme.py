"""The README's examples of the server, run against one: curl's request as it stands, and the client's code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks() -> tuple[str, str]:
    """The shell's and Python's code of the section about serving."""
    section = README.split("\n## Serving\n")[1].split("\n## ")[0]
    shell, python = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    return shell, python


def test_curl_gets_an_answer(server):
    [line] = [line for line in blocks()[0].splitlines() if line.startswith("curl")]
    _, url, option, data = shlex.split(line)
    assert option == "-d"
    assert url.startswith("http://127.0.0.1:8000/")
    status, _, answer = server.ask(url.removeprefix("http://127.0.0.1:8000"), json.loads(data))
    assert status == 200
    assert answer["choices"][0]["message"]["content"]


def test_the_client_prints_an_answer(server, capsys):
    code = (
        blocks()[1]
        .replace("http://127.0.0.1:8000", server.url.removesuffix("/v1"))
        .replace("smollm2-135m", "tiny-llama")
    )
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()
