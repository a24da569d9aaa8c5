"""LLM, the front door: load a model once, then generate, stream or chat; every option is honoured or refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListLike
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from wager.asks import Asks
from wager.asks import Prompt as Prompt
from wager.completion import Completion as Completion
from wager.completion import Progress, Request
from wager.completion import sampling_defaults as sampling_defaults
from wager.drafters import check_spec, make_drafter
from wager.drafters.drawing import Drawing
from wager.drafting import (
    DraftTarget,
    Tree,
    check_identical,
    check_policy_takes,
    drawing_for,
    planned,
    promise,
    spelled,
)
from wager.engine import Engine
from wager.errors import OptionError
from wager.explained import Explained
from wager.grammar import Vocabulary
from wager.measured import fingerprint_of, loaded_text, measured
from wager.models import catalog
from wager.models.openvino import load_model
from wager.pack import least_rows
from wager.record import StepRecord
from wager.score import Continuations
from wager.types import JSON, Drafter, Event, Sampling
from wager.verify import RuleInfo, check_rule_takes, rule_named

Message = Mapping[str, str]
_USUAL_ROWS = 8  # that few verifying steps of one text feed more than: their graph is there from the start
AUTO_DRAFTER = "blend"  # what needs no second model


class LLM(Asks):
    """A model with its engine. Not thread-safe: use it from one thread.

    ``model``: catalog name, OWNER/NAME, IR folder or GGUF file. ``drafter``: none, auto, one of docs/drafters.md, or an
    object (a ``Drafter``). ``policy``: how much is drafted (docs/policies.md): None is fixed where ``num_draft_tokens``
    or a tree is given, else cost. ``rule``: how drafts are verified (docs/rules.md); only walk keeps sampled text
    independent of them. ``tree_width``: children a node of a draft tree has, at ``tree_levels`` levels after
    ``tree_trunk`` tokens. ``kv_cache_gb``: memory for K/V (default: eight full contexts, at most a quarter of what is
    free and 8 GB; a draft model has its own). ``max_seqs``: answers written at once.
    ``require_identical``: raise IdentityError where text might depend on how tokens are grouped.
    ``progress(what, done, total)`` is told about long work. Raises WagerError kinds.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        drafter: Drafter | str = "auto",
        profile: str = "fast",
        policy: str | None = None,
        num_draft_tokens: int | None = None,
        rule: str = "walk",
        tree_width: int = 1,
        tree_trunk: int = 0,
        tree_levels: int = 1,
        max_seqs: int = 64,
        kv_cache_gb: float | None = None,
        threads: int | None = None,
        require_identical: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._rule = rule_named(rule)
        check_spec(drafter)
        tree: dict[str, Any] = {"tree_width": tree_width, "tree_trunk": tree_trunk, "tree_levels": tree_levels}
        self._policy = planned(policy, drafter, num_draft_tokens, Tree(*tree.values()), self._rule)
        if require_identical:
            check_identical(self._rule, None)
        self._progress, self._threads, memory = progress, threads, _bytes_of(kv_cache_gb)
        self.ir_dir = catalog.resolve(model, progress=progress)
        with ThreadPoolExecutor(1) as beside:  # the tokenizer loads while the graph compiles
            text = beside.submit(loaded_text, self.ir_dir)
            self._model = load_model(
                self.ir_dir, profile=profile, threads=threads, kv_cache_bytes=memory, progress=progress
            )
            self._model.prepare(1 if drafter == "none" else _USUAL_ROWS)
            self.text = text.result()
        self._continuations, self._defaults = Continuations(self.text), sampling_defaults(self.ir_dir)
        self.fingerprint = fingerprint_of(self._model, self.ir_dir)
        self._n_valid_ids = min(self.text.vocab_size, self._model.vocab_size)
        self._exactness, self._cost = measured(self._model, self.fingerprint, self._n_valid_ids, progress=progress)
        self._model.max_rows, self._model.rows_rule = self._exactness.max_rows, self._exactness.rule
        if require_identical:
            check_identical(self._rule, self._exactness.reason)
        self._drafter_name = AUTO_DRAFTER if drafter == "auto" else getattr(drafter, "name", drafter)
        self._engine = self.make_engine(
            drafter=drafter,
            policy=policy,
            num_draft_tokens=num_draft_tokens,
            rule=self._rule,
            max_seqs=max_seqs,
            **tree,
        )

    @property
    def engine(self) -> Engine:
        """The engine behind every call, for those who drive its steps themselves."""
        return self._engine

    def make_engine(
        self,
        *,
        drafter: Drafter | str | None = "auto",
        policy: str | None = None,
        num_draft_tokens: int | None = None,
        rule: RuleInfo | str = "walk",
        tree_width: int = 1,
        tree_trunk: int = 0,
        tree_levels: int = 1,
        max_seqs: int = 64,
        prefix_caching: bool = True,
        remember: bool = True,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> Engine:
        """Another engine over this model, for those who drive steps themselves.

        ``drafter``: a name as for LLM, a drafter object (which draws as it was made to), or None. ``remember``: a named
        drafter may keep what it learns for other processes, and use what they kept. Engines share K/V memory: the one
        that steps takes it, and what the others had there is read again when they step next.
        """
        info, tree = rule_named(rule) if isinstance(rule, str) else rule, Tree(tree_width, tree_trunk, tree_levels)
        plan = planned(policy, "none" if drafter is None else drafter, num_draft_tokens, tree, info)
        if isinstance(drafter, str):
            drafter = self.make_drafter(drafter, drawing_for(info, tree), remember=remember)
        if drafter is not None:
            check_rule_takes(info, drafter, width=tree_width)
            check_policy_takes(plan, drafter, tree)
        rows, forks = least_rows(self._model.rows_rule), not self._model.tree_masks

        def observe(record: StepRecord) -> None:
            self._on_step(record)
            if on_step is not None:
                on_step(record)

        return Engine(
            self._model,
            eos_ids=sorted(self.text.eos_ids),
            n_valid_ids=self._n_valid_ids,
            vocabulary=self.vocabulary,
            drafter=drafter,
            policy=plan.policy(n_tokens=num_draft_tokens, tree=tree, cost=self._cost, min_rows=rows, forks=forks),
            rule=info,
            max_seqs=max_seqs,
            prefix_caching=prefix_caching,
            on_step=observe,
        )

    def make_drafter(self, spec: str, drawing: Drawing, *, remember: bool = True) -> Drafter | None:
        """The drafter that ``spec`` names as for LLM, drawing as asked; None for "none"."""
        if spec == "none":
            return None
        profile, spec = self._model.profile.name, AUTO_DRAFTER if spec == "auto" else spec
        about = (self.text, self._n_valid_ids, profile, self._threads, self._progress, self.ir_dir, drawing)
        return make_drafter(spec, DraftTarget(*about, self._model, remember))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens that grammars are compiled for (``Sampling.constraint``), and those that are compiled."""
        return Vocabulary(self.text, self._n_valid_ids)

    @property
    def info(self) -> JSON:
        """The effective settings, as they are."""
        return {
            "model": str(self.ir_dir.name),
            "profile": self._model.profile.name,
            "properties": dict(self._model.properties),
            "drafter": self._drafter_name,
            "policy": self._policy.spelled,
            "rule": spelled(self._rule),
            "lossless": self._rule.lossless,
            "max_rows": self._model.max_rows,
            "context_length": self._model.context_length,
            "kv_cache_tokens": self._engine.cache.n_blocks * self._engine.cache.block_size,
            "passes": dict(self._model.passes),
            "weight_bytes": self._model.weight_bytes,
            "kernels": self._model.kernels or f"the plugin's ({self._model.kernels_reason})",
            "system_fingerprint": self.fingerprint,
            "exactness": promise(self._rule, self._model.profile.name, self._exactness.reason),
            "rows_rule": self._model.rows_rule,
        }

    @overload
    def generate(self, prompt: Prompt, sampling: Sampling | None = None, *, chat: bool = True,
                 system: str | None = None, speculate: bool = True) -> Completion: ...  # fmt: skip

    @overload
    def generate(self, prompt: ListLike[Prompt], sampling: Sampling | None = None, *, chat: bool = True,
                 system: str | None = None, n: int, speculate: bool = True) -> list[Completion]: ...  # fmt: skip

    def generate(
        self,
        prompt: Prompt | ListLike[Prompt],
        sampling: Sampling | None = None,
        *,
        chat: bool = True,
        system: str | None = None,
        n: int | None = None,
        speculate: bool = True,
    ) -> Completion | list[Completion]:
        """One prompt (text or token ids) gives one Completion; a list of prompts, or ``n``, gives a list.

        All run together, n samples of each prompt, prompt by prompt. ``chat`` applies the model's chat template to
        text prompts. The text of each equals its solo run.
        """
        one = isinstance(prompt, str) or len(prompt) == 0 or isinstance(prompt[0], int | np.integer)
        prompts: list[Any] = [prompt] if one else list(prompt)
        if n is not None and n < 1:
            raise OptionError(f"`n` is {n}: give at least 1")
        encoded = [self.encode(p, chat=chat, system=system) for p in prompts]
        answers = self._run(encoded, sampling or self.sampling(), n or 1, speculate)
        return answers[0] if one and n is None else answers

    def stream(
        self,
        prompt: Prompt,
        sampling: Sampling | None = None,
        *,
        on_event: Callable[[Event], None],
        chat: bool = True,
        system: str | None = None,
        speculate: bool = True,
    ) -> Completion:
        """Generate one answer, calling ``on_event`` as tokens are committed. KeyboardInterrupt cancels cleanly."""
        tokens = self.encode(prompt, chat=chat, system=system)
        return self._run([tokens], sampling or self.sampling(), 1, speculate, on_event)[0]

    def chat_stream(
        self,
        messages: ListLike[Message],
        sampling: Sampling | None = None,
        *,
        on_event: Callable[[Event], None],
        speculate: bool = True,
    ) -> Completion:
        """Answer a conversation (dicts with role and content). The shared beginning is read from the K/V cache."""
        return self._run([self.text.chat(messages)], sampling or self.sampling(), 1, speculate, on_event)[0]

    def warm_up(self) -> None:
        """Compile the graphs for speculative widths now, so that their compilation is in no measurement."""
        self._model.warm_up()

    def prepare(self) -> bool:
        """Half a second of ``warm_up``, for when there is nothing else to do. Returns whether any of it was left."""
        return self._model.prepare()

    def explain(self, tell: Callable[[str], None]) -> None:
        """From now on ``tell`` hears of every step what was drafted, why so much, and what came of it.

        Raises OptionError where nothing drafts.
        """
        if self._engine.drafter is None:
            raise OptionError("there is nothing to explain where `drafter` is 'none': name one, or leave out explain")
        self._engine.policy = Explained(self._engine.policy, tell)

    def close(self) -> None:
        """Free the model. The object cannot be used afterwards."""
        del self._engine, self._model

    # -- inside --------------------------------------------------------------------------------------------------

    def _run(
        self,
        prompts: ListLike[ListLike[int]],
        sampling: Sampling,
        n: int,
        speculate: bool,
        on_event: Callable[[Event], None] | None = None,
    ) -> list[Completion]:
        seeds = [self._seed(sampling) for _ in prompts]
        requests = [Request(t, seed, i) for t, seed in zip(prompts, seeds, strict=True) for i in range(n)]
        return self._complete(requests, sampling, speculate, on_event)

    def _on_step(self, record: StepRecord) -> None:
        if self._model.switches_are_free:
            self._cost.switch_s = 0.0
        self._cost.observe(record.width, record.n_seqs, record.context, record.target_s)


def _bytes_of(kv_cache_gb: float | None) -> int | None:
    if kv_cache_gb is not None and not 0 < kv_cache_gb < math.inf:
        raise OptionError(f"`kv_cache_gb` is {kv_cache_gb}: give a positive number")
    return None if kv_cache_gb is None else int(kv_cache_gb * 2**30)
