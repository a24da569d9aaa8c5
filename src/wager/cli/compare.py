"""The same prompt and seed twice, plain and speculative: are the tokens identical, and what did speculation gain?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wager.cli.answer import Answer, to_json
from wager.cli.console import Bars, print_json, say

if TYPE_CHECKING:
    from wager.llm import LLM, Completion
    from wager.types import Sampling


@dataclass(frozen=True)
class Comparison:
    plain: Completion
    speculative: Completion

    @property
    def identical(self) -> bool:
        return list(self.plain.tokens) == list(self.speculative.tokens)

    @property
    def speed_up(self) -> float:
        """Plain over speculative time after the first step, for the same tokens; per token where they differ."""
        plain, fast = self.plain.stats, self.speculative.stats
        if not self.identical:
            return fast.tokens_per_s / plain.tokens_per_s if plain.tokens_per_s > 0 else 1.0
        return plain.decode_s / fast.decode_s if fast.decode_s > 0 else 1.0

    def to_json(self, sampling: Sampling, llm: LLM) -> dict[str, Any]:
        runs = {name: to_json(run, sampling, llm) for name, run in vars(self).items()}
        for run in runs.values():
            settings = run.pop("settings")
        return {"identical": self.identical, "speed_up": self.speed_up, **runs, "settings": settings}


def compare(
    llm: LLM, prompt: str, sampling: Sampling, bars: Bars, *, raw: bool, system: str | None, shown: bool
) -> Comparison:
    """Run plain, then speculative with the seed the plain run had, as a user's first runs; both stream if ``shown``."""
    runs = []
    for speculate in (False, True):
        if shown:
            say("speculative:" if speculate else "plain:")
        answer = Answer(bars, shown=shown)
        try:
            run = llm.stream(prompt, sampling, chat=not raw, system=system, speculate=speculate, on_event=answer)
        finally:
            answer.end_line()
        sampling = replace(sampling, seed=run.seed)
        runs.append(run)
        if shown:
            say("")
    return Comparison(*runs)


def report(result: Comparison, sampling: Sampling, llm: LLM, *, as_json: bool, must_match: bool = True) -> int:
    """Print the result; returns the exit code: 1 where texts differ that must not (under some rules they may)."""
    if as_json:
        print_json(result.to_json(sampling, llm) | {"must_match": must_match})
    else:
        print("\n".join(table(result, must_match=must_match)))
    if result.identical or not must_match:
        return 0
    a, b = list(result.plain.tokens), list(result.speculative.tokens)
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    pieces = [llm.text.token_text(ids[at]) if at < len(ids) else "the end" for ids in (a, b)]
    say(f"NOT IDENTICAL: token {at} is {pieces[0]!r} plain and {pieces[1]!r} speculative ({llm.info['exactness']})")
    return 1


def table(result: Comparison, *, must_match: bool) -> list[str]:
    """The small result table, as lines."""
    plain, fast = result.plain.stats, result.speculative.stats
    differ = "NO" if must_match else "no, and need not be: this rule's text depends on the drafts"
    accepted = f"{fast.acceptance_rate:.0%} of {fast.n_drafted}" if fast.n_drafted else "nothing drafted"
    rows = [
        ("identical tokens", f"yes, all {plain.n_tokens}" if result.identical else differ),
        ("plain", f"{plain.tokens_per_s:.1f} tokens/s"),
        ("speculative", f"{fast.tokens_per_s:.1f} tokens/s"),
        ("speed-up", f"{result.speed_up:.2f} ×"),
        ("tokens per forward", f"{fast.tokens_per_forward:.2f} (plain {plain.tokens_per_forward:.2f})"),
        ("accepted share", accepted),
    ]
    return [f"{name:<20}{value}" for name, value in rows]
