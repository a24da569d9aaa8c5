"""One streamed answer on stdout, and the words for what it cost."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wager.cli.console import Bars, write

if TYPE_CHECKING:
    from wager.llm import LLM, Completion
    from wager.types import Event, Sampling


class Answer:
    """Collects the events of one answer, and shows its text as it comes if ``shown``, in place of progress bars."""

    def __init__(self, bars: Bars, *, shown: bool) -> None:
        self.bars = bars
        self.shown = shown
        self.text = ""
        self.tokens: list[int] = []

    def __call__(self, event: Event) -> None:
        self.bars.close()
        self.tokens += event.tokens
        self.text += event.text
        if self.shown and event.text:
            write(event.text)

    def end_line(self) -> None:
        """Ends the last line of what was shown."""
        if self.shown and self.text and not self.text.endswith("\n"):
            write("\n")

    def partial_json(self, sampling: Sampling) -> dict[str, Any]:
        """What there is of an answer that was interrupted."""
        return {"text": self.text, "tokens": self.tokens, "finish": "cancelled", "seed": sampling.seed}


def summary(completion: Completion, llm: LLM) -> str:
    """One line: how long, how fast, what speculation did, and what to type to get this text again."""
    stats = completion.stats
    parts = [
        f"{stats.n_tokens} tokens ({completion.finish})",
        f"first after {stats.first_token_s:.2f} s",
        f"{stats.tokens_per_s:.1f} tokens/s",
        f"{stats.tokens_per_forward:.2f} per forward",
    ]
    if stats.n_drafted:
        parts.append(f"{stats.acceptance_rate:.0%} of {stats.n_drafted} drafted accepted")
    return " · ".join([*parts, f"seed {completion.seed}", str(llm.info["exactness"])])


def to_json(completion: Completion, sampling: Sampling, llm: LLM) -> dict[str, Any]:
    """Everything about one answer, JSON-ready."""
    settings = asdict(sampling) | {"seed": completion.seed}
    settings["logit_bias"] = {  # JSON has no infinity: as it is typed, "-inf"
        str(token): bias if math.isfinite(bias) else str(bias) for token, bias in sampling.logit_bias.items()
    }
    return {
        "text": completion.text,
        "tokens": list(completion.tokens),
        "finish": completion.finish,
        "seed": completion.seed,
        "n_prompt": completion.n_prompt,
        "logprobs": [asdict(entry) for entry in completion.logprobs] if sampling.logprobs is not None else None,
        "stats": completion.stats.to_json(),
        "sampling": settings,
        "settings": llm.info,
    }
