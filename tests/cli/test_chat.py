"""`wager chat`: turns, commands, and an interrupted answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Wager = Callable[..., Any]


def test_piped_turns_keep_the_history(wager: Wager, llm: Any) -> None:
    result = wager("chat", "--system", "be brief", stdin=b"hi\n\nmore\n")
    assert (result.code, result.out) == (0, "one two three \n" * 2)
    assert [(m["role"], m["content"]) for m in llm.made[-1].calls[1]["prompt"]] == [
        ("system", "be brief"),
        ("user", "hi"),
        ("assistant", "one two three "),
        ("user", "more"),
    ]


def test_commands(wager: Wager, llm: Any) -> None:
    result = wager("chat", stdin=b"/stats\nhi\n/reset\n/stats\n/nonsense\n/help\nagain\n/exit\nnever\n")
    assert result.code == 0
    assert "nothing answered yet" in result.err
    assert "forgotten" in result.err
    assert "3 tokens (length)" in result.err
    assert "`/nonsense` is no command" in result.err
    calls = [c["prompt"] for c in llm.made[-1].calls]
    assert [len(messages) for messages in calls] == [1, 1]
    assert calls[1][0]["content"] == "again"


def test_ctrl_c_stops_the_answer_and_keeps_the_chat(wager: Wager, llm: Any) -> None:
    interrupts = iter([False, True])
    llm.fails = staticmethod(lambda speculate, i: KeyboardInterrupt() if next(interrupts, False) else None)
    result = wager("chat", stdin=b"hi\nmore\n")
    assert result.code == 0
    assert result.out == "one \none two three \n"
    assert "(stopped)" in result.err
    assert llm.made[-1].calls[1]["prompt"][1] == {"role": "assistant", "content": "one "}


@pytest.mark.parametrize("kind", ["PromptError", "CapacityError"])
def test_an_answer_that_cannot_be_given_leaves_no_trace(wager: Wager, llm: Any, kind: str) -> None:
    from wager import errors

    fails = iter([getattr(errors, kind)("too long")])
    llm.fails = staticmethod(lambda speculate, i: next(fails, None))
    result = wager("chat", stdin=b"long\nshort\n")
    assert result.code == 0
    assert "error: too long" in result.err
    assert [m["content"] for m in llm.made[-1].calls[1]["prompt"]] == ["short"]


def test_input_that_is_not_utf8(wager: Wager, llm: Any) -> None:
    result = wager("chat", stdin=b"caf\xe9\n")
    assert result.code == 2
    assert "not UTF-8" in result.err
