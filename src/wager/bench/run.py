"""The measurement itself: methods × prompts, interleaved, each request a row on disk before the next one starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace

from wager.bench.answer import Answer, MissingPeer, Request, Runner
from wager.bench.journal import Journal, runs
from wager.bench.methods import Method
from wager.bench.stats import first_difference
from wager.types import JSON, Sampling

Progress = Callable[[str, int, int], None]
_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    id: str
    task: str
    tokens: list[int]


@dataclass(slots=True)
class Measurement:
    """Runs what the journal does not hold yet. ``exact``: names of the methods whose text must be that of the others.

    The order of the methods alternates from prompt to prompt, so that a drifting machine favours none of them; an
    oracle that waits for its text runs last.
    """

    journal: Journal
    methods: ListLike[Method]
    runners: dict[str, Runner]
    prompts: ListLike[EncodedPrompt]
    sampling: Sampling
    repeats: int
    exact: frozenset[str]
    say: Callable[[str], None]
    progress: Progress
    n_before: dict[str, int] = field(default_factory=dict)  # requests since a method last forgot
    texts: dict[tuple[str, str, int], tuple[str, list[int]]] = field(default_factory=dict)

    def run(self) -> None:
        """Measure everything; a peer that fails is reported and left out from there on."""
        self._remember_rows()
        todo = self._todo()
        self._warm_up({method.name for _, _, group in todo for method in group})
        n_all, n_done = sum(len(group) for _, _, group in todo), 0
        last = None
        for repeat, prompt, group in todo:
            if repeat != last:  # the prompts come again, or the warm-up's does
                self._forget()
                last = repeat
            for position, method in enumerate(self._ordered(group, prompt, repeat)):
                self.progress("measuring", n_done, n_all)
                n_done += 1
                if method.name in self.runners:
                    self._measure(method, prompt, repeat, position)
        self.progress("measuring", n_all, n_all)

    @property
    def n_mismatches(self) -> int:
        """Answers that should have been identical and were not, earlier sessions included."""
        return sum(row["kind"] == "mismatch" for row in self.journal.rows)

    # -- the plan ------------------------------------------------------------------------------------------------

    def _todo(self) -> list[tuple[int, EncodedPrompt, list[Method]]]:
        """(repeat, prompt, methods still to run), in order; every second group is turned round."""
        done = {(row["method"], row["prompt_id"], row["repeat"]) for row in runs(self.journal.rows)}
        plan: list[tuple[int, EncodedPrompt, list[Method]]] = []
        for repeat in range(self.repeats):
            for i, prompt in enumerate(self.prompts):
                group = list(self.methods)[:: 1 if (i + repeat) % 2 == 0 else -1]
                left = [m for m in group if m.name in self.runners and (m.name, prompt.id, repeat) not in done]
                if left:
                    plan.append((repeat, prompt, left))
        return plan

    def _ordered(self, group: list[Method], prompt: EncodedPrompt, repeat: int) -> list[Method]:
        waiting = [m for m in group if m.kind == "oracle" and self._key(m, prompt, repeat) not in self.texts]
        return [m for m in group if m not in waiting] + waiting

    def _key(self, method: Method, prompt: EncodedPrompt, repeat: int) -> tuple[str, str, int]:
        """What fixes the text: profile, prompt and, unless greedy, the seed."""
        return method.profile, prompt.id, self._seed(repeat) if self.sampling.temperature > 0 else 0

    def _seed(self, repeat: int) -> int:
        assert self.sampling.seed is not None
        return self.sampling.seed + repeat

    def _remember_rows(self) -> None:
        """The texts that rows of earlier sessions settled."""
        prompts = {prompt.id: prompt for prompt in self.prompts}
        methods = {method.name: method for method in self.methods}
        for row in runs(self.journal.rows):
            method = methods[row["method"]]
            if method.keeps_text(self.sampling.temperature) and row["prompt_id"] in prompts:
                key = self._key(method, prompts[row["prompt_id"]], row["repeat"])
                self.texts.setdefault(key, (method.name, row["tokens"]))

    def _forget(self) -> None:
        """Nothing that is asked from here on has been answered before."""
        for name, runner in self.runners.items():
            runner.forget()
            self.n_before[name] = 0

    # -- one request ---------------------------------------------------------------------------------------------

    def _warm_up(self, names: set[str]) -> None:
        """One short unrecorded request for each method that has work to do."""
        shortest = min(self.prompts, key=lambda prompt: len(prompt.tokens), default=None)
        if shortest is None:
            return
        sampling = replace(self.sampling, max_tokens=min(_WARM_UP_TOKENS, self.sampling.max_tokens))
        for i, method in enumerate(method for method in self.methods if method.name in names):
            self.progress("warming up", i, len(names))
            self._ask(method, Request(shortest.tokens, sampling, []))
        self.progress("warming up", len(names), len(names))

    def _ask(self, method: Method, request: Request) -> Answer | None:
        """None from a peer that failed: it is reported and gone."""
        try:
            return self.runners[method.name].run(request)
        except MissingPeer as reason:
            self.journal.add({"kind": "missing", "method": method.name, "reason": str(reason)})
            self.say(f"`{method.name}` stops here: {reason}")
            self.runners.pop(method.name).close()
            return None

    def _measure(self, method: Method, prompt: EncodedPrompt, repeat: int, position: int) -> None:
        key = self._key(method, prompt, repeat)
        seed = self._seed(repeat)
        _, text = self.texts.get(key, ("", None))
        started = time.time()
        answer = self._ask(method, Request(prompt.tokens, replace(self.sampling, seed=seed), text))
        if answer is None:
            return
        settings = {
            "profile": method.profile,
            "drafter": method.drafter or method.kind,
            "n_draft": method.n_draft,
            "policy": method.policy,
            "rule": method.rule,
            "max_tokens": self.sampling.max_tokens,
            "ignore_eos": self.sampling.ignore_eos,
        }
        row: JSON = {
            "kind": "run",
            "method": method.name,
            "task": prompt.task,
            "prompt_id": prompt.id,
            "repeat": repeat,
            "position": position,
            "started": round(started, 3),
            "n_prompt": len(prompt.tokens),
            "seed": seed,
            "temperature": self.sampling.temperature,
            "n_before": self.n_before[method.name],
            "settings": settings,
        }
        self.n_before[method.name] += 1
        self.journal.add({**row, **answer.to_json()})
        if method.keeps_text(self.sampling.temperature):
            self._compare(method, prompt, key, answer.tokens)

    def _compare(self, method: Method, prompt: EncodedPrompt, key: tuple[str, str, int], tokens: list[int]) -> None:
        """Raise the alarm where a text that must not depend on the method does."""
        other, text = self.texts.setdefault(key, (method.name, tokens))
        at = first_difference(text, tokens)
        if at is None or not {method.name, other} <= self.exact:
            return
        ids = [seq[at] if at < len(seq) else None for seq in (text, tokens)]
        names = {"method": method.name, "other": other, "prompt_id": prompt.id, "task": prompt.task}
        self.journal.add({"kind": "mismatch", **names, "at": at, "token": ids[1], "other_token": ids[0]})
        self.say(
            f"NOT IDENTICAL: prompt `{prompt.id}` ({prompt.task}), token {at} of the answer is {_shown(ids[1])} with "
            f"{method.name} and {_shown(ids[0])} with {other}"
        )


def _shown(token: int | None) -> str:
    return "the end" if token is None else f"id {token}"
