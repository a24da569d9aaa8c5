"""A policy that says what it does: of every step what was drafted and from what, how much was fed and why."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike

from wager.guided import SOURCE
from wager.policies import Policy
from wager.types import Draft, Drafter, Explains, Limits, Sequence, Verdict


class Explained:
    """Does what ``policy`` does, and tells."""

    def __init__(self, policy: Policy | None, tell: Callable[[str], None]) -> None:
        assert policy is not None, "an engine without a policy drafts nothing"
        self._policy = policy
        self._tell = tell
        self._drafter: Drafter | None = None
        self._drafted: dict[int, str] = {}
        self._n_steps = 0

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        self._drafter = drafter
        return self._policy.limits(seqs, drafter)

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        kept = self._policy.cut(seqs, drafts)
        for seq, draft, fed in zip(seqs, drafts, kept, strict=True):
            why = f" ({self._policy.explain(seq.id)})" if isinstance(self._policy, Explains) else ""
            self._drafted[seq.id] = f"{self._source(seq, draft)}; fed {len(fed)} of {len(draft)}{why}"
        return kept

    def _source(self, seq: Sequence, draft: Draft) -> str:
        name = draft.source or (self._drafter.name if self._drafter is not None else "")
        if not len(draft):
            return f"{name} drafted nothing"
        about = "" if not draft.support else f", {draft.support} tokens matched"
        if isinstance(self._drafter, Explains):
            about += f": {self._drafter.explain(seq.id)}"
        return name + about

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        self._policy.observe(seqs, drafts, verdicts)
        self._n_steps += 1
        for seq, draft, verdict in zip(seqs, drafts, verdicts, strict=True):
            drafted = self._drafted.pop(seq.id, "nothing was drafted")
            of = f" of {seq.id}" if len(seqs) > 1 else ""
            forced = f"; {len(draft)} forced by the constraint" if draft.source == SOURCE else ""
            self._tell(f"step {self._n_steps}{of}: {drafted}{forced}; accepted {len(verdict.path)}")

    def forget(self, seq_id: int) -> None:
        self._drafted.pop(seq_id, None)
        self._policy.forget(seq_id)
