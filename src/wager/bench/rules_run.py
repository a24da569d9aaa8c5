"""The measurement of `wager rules`: every prompt with every setting before the next prompt, each a row on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace
from zlib import crc32

from wager.bench.journal import Journal, runs
from wager.bench.rules_measure import Tally, measuring
from wager.bench.rules_plan import PLAIN, Setting, drawing_of
from wager.bench.rules_summary import mismatches
from wager.bench.run import EncodedPrompt, Progress
from wager.drafters import is_drafter
from wager.drafters.drawing import Drawing
from wager.drafters.model import ModelDrafter
from wager.llm import LLM
from wager.record import RunStats, StepRecord
from wager.types import JSON, Drafter, Sampling

_WARM_UP_TOKENS = 8


def drafter_spec(draft: str) -> str:
    """A drafter's spec as it is (several joined by plus signs too); a bare path or name is a draft model."""
    names = [part.partition(":")[0] for part in draft.split("+")]
    return draft if is_drafter(draft.partition(":")[0]) or all(map(is_drafter, names)) else f"model:{draft}"


class Drafters:
    """New drafters over one loaded draft model: none finds in its cache what another one left there."""

    def __init__(self, llm: LLM, draft: str) -> None:
        self._llm, self._spec = llm, drafter_spec(draft)
        self._first = self._make(Drawing())

    def __call__(self, drawing: Drawing) -> Drafter:
        if isinstance(self._first, ModelDrafter):
            return self._first.redrawn(drawing)
        return self._make(drawing)

    def _make(self, drawing: Drawing) -> Drafter:
        drafter = self._llm.make_drafter(self._spec, drawing, remember=False)
        assert drafter is not None, self._spec
        return drafter


@dataclass(slots=True)
class RulesMeasurement:
    """Runs what the journal does not hold yet.

    Settings take turns within a prompt, in an order that turns round from prompt to prompt: a machine that drifts
    favours none of them.
    """

    journal: Journal
    llm: LLM
    drafters: Drafters
    settings: ListLike[Setting]
    temperatures: ListLike[float]
    prompts: ListLike[EncodedPrompt]
    max_tokens: int
    seed: int
    say: Callable[[str], None]
    progress: Progress

    def run(self) -> None:
        """Measure everything; texts that differ and must not are said at once."""
        todo = self._todo()
        self._warm_up(todo)
        n_all, n_done = sum(len(group) for _, _, group in todo), 0
        told = {(m.setting, m.temperature, m.prompt_id) for m in mismatches(self.journal.rows, self._is_exact)}
        for prompt, temperature, group in todo:
            for setting in group:
                self.progress("measuring rules", n_done, n_all)
                self.journal.add(self._row(setting, prompt, temperature))
                n_done += 1
            rows = [row for row in runs(self.journal.rows) if row["prompt_id"] == prompt.id]
            for found in mismatches(rows, self._is_exact):
                if (found.setting, found.temperature, found.prompt_id) not in told:
                    self.say(str(found))
                    told.add((found.setting, found.temperature, found.prompt_id))
        self.progress("measuring rules", n_all, n_all)

    @property
    def _is_exact(self) -> bool:
        return bool(self.llm.info["exactness"] == "bit-identical")

    def _todo(self) -> list[tuple[EncodedPrompt, float, list[Setting]]]:
        done = {(row["setting"], row["temperature"], row["prompt_id"]) for row in runs(self.journal.rows)}
        todo = []
        for i, prompt in enumerate(self.prompts):
            for temperature in self.temperatures:
                group = list(self.settings)[:: 1 if i % 2 == 0 else -1]
                left = [s for s in group if (s.name, temperature, prompt.id) not in done]
                if left:
                    todo.append((prompt, temperature, left))
        return todo

    def _warm_up(self, todo: ListLike[tuple[EncodedPrompt, float, list[Setting]]]) -> None:
        """A few unrecorded tokens under the largest setting of every rule: graphs are compiled, and what is missing is
        said, before anything is measured."""
        largest = {s.rule: s for s in self.settings if any(s in group for _, _, group in todo)}
        prompt = min(self.prompts, key=lambda p: len(p.tokens))
        for i, setting in enumerate(largest.values()):
            self.progress("warming up", i, len(largest))
            self.measure(setting, prompt, max(self.temperatures), max_tokens=min(_WARM_UP_TOKENS, self.max_tokens))
        self.progress("warming up", len(largest), len(largest))

    def _row(self, setting: Setting, prompt: EncodedPrompt, temperature: float) -> JSON:
        started = time.time()
        found = self.measure(setting, prompt, temperature, max_tokens=self.max_tokens)
        names = {"rule": setting.rule, "k": setting.k, "depth": setting.depth, "trunk": setting.trunk}
        about = {"task": prompt.task, "prompt_id": prompt.id, "temperature": temperature, "started": round(started, 3)}
        return {"kind": "run", "setting": setting.name, **names, **about, **found}

    def measure(self, setting: Setting, prompt: EncodedPrompt, temperature: float, *, max_tokens: int) -> JSON:
        """One answer: its tokens, counts and times after the first token (docs/numbers.md)."""
        tally, first = Tally(), Tally()
        steps: list[StepRecord] = []
        drafter = None if setting.rule == PLAIN else self.drafters(drawing_of(setting))
        tree = setting.tree
        engine = self.llm.make_engine(
            drafter=drafter,
            num_draft_tokens=setting.depth,
            rule=measuring(setting.info, tally),
            tree_width=tree.width,
            tree_trunk=tree.trunk,
            prefix_caching=False,
            on_step=steps.append,
        )
        seed = self.seed + crc32(prompt.id.encode())
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)
        start = time.perf_counter()
        seq = engine.submit(prompt.tokens, sampling, seed=seed)
        stats, n_before, first_s = engine.stats(seq.id), 0, 0.0
        try:
            while engine.has_work:
                engine.step()
                if not n_before and seq.n_output:
                    n_before, first, first_s = len(steps), replace(tally), time.perf_counter() - start
        finally:
            engine.cancel(seq.id)
        decode_s = time.perf_counter() - start - first_s - (tally.own_s - first.own_s)
        row = {"seed": seed, "drafts": drafter.kind if drafter is not None else None, "tokens": seq.output}
        return {**row, **_counts(stats), **_times(steps[n_before:], tally, first, decode_s), "tally": tally.to_json()}


def _counts(stats: RunStats) -> JSON:
    names = ("n_tokens", "n_tokens_first", "n_forwards", "n_drafted", "n_accepted", "accepted_by_depth")
    return {name: getattr(stats, name) for name in names}


def _times(steps: ListLike[StepRecord], tally: Tally, first: Tally, decode_s: float) -> JSON:
    """Where the time went after the first token. What looking took is in none of them, the rule's own time is apart."""
    rule_s, own_s = tally.rule_s - first.rule_s, tally.own_s - first.own_s
    return {
        "decode_s": decode_s,
        "draft_s": sum(step.draft_s for step in steps),
        "target_s": sum(step.target_s for step in steps),
        "rule_s": rule_s,
        "host_s": sum(step.host_s for step in steps) - own_s - rule_s,
    }
