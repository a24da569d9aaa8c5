"""The step loop: plan, propose, reserve, pack, forward, settle, commit, observe.

One target forward a step, over many sequences at once. The engine owns the sequences and the block pool; the model
owns the K/V tensors; drafters own their caches. ``seq.tokens`` is the truth and every cache catches up to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike

from wager import guided
from wager.admit import check_request, check_tree
from wager.cache import BlockPool, Fork
from wager.commit import SilentText, TextStream, commit
from wager.pack import (
    Feed,
    Packed,
    Slots,
    extra_rows,
    leading,
    least_rows,
    n_fork_blocks,
    n_in_place,
    n_pad_blocks,
    pack,
    tree_rows,
)
from wager.policies.base import Policy
from wager.record import RunStats, StepRecord
from wager.rounds import Hear, Round, Run, recorded, settled
from wager.sampling import Noise
from wager.schedule import Budget, Turn, at_most, bounded, most_below, plan, rows_for
from wager.tree import merged
from wager.types import (
    EMPTY,
    SAMPLED,
    Draft,
    Drafter,
    Event,
    Forward,
    Limits,
    Model,
    Offers,
    Sampling,
    Seen,
    Sequence,
    Verdict,
)
from wager.verify import RuleInfo, check_rule_takes, rule_named
from wager.view import View
from wager.waiting import may_run, open_tables


class Engine:
    """Runs sequences on a target. Single-threaded: call its methods from one thread.

    ``vocabulary``: what constraints are made for (``constraint.Constraint.guide``). Raises OptionError where ``rule``
    is not right for what ``drafter`` drafts.
    """

    def __init__(
        self,
        model: Model,
        *,
        eos_ids: ListLike[int] = (),
        n_valid_ids: int | None = None,
        drafter: Drafter | None = None,
        policy: Policy | None = None,
        rule: RuleInfo | None = None,
        vocabulary: object = None,
        n_new: int = 512,
        max_seqs: int = 64,
        prefix_caching: bool = True,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> None:
        self.model, self.drafter, self.policy = model, drafter, policy
        self.rule = rule or rule_named("walk")
        if drafter is not None:
            check_rule_takes(self.rule, drafter)
        self.eos_ids = frozenset(eos_ids)
        self.n_valid_ids = n_valid_ids or model.vocab_size
        self.vocabulary = vocabulary
        n_pad = n_pad_blocks(model, model.max_rows)
        self._pad_blocks = range(n_pad)
        self.cache = BlockPool(model.n_blocks - n_pad, model.block_size, first=n_pad, prefix_caching=prefix_caching)
        self.budget = Budget(n_new, model.max_rows, min(max_seqs, model.max_rows // least_rows(model.rows_rule)))
        self._view = View(model, self.cache, drafter)
        self.on_step = on_step
        self._runs: dict[int, Run] = {}  # in order of arrival
        self._next_id = 0

    def draft_with(self, drafter: Drafter) -> None:
        """Have ``drafter`` draft from now on; nothing may run. Raises OptionError where the rule does not take it."""
        check_rule_takes(self.rule, drafter)
        self.drafter, self._view = drafter, View(self.model, self.cache, drafter)

    # -- requests ------------------------------------------------------------------------------------------------

    def submit(
        self,
        tokens: ListLike[int],
        sampling: Sampling,
        *,
        seed: int,
        sample: int = 0,
        text: TextStream | None = None,
        speculate: bool = True,
        drafter: str | None = None,
        num_draft_tokens: int | None = None,
    ) -> Sequence:
        """Queue a prompt. ``drafter``: which of several drafts for it, at most ``num_draft_tokens`` a step.

        Raises PromptError or CapacityError where it can never run, OptionError for bad ids.
        """
        context = self.model.context_length
        check_request(tokens, sampling, self.n_valid_ids, eos_ids=self.eos_ids, context=context, cache=self.cache)
        guide = sampling.constraint.guide(self.vocabulary) if sampling.constraint is not None else None
        seq = Sequence(self._next_id, list(tokens), len(tokens), sampling, seed, sample, guide=guide)
        self._next_id += 1
        if speculate and drafter is not None and isinstance(self.drafter, Offers):
            self.drafter.bind(seq.id, drafter)
        run = Run(seq, Noise(seed, sample), text or SilentText(), self.drafter if speculate else None)
        run.submitted_s, run.most_drafted = time.perf_counter(), num_draft_tokens
        self._runs[seq.id] = run
        return seq

    def read(self, tokens: ListLike[int], *, n_prompt: int, first: int, hear: Hear) -> Sequence:
        """Queue tokens that are all given, the first ``n_prompt`` as a prompt: they are read, and none is drawn.

        ``hear(first, rows)`` is told the logits (V,) after tokens first, first + 1, …, as they come; valid until it
        returns. Raises what ``submit`` does.
        """
        seq = self.submit(tokens, Sampling(max_tokens=1), seed=0, speculate=False)
        run = self._runs[seq.id]
        seq.n_prompt, run.first, run.hear = n_prompt, first, hear
        return seq

    def read_tree(self, tokens: ListLike[int], tree: Draft, *, hear: Hear) -> Sequence:
        """Queue a prompt and a tree below its last token, of at most ``tree_room`` nodes, each fed once.

        ``hear`` is told the logits after the last token and after every node, all at once. Raises as ``submit`` does.
        """
        assert len(tree) <= self.tree_room(len(tokens)), (len(tree), self.tree_room(len(tokens)))
        check_tree(len(tokens), tree, self.n_valid_ids, context=self.model.context_length)
        seq = self.submit(tokens, Sampling(max_tokens=1), seed=0, speculate=False)
        run = self._runs[seq.id]
        run.tree, run.hear = tree, hear
        return seq

    def tree_room(self, n_tokens: int) -> int:
        """Nodes of a tree that can be read after so many tokens; 0 where masks would change logits and are not used."""
        if not (self.model.tree_masks or self.model.masks_are_exact):
            return 0
        n_slots = self.cache.n_blocks * self.cache.block_size - n_tokens - 1
        return max(0, min(most_below(self.budget, rule=self.model.rows_rule), n_slots))

    def cancel(self, seq_id: int) -> None:
        """End a sequence now and free its blocks. Unknown ids (already finished) are fine."""
        run = self._runs.get(seq_id)
        if run is not None:
            run.seq.finish = "cancelled"
            self._close(run)

    def evict(self, seq_id: int) -> None:
        """Take a sequence's blocks away; it reads its tokens again when there is room. Nothing else changes."""
        if self.cache.is_open(seq_id):
            self.cache.close(seq_id)
        self._runs[seq_id].seq.n_cached = 0

    @property
    def has_work(self) -> bool:
        return bool(self._runs)

    def stats(self, seq_id: int) -> RunStats:
        """Totals of a running sequence."""
        return self._runs[seq_id].stats

    # -- the step ------------------------------------------------------------------------------------------------

    def step(self) -> list[Event]:
        """One target forward; none where nothing is queued. An exception before the commit leaves all as it was."""
        if not self._runs:
            return []
        start = time.perf_counter()
        self._own_memory()
        turns = self._plan()
        drafts = self._propose(turns)
        drafted = time.perf_counter()
        rounds: list[Round] = []
        try:
            self._reserve(turns, drafts, rounds)
            packed = self._pack(rounds)
            before = time.perf_counter()
            forward = self.model.forward(packed.batch)
            after = time.perf_counter()
            logits = forward.logits[:, : self.n_valid_ids]
            verdicts = settled(rounds, packed, logits, self.rule.rule, self.eos_ids)
        except BaseException:
            self._undo(rounds)
            raise
        events = self._commit(rounds, packed, forward, verdicts)
        self._observe(rounds, packed, forward, verdicts)
        record = recorded(rounds, packed, events, times=(start, drafted, before, after))
        if self.on_step is not None:
            self.on_step(record)
        return events

    def _own_memory(self) -> None:
        """Where another engine used the model since, every cached row is gone."""
        if self.model.kv_owner is self.cache:
            return
        for seq_id in self._runs:
            if self.cache.is_open(seq_id):
                self.evict(seq_id)
        self.cache.forget()
        self.model.kv_owner = self.cache

    def _plan(self) -> list[Turn]:
        """Who feeds how much; opens tables of sequences that run for the first time (or again after eviction)."""
        rule, seqs = self.model.rows_rule, [run.seq for run in self._runs.values()]
        first = {run.seq.id: run.first for run in self._runs.values() if run.first is not None}
        seqs = may_run(seqs, self.cache, self.budget, rule=rule, first=first)
        self._copy(open_tables(seqs, self.cache, rule=rule, first=first))
        return plan(seqs, self.budget, rule=rule, below={run.seq.id: len(run.tree) for run in self._runs.values()})

    def _propose(self, turns: ListLike[Turn]) -> list[Draft]:
        runs = [self._runs[turn.seq.id] for turn in turns]
        drafts = [run.tree if turn.reaches_end else EMPTY for run, turn in zip(runs, turns, strict=True)]
        asked = [i for i, turn in enumerate(turns) if turn.reaches_end and runs[i].drafter is not None]
        if not asked or self.drafter is None or self.policy is None:
            return drafts
        seqs, drafter = [turns[i].seq for i in asked], self.drafter
        rule, masks, context = self.model.rows_rule, self.model.tree_masks, self.model.context_length
        rows = [rows_for(turns[i], turns, self.budget, rule=rule) for i in asked]

        def room(limit: Limits, i: int, n: int) -> Limits:
            limit, trees = at_most(limit, runs[i].most_drafted), self.rule.trees
            return bounded(limit, turns[i], n, self.budget, context=context, rule=rule, masks=masks, trees=trees)

        forced = [guided.forced(turns[i].seq, room(Limits(n, n), i, n)) for i, n in zip(asked, rows, strict=True)]
        limits = [
            guided.left_to_drafter(room(limit, i, n), run, drafter)
            for limit, i, n, run in zip(self.policy.limits(seqs, drafter), asked, rows, forced, strict=True)
        ]
        try:
            proposed = drafter.propose(seqs, limits)
        finally:
            self._view.release()
        proposed = [guided.fitting(seq, draft) for seq, draft in zip(seqs, proposed, strict=True)]
        kept = self.policy.cut(seqs, proposed)
        for i, n, run, cut in zip(asked, rows, forced, kept, strict=True):
            draft = guided.led(cut, run, drafter)
            # every branch of a tree feeds the pending tokens again: where that is too much, the last ones stay out
            n_committed = turns[i].n_new + extra_rows(turns[i].seq, turns[i].n_new, 1, rule)
            fits = masks or tree_rows(draft, n_committed) <= n
            assert fits or draft.kind not in SAMPLED, "a sampled draft must be cut by its limits, not by its shape"
            drafts[i] = draft if fits else leading(draft, n_committed, n)
        return drafts

    def _reserve(self, turns: ListLike[Turn], drafts: ListLike[Draft], rounds: list[Round]) -> None:
        """Blocks for every row, into ``rounds``. Short of blocks: without drafts, then the youngest are evicted.

        Once a turn goes without, prompts after it wait: they are younger and would take what it needs.
        """
        short = False
        for turn, draft in zip(turns, drafts, strict=True):
            if not self.cache.is_open(turn.seq.id) or (short and not turn.reaches_end):
                continue  # the first: evicted by an earlier one in this very step
            least = draft if self._runs[turn.seq.id].tree is draft else EMPTY
            round_ = self._try_reserve(turn, draft) or self._try_reserve(turn, least)
            while round_ is None and self._evict_youngest({r.feed.seq.id for r in rounds} | {turn.seq.id}):
                round_ = self._try_reserve(turn, least)
            short = short or round_ is None
            if round_ is not None:
                rounds.append(round_)
        assert rounds, "nothing could be scheduled although every sequence fits alone"

    def _try_reserve(self, turn: Turn, draft: Draft) -> Round | None:
        seq = turn.seq
        stop, run, exact = seq.n_cached + turn.n_new, self._runs[seq.id], self.model.masks_are_exact
        fed, node_of = merged(draft)
        masked = self.model.tree_masks or (exact and len(run.tree) > 0)
        feed = Feed(seq, stop, fed, self.model.rows_rule, masked=masked, apart=exact, first=run.first)
        if not self.cache.reserve(seq.id, feed.n_slots):
            return None
        # Room for every draw, equal ones included: whether a draft is verified must not depend on what was drawn.
        if len(fed) < len(draft) and n_fork_blocks(feed, draft, self.cache.block_size) > self.cache.n_free:
            return None
        forks: list[Fork] = []
        for path in feed.branches[1:]:
            fork = self.cache.fork(seq.id, feed.start, stop + len(path))
            if fork is None:
                for other in forks:
                    self.cache.drop(other)
                return None
            forks.append(fork)
        return Round(run, draft, node_of, feed, Slots(self.cache.table(seq.id), tuple(forks)))

    def _copy(self, copies: ListLike[tuple[int, int]]) -> None:
        if copies:
            self.model.copy([src for src, _ in copies], [dst for _, dst in copies])

    def _evict_youngest(self, spared: set[int]) -> bool:
        for run in reversed(self._runs.values()):
            if run.seq.id not in spared and self.cache.is_open(run.seq.id):
                self.evict(run.seq.id)
                return True
        return False

    def _pack(self, rounds: ListLike[Round]) -> Packed:
        self._copy([pair for r in rounds for fork in r.slots.forks for pair in fork.copies])
        return pack(
            [r.feed for r in rounds],
            [r.slots for r in rounds],
            width_for=self.model.width_for,
            pad_blocks=self._pad_blocks,
            block_size=self.cache.block_size,
        )

    def _commit(
        self, rounds: ListLike[Round], packed: Packed, forward: Forward, verdicts: ListLike[Verdict | None]
    ) -> list[Event]:
        events = []
        for round_, index, verdict in zip(rounds, packed.rows, verdicts, strict=True):
            seq, feed = round_.feed.seq, round_.feed
            self._keep_branch(round_, verdict)
            if verdict is None or index is None:
                seq.n_cached = feed.stop
                self.cache.keep(seq.id, seq.tokens, seq.n_cached)
                if round_.run.hear is not None and feed.reaches_end:
                    seq.finish = "stop"
                continue
            tokens = [int(feed.draft.tokens[node]) for node in verdict.path]
            tokens += [verdict.token] if verdict.error is None else []
            rows = [forward.logits[index[node + 1], : self.n_valid_ids] for node in (-1, *verdict.path)]
            event = commit(
                seq,
                tokens,
                rows[: len(tokens)],
                round_.run.text,
                eos_ids=self.eos_ids,
                context_length=self.model.context_length,
                error=verdict.error,
            )
            seq.n_cached = min(feed.stop + n_in_place(feed, verdict.path), len(seq.tokens) - 1)
            self.cache.keep(seq.id, seq.tokens, seq.n_cached)
            round_.run.stats.observe(feed.draft, verdict, len(event.tokens))
            events.append(event)
        return events

    def _keep_branch(self, round_: Round, verdict: Verdict | None) -> None:
        """Adopt the fork that holds the accepted path; release the others."""
        path = verdict.path if verdict is not None else ()
        if not round_.slots.forks:
            return
        kept = next(i for i, branch in enumerate(round_.feed.branches) if branch[: len(path)] == path)
        for i, fork in enumerate(round_.slots.forks, start=1):
            if i == kept:
                self.cache.adopt(round_.feed.seq.id, fork)
            else:
                self.cache.drop(fork)

    def _undo(self, rounds: ListLike[Round]) -> None:
        for round_ in rounds:
            for fork in round_.slots.forks:
                self.cache.drop(fork)
            self.cache.keep(round_.feed.seq.id, round_.feed.seq.tokens, round_.feed.seq.n_cached)

    def _observe(
        self, rounds: ListLike[Round], packed: Packed, forward: Forward, verdicts: ListLike[Verdict | None]
    ) -> None:
        decided = [
            (round_.feed, verdict, Seen(forward.logits[:, : self.n_valid_ids], index, forward.hidden))
            for round_, index, verdict in zip(rounds, packed.rows, verdicts, strict=True)
            if verdict is not None and index is not None and verdict.error is None and round_.run.drafter is not None
        ]
        seqs, drafts = [feed.seq for feed, _, _ in decided], [feed.draft for feed, _, _ in decided]
        try:
            if self.drafter is not None and self.policy is not None and decided:
                self.drafter.observe(seqs, drafts, [v for _, v, _ in decided], [seen for _, _, seen in decided])
                self.policy.observe(seqs, drafts, [v for _, v, _ in decided])
        finally:  # what has finished must not run again, whatever an observer does
            for round_ in rounds:
                if round_.feed.seq.finish is not None:
                    self._close(round_.run)

    # -- small things --------------------------------------------------------------------------------------------

    def _close(self, run: Run) -> None:
        del self._runs[run.seq.id]
        run.seq.guide = None
        if self.cache.is_open(run.seq.id):
            self.cache.close(run.seq.id)
        if self.drafter is not None:
            self.drafter.forget(run.seq.id)
        if self.policy is not None:
            self.policy.forget(run.seq.id)
