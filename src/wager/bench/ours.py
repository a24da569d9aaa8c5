"""Our own methods: one loaded model per profile, one engine per method over it."""

from __future__ import annotations

import time
from collections.abc import Callable

from wager.bench.answer import Answer, Request
from wager.bench.methods import Method
from wager.bench.oracle import Certain, Oracle
from wager.bench.replay import Replay, parse_chances
from wager.drafters import drafter_named
from wager.drafting import spelled
from wager.engine import Engine
from wager.llm import LLM
from wager.policies.cost_driven import CostDriven
from wager.record import StepRecord
from wager.text import StreamedText
from wager.types import JSON, Drafter, Sequence

Progress = Callable[[str, int, int], None]


class Ours:
    """One method on a loaded model, timed by ``clock``. Engines that share a model must run one after the other.

    No engine keeps a prompt's K/V for the next request: every method reads every prompt itself.
    """

    def __init__(self, llm: LLM, method: Method, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._llm, self._method, self._clock = llm, method, clock
        self._oracle = _oracle(method)
        self._steps: list[StepRecord] = []
        self._engine = self._new_engine()
        drafter = self._engine.drafter
        self.is_exact = llm.info["exactness"] == "bit-identical"
        self.settings: JSON = {
            **llm.info,
            "drafter": drafter.name if drafter is not None else "none",
            "policy": method.policy or (llm.info["policy"] if method.n_draft is None else "fixed"),
            "rule": spelled(self._engine.rule),
            "n_draft": method.n_draft,
            "forgets": self._is_from_text,
            "weights_bytes": llm.info["weight_bytes"],  # as kernels pack them
        }

    def _new_engine(self) -> Engine:
        method = self._method
        spec: Drafter | str = self._oracle or ("none" if method.kind == "plain" else method.drafter)
        engine = self._llm.make_engine(
            drafter=spec,
            policy=method.policy,
            num_draft_tokens=method.n_draft,
            rule=method.rule,
            prefix_caching=False,
            remember=False,
            on_step=self._steps.append,
        )
        if self._oracle is not None and self._oracle.is_certain and isinstance(engine.policy, CostDriven):
            engine.policy.acceptance = Certain()
        return engine

    @property
    def _is_from_text(self) -> bool:
        """Whether making the drafter anew leaves nothing of its past; another model keeps its K/V."""
        name = self._method.drafter.partition(":")[0].partition("+")[0]
        return name in ("", "auto") or drafter_named(name).family == "text"

    def forget(self) -> None:
        if self._is_from_text:
            self._engine = self._new_engine()

    def run(self, request: Request) -> Answer:
        if self._oracle is not None:
            assert request.text is not None, "an oracle needs the text"
            self._oracle.know(request.tokens, request.text)
        engine, sampling = self._engine, request.sampling
        assert sampling.seed is not None, "a measurement is seeded"
        self._steps.clear()
        text = StreamedText(self._llm.text, sampling.stop)
        times_s: list[float] = []
        n_first = 0
        start = self._clock()
        seq = engine.submit(request.tokens, sampling, seed=sampling.seed, text=text)
        stats = engine.stats(seq.id)
        try:
            while engine.has_work:
                n_new = sum(len(event.tokens) for event in engine.step())
                times_s += [self._clock() - start] * n_new
                n_first = n_first or (len(self._steps) if n_new else 0)
        finally:
            engine.cancel(seq.id)
        return Answer(seq.output, times_s, _finish(seq), stats={**_counts(stats.to_json()), **self._split(n_first)})

    def _split(self, n_first: int) -> JSON:
        """Where the time went after the step that gave the first token, and the shape of each of those steps."""
        steps = self._steps[n_first:]
        return {
            "decode_draft_s": sum(s.draft_s for s in steps),
            "decode_target_s": sum(s.target_s for s in steps),
            "decode_host_s": sum(s.host_s for s in steps),
            "steps": [[s.n_rows, s.width, s.n_committed, round(s.target_s, 6)] for s in steps],
        }

    def close(self) -> None:
        """The model belongs to whoever loaded it."""


def _oracle(method: Method) -> Oracle | None:
    if method.kind != "oracle":
        return None
    if method.argument in ("", "copy"):
        return Oracle(copy_only=method.argument == "copy")
    return Replay(parse_chances(method.argument))


def load(model: str, profile: str, *, threads: int | None, progress: Progress | None) -> LLM:
    """A model with everything compiled that a measurement may need."""
    llm = LLM(model, drafter="none", profile=profile, threads=threads, progress=progress)
    llm.warm_up()
    return llm


def _counts(stats: JSON) -> JSON:
    names = ("n_forwards", "n_drafted", "n_accepted", "draft_s", "target_s", "host_s")
    derived = ("tokens_per_forward", "acceptance_rate", "accepted_by_depth")
    return {name: stats[name] for name in (*names, *derived)}


def _finish(seq: Sequence) -> str:
    assert seq.finish is not None
    return seq.finish
