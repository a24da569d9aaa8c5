"""`wager chat`: a conversation; each turn reads only what is new, as the prefix is kept."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from wager.cli import options as o
from wager.cli.answer import Answer, summary
from wager.cli.console import Bars, decode_utf8, say
from wager.errors import CapacityError, PromptError

if TYPE_CHECKING:
    from wager.llm import LLM, Completion
    from wager.types import Sampling

app = typer.Typer(add_completion=False, rich_markup_mode=None)

HELP = """/reset  forget the conversation
/stats  what the answers so far cost
/help   this
/exit   leave (also Ctrl-D); Ctrl-C stops an answer"""


@app.command()
def chat(
    model: o.Model = o.DEFAULT_MODEL,
    drafter: o.DrafterName = "auto",
    draft_model: o.DraftModel = None,
    policy: o.Policy = None,
    num_draft_tokens: o.NumDraftTokens = None,
    rule: o.Rule = "walk",
    tree_width: o.TreeWidth = 1,
    profile: o.Profile = "fast",
    require_identical: o.RequireIdentical = False,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    min_p: o.MinP = None,
    repetition_penalty: o.RepetitionPenalty = None,
    presence_penalty: o.PresencePenalty = None,
    frequency_penalty: o.FrequencyPenalty = None,
    max_tokens: o.MaxTokens = None,
    stop: o.Stop = None,
    seed: o.Seed = None,
    system: o.System = None,
    kv_cache_gb: o.KvCacheGb = None,
    threads: o.Threads = None,
) -> None:
    """Talk with the model, turn by turn (/help for commands)."""
    given = locals()
    with Bars() as bars, closing(o.load(given, bars)) as llm:
        talk = Talk(llm, o.sampling(llm, given), system, bars)
        talk.reset()
        if sys.stdin.isatty():
            say(f"{llm.info['model']} · {llm.info['exactness']} · /help for commands")
        while talk.turn():
            pass


@dataclass
class Talk:
    """The conversation so far and what it cost."""

    llm: LLM
    sampling: Sampling
    system: str | None
    bars: Bars
    messages: list[dict[str, str]] = field(default_factory=list)
    answers: list[Completion] = field(default_factory=list)

    def reset(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system is not None else []

    def turn(self) -> bool:
        """Read one line and do what it says; False when the conversation is over."""
        try:
            line = read_line()
        except KeyboardInterrupt:
            say("\n/exit or Ctrl-D leaves")
            return True
        if line is None or line in ("/exit", "/quit"):
            return False
        if line.startswith("/"):
            self.command(line)
        elif line:
            self.answer(line)
        return True

    def command(self, line: str) -> None:
        if line == "/reset":
            self.reset()
            say("forgotten")
        elif line == "/stats":
            say("\n".join(summary(a, self.llm) for a in self.answers) or "nothing answered yet")
        elif line == "/help":
            say(HELP)
        else:
            say(f"`{line}` is no command\n{HELP}")

    def answer(self, line: str) -> None:
        """Stream one answer; Ctrl-C keeps what was said, an answer that cannot be given leaves no trace."""
        asked = [*self.messages, {"role": "user", "content": line}]
        answer, stopped = Answer(self.bars, shown=True), False
        try:
            self.answers.append(self.llm.chat_stream(asked, self.sampling, on_event=answer))
        except KeyboardInterrupt:
            stopped = True
        except (PromptError, CapacityError) as error:
            say(f"error: {error} (or /reset)")
            return
        answer.end_line()
        if stopped:
            say("(stopped)")
        self.messages = [*asked, {"role": "assistant", "content": answer.text}]


def read_line() -> str | None:
    """The next line without its end, None at the end of input. Raises ``PromptError`` when it is not UTF-8."""
    if sys.stdin.isatty():
        try:
            return input("> ").strip()
        except EOFError:
            say("")
            return None
    data = sys.stdin.buffer.readline()
    return decode_utf8(data).strip() if data else None
