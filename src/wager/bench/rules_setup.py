"""From the options of `wager rules` to a measurement ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as ListLike
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wager.bench import ours
from wager.bench.journal import Journal
from wager.bench.rules_plan import Setting, chosen_rules, drawing_of, settings, whole_numbers
from wager.bench.rules_run import Drafters, RulesMeasurement
from wager.bench.run import Progress
from wager.bench.setup import circumstances, encode
from wager.bench.suite import choose, load_suite, sha256, suite_path
from wager.drafting import check_drafts_trees, spelled
from wager.errors import OptionError
from wager.llm import LLM
from wager.types import JSON, Drafter, Sampling
from wager.verify import RuleInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `wager rules`, by the names they have there."""

    target: str
    draft: str
    prompts: str
    temperature: ListLike[float]
    k: str
    depth: str
    rules: str
    per_task: int | None
    max_tokens: int
    seed: int
    profile: str
    trunk: int
    threads: int | None
    out: Path


@contextmanager
def opened(options: Options, *, say: Callable[[str], None], progress: Progress) -> Iterator[RulesMeasurement]:
    """Everything loaded and open, and closed again at the end."""
    rules = chosen_rules(options.rules)
    ks, depths = whole_numbers("k", options.k), whole_numbers("depth", options.depth)
    if ks[-1] > 1:
        check_drafts_trees(options.draft, "--k", options.k)
    temperatures = list(dict.fromkeys(options.temperature))
    for temperature in temperatures:
        Sampling(temperature=temperature, max_tokens=options.max_tokens, seed=options.seed)  # refuses what is none
    suite = suite_path(options.prompts)
    prompts = choose(load_suite(suite), per_task=options.per_task, tasks=())
    llm = ours.load(options.target, options.profile, threads=options.threads, progress=progress)
    try:
        drafters = Drafters(llm, options.draft)
        chosen = _settings(options, rules, ks, depths, drafters, say)
        journal = Journal(options.out, provenance(options, suite, llm))
        try:
            encoded = encode(prompts, llm, options.max_tokens, journal, say)
            if not encoded:
                raise OptionError(f"no prompt of `{options.prompts}` fits the model's context: give other --prompts")
            say(f"{len(chosen)} settings × {len(temperatures)} temperatures × {len(encoded)} prompts")
            yield RulesMeasurement(
                journal, llm, drafters, chosen, temperatures, encoded, options.max_tokens, options.seed, say, progress
            )
        finally:
            journal.close()
    finally:
        llm.close()


def _settings(
    options: Options,
    rules: ListLike[RuleInfo],
    ks: ListLike[int],
    depths: ListLike[int],
    drafters: Drafters,
    say: Callable[[str], None],
) -> list[Setting]:
    def drafter_for(rule: RuleInfo) -> Drafter:
        return drafters(drawing_of(Setting(spelled(rule), 1, 1)))

    return settings(rules, ks, depths, options.trunk, drafter_for=drafter_for, strict=bool(options.rules), say=say)


def provenance(options: Options, suite: Path, llm: LLM) -> JSON:
    """What the numbers mean. ``settings`` must agree for a measurement to be continued; rules, forms of drafts,
    temperatures and prompts may be added to it."""
    given = {
        "target": llm.info["model"],
        "draft": options.draft,
        "fingerprint": llm.fingerprint,
        "suite": suite.name,
        "suite_sha256": sha256(suite),
        "profile": options.profile,
        "trunk": options.trunk,
        "max_tokens": options.max_tokens,
        "seed": options.seed,
        "threads": options.threads,
    }
    return {**circumstances(), "exactness": llm.info["exactness"], "info": llm.info, "settings": given}
