"""What one measured request gave, whoever served it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from wager.types import JSON, Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """``text``: the output, where it is known already (oracles replay it)."""

    tokens: list[int]
    sampling: Sampling
    text: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """``times_s`` (n_tokens,): when each token came, in seconds since the request; ``stats``: what else is known."""

    tokens: list[int]
    times_s: list[float]
    finish: str
    stats: JSON = field(default_factory=dict)

    def to_json(self) -> JSON:
        """Counts and times as in docs/numbers.md: the first step may bring several tokens."""
        first_s, total_s = (self.times_s[0], self.times_s[-1]) if self.times_s else (0.0, 0.0)
        return {
            "tokens": self.tokens,
            "finish": self.finish,
            "n_tokens": len(self.tokens),
            "n_tokens_first": sum(t == first_s for t in self.times_s),
            "first_token_s": first_s,
            "decode_s": total_s - first_s,
            "total_s": total_s,
            **self.stats,
            "times_s": [round(t, 6) for t in self.times_s],
        }


class Runner(Protocol):
    """One method, ready to be timed. ``settings`` says with what it runs. ``forget``: as if nothing had been asked."""

    settings: JSON

    def run(self, request: Request) -> Answer: ...
    def forget(self) -> None: ...
    def close(self) -> None: ...


class MissingPeer(Exception):
    """A peer that cannot run here, with the reason: reported, never skipped silently."""


def s_per_token(row: JSON) -> float:
    """Seconds of decoding per token after the first one."""
    return float(row["decode_s"]) / (int(row["n_tokens"]) - 1)
