"""Options that several commands share, and what they make: a model and how to sample from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wager.cli.console import say
from wager.errors import OptionError

if TYPE_CHECKING:
    from wager.constraint import Constraint
    from wager.llm import LLM
    from wager.types import Sampling

DEFAULT_MODEL = "smollm2-135m"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=more.pop("show_default", False), **more)


Model = Annotated[
    str,
    _option("--model", "-m", help="Name, OpenVINO folder, or .gguf file.", envvar="WAGER_MODEL", show_default=True),
]
DrafterName = Annotated[
    str,
    _option("--drafter", help="none, auto, lookup, model:PATH, a+b, … (docs/drafters.md).", show_default=True),
]
DraftModel = Annotated[str | None, _option("--draft-model", help="Draft with this model (as --drafter model:PATH).")]
Profile = Annotated[
    str, _option("--profile", help="fast, reference: bit-identical; u8: half the K/V; max: fastest.", show_default=True)
]
NumDraftTokens = Annotated[
    int | None, _option("--num-draft-tokens", help="Draft so many, or start from there (--policy).")
]
_POLICIES = "cost (default), fixed, heuristic, heuristic_transient, threshold, adaedl, heterospec or delayed"
Policy = Annotated[str | None, _option("--policy", help=f"How much to draft: {_POLICIES} (docs/policies.md).")]
Rule = Annotated[
    str, _option("--rule", help="How drafts are verified: docs/rules.md has the names.", show_default=True)
]
TreeWidth = Annotated[int, _option("--tree-width", help="Branches of a draft.", show_default=True)]
RequireIdentical = Annotated[
    bool, _option("--require-identical", help="Refuse to run where bit-identity cannot be promised.")
]
KvCacheGb = Annotated[float | None, _option("--kv-cache-gb", help="Memory for keys and values.")]
Threads = Annotated[int | None, _option("--threads", help="CPU threads; default: all cores.")]

Temperature = Annotated[float | None, _option("--temperature", "-t", help="0 is greedy; default: the model's.")]
TopP = Annotated[float | None, _option("--top-p", help="Keep the most likely tokens up to this mass.")]
TopK = Annotated[int | None, _option("--top-k", help="Keep this many tokens; 0 is off.")]
MinP = Annotated[float | None, _option("--min-p", help="Keep tokens at least this likely relative to the best.")]
RepetitionPenalty = Annotated[float | None, _option("--repetition-penalty", help="1 is off.")]
PresencePenalty = Annotated[float | None, _option("--presence-penalty", help="0 is off.")]
FrequencyPenalty = Annotated[float | None, _option("--frequency-penalty", help="0 is off.")]
MaxTokens = Annotated[int | None, _option("--max-tokens", "-n", help="Longest answer in tokens.")]
MinTokens = Annotated[int | None, _option("--min-tokens", help="Shortest answer in tokens.")]
Stop = Annotated[list[str] | None, _option("--stop", help="Stop before this text (repeatable).")]
Seed = Annotated[int | None, _option("--seed", help="Same seed, same text; default: drawn and reported.")]
Logprobs = Annotated[int | None, _option("--logprobs", help="Report this many log-probabilities a token (--json).")]
IgnoreEos = Annotated[bool, _option("--ignore-eos", help="Go on past the end of the answer.")]
LogitBias = Annotated[
    list[str] | None, _option("--logit-bias", metavar="ID=VALUE", help="Add to a logit (repeatable).")
]
JsonSchemaFile = Annotated[str | None, _option("--json-schema", metavar="FILE", help="Answer in JSON of this schema.")]
Regex = Annotated[str | None, _option("--regex", help="Answer with a text that this matches.")]
Choice = Annotated[
    list[str] | None, _option("--choice", metavar="A,B", help="Answer with one of these (or repeat it, for commas).")
]

System = Annotated[str | None, _option("--system", help="System message; default: the model's own.")]
AsJson = Annotated[bool, _option("--json", help="One JSON object instead of text.")]

Explain = Annotated[bool, _option("--explain", help="Say of every step what was drafted, why, and what came of it.")]

_MODEL_OPTIONS = (
    *("model", "profile", "policy", "num_draft_tokens", "rule", "tree_width", "kv_cache_gb", "threads"),
    *("require_identical", "max_seqs"),
)
_SAMPLING_OPTIONS = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("max_tokens", "min_tokens", "stop", "seed", "logprobs", "ignore_eos"),
)


def load(options: Mapping[str, Any], progress: Callable[[str, int, int], None]) -> LLM:
    """The model that a command's options (its ``locals()``) ask for."""
    drafter, draft_model = options.get("drafter", "auto"), options.get("draft_model")
    if draft_model is not None:
        if drafter not in ("auto", "model"):
            raise OptionError(f"--draft-model `{draft_model}` contradicts --drafter `{drafter}`: give one of them")
        drafter = f"model:{draft_model}"
    from wager.llm import LLM
    from wager.verify import rule_named

    if not rule_named(options.get("rule", "walk")).lossless:
        say(f"lossy: --rule `{options['rule']}` gives sampled text another law than plain decoding")

    given = {name: options[name] for name in _MODEL_OPTIONS if options.get(name) is not None}
    return LLM(**given, drafter=drafter, progress=progress)


def sampling(llm: LLM, options: Mapping[str, Any]) -> Sampling:
    """The model's own sampling, with what a command's options (its ``locals()``) change."""
    given = {
        name: value for name in _SAMPLING_OPTIONS if (value := options.get(name)) is not None and value is not False
    }
    bias = options.get("logit_bias")
    if bias:
        given["logit_bias"] = dict(_bias(entry) for entry in bias)
    return llm.sampling(**given)


def constraint(options: Mapping[str, Any]) -> Constraint | None:
    """What a command's options (its ``locals()``) want the answer to be."""
    given = {name: value for name in ("json_schema", "regex", "choice") if (value := options.get(name))}
    if not given:
        return None
    if len(given) > 1:
        raise OptionError(f"--{' and --'.join(given).replace('_', '-')} are given: one constraint at a time")
    from wager import grammar

    if "regex" in given:
        return grammar.Regex(given["regex"])
    if "choice" in given:
        choices = given["choice"]
        return grammar.Choice(tuple(choices[0].split(",") if len(choices) == 1 else choices))
    path = Path(given["json_schema"])
    try:
        return grammar.JsonSchema(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--json-schema `{path}` cannot be read ({error}): give a file with a JSON schema") from error


def _bias(entry: str) -> tuple[int, float]:
    token, _, value = entry.partition("=")
    try:
        return int(token), float(value)
    except ValueError as error:
        raise OptionError(f"--logit-bias is `{entry}`: give ID=VALUE, e.g. 42=-1.5 or 42=-inf") from error
