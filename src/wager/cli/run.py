"""`wager run`: one prompt, one streamed answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli import options as o
from wager.cli.answer import Answer, summary, to_json
from wager.cli.compare import compare as run_twice
from wager.cli.compare import report
from wager.cli.console import Bars, print_json, read_prompt, say
from wager.errors import OptionError, PromptError

if TYPE_CHECKING:
    from wager.llm import LLM
    from wager.types import Sampling

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - or none reads stdin.")] = None,
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
    min_tokens: o.MinTokens = None,
    stop: o.Stop = None,
    seed: o.Seed = None,
    logprobs: o.Logprobs = None,
    ignore_eos: o.IgnoreEos = False,
    logit_bias: o.LogitBias = None,
    json_schema: o.JsonSchemaFile = None,
    regex: o.Regex = None,
    choice: o.Choice = None,
    system: o.System = None,
    raw: Annotated[bool, typer.Option("--raw", help="No chat template: continue the text.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Plain and speculative: identical? how fast?")] = False,
    explain: o.Explain = False,
    kv_cache_gb: o.KvCacheGb = None,
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Answer one prompt: text on stdout, a summary on stderr."""
    given = locals()
    if logprobs is not None and not as_json:
        raise OptionError(f"--logprobs `{logprobs}` has no place in plain text: add --json")
    text, constraint = checked_prompt(read_prompt(prompt), system, raw=raw), o.constraint(given)
    with Bars() as bars, closing(o.load(given, bars)) as llm, explained(llm, explain):
        sampling = replace(o.sampling(llm, given), constraint=constraint)
        if sampling.seed is None:  # drawn here, so that an interrupted answer can be had again too
            sampling = replace(sampling, seed=drawn_seed())
        if compare:
            result = run_twice(llm, text, sampling, bars, raw=raw, system=system, shown=not as_json)
            raise typer.Exit(report(result, sampling, llm, as_json=as_json, must_match=must_match(rule, sampling)))
        _run(llm, text, sampling, Answer(bars, shown=not as_json), raw=raw, system=system)


@contextmanager
def explained(llm: LLM, wanted: bool) -> Iterator[None]:
    """Says at the end, whatever it is, what every step did and why."""
    reasons: list[str] = []
    if wanted:
        llm.explain(reasons.append)
    try:
        yield
    finally:
        for reason in reasons:
            say(reason)


def must_match(rule: str, sampling: Sampling) -> bool:
    """Whether plain and speculative tokens have to be the same ones."""
    from wager.verify import rule_named

    return sampling.temperature == 0 or rule_named(rule).coupled


def drawn_seed() -> int:
    import secrets

    return secrets.randbits(63)


def checked_prompt(text: str, system: str | None, *, raw: bool) -> str:
    """The prompt, refused before a model is loaded for it."""
    if not text:
        raise PromptError("the prompt is empty (``): give some text")
    if raw and system is not None:
        raise PromptError(f"--system `{system}` needs the chat template: leave out --raw, or write it into the prompt")
    return text


def _run(llm: LLM, prompt: str, sampling: Sampling, answer: Answer, *, raw: bool, system: str | None) -> None:
    try:
        completion = llm.stream(prompt, sampling, chat=not raw, system=system, on_event=answer)
    except KeyboardInterrupt:
        answer.end_line()
        if not answer.shown:
            print_json(answer.partial_json(sampling))
        raise
    answer.end_line()
    if answer.shown:
        say(summary(completion, llm))
    else:
        print_json(to_json(completion, sampling, llm))
