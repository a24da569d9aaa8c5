"""What the bins of heterospec are fitted to, measured: ``python -m wager.bench.bins [MODEL [DRAFTER [PER_TASK]]]``.

Every fully accepted path of a draft tree gives the mean entropy of the tree's best path, and the rank of the accepted
path among all paths by the product of probabilities (HeteroSpec, 2505.13254).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence as ListLike

import numpy as np

from wager.bench.suite import choose, load_suite, suite_path
from wager.llm import LLM
from wager.pack import paths
from wager.policies import Tree
from wager.policies.heterospec import Bins, fit_bins
from wager.types import Draft, Drafter, Limits, Sampling, Sequence, Verdict

_DEPTH, _WIDTH, _MAX_TOKENS = 4, 4, 64
_TEMPERATURES = (0.0, 0.8)


class Watching:
    """Drafts a tree always whole; keeps (entropy, rank) of every path that was accepted to its end."""

    def __init__(self) -> None:
        self.found: list[tuple[float, int]] = []
        self.n_drafts = 0
        self._bins: dict[int, Bins] = {}

    def limits(self, seqs: ListLike[Sequence], drafter: Drafter) -> list[Limits]:
        self._bins = {seq.id: Bins(_DEPTH, 0, ()) for seq in seqs}
        return [Tree(_WIDTH).limits(_DEPTH, stop=self._bins[seq.id]) for seq in seqs]

    def cut(self, seqs: ListLike[Sequence], drafts: ListLike[Draft]) -> list[Draft]:
        return list(drafts)

    def observe(self, seqs: ListLike[Sequence], drafts: ListLike[Draft], verdicts: ListLike[Verdict]) -> None:
        for seq, draft, verdict in zip(seqs, drafts, verdicts, strict=True):
            self.n_drafts += len(draft) > 0
            if len(verdict.path) == _DEPTH and draft.confidence is not None:
                probs = draft.confidence.tolist()
                worth = {path: math.prod(probs[node] for node in path) for path in paths(draft)}
                whole = sorted((path for path in worth if len(path) == _DEPTH), key=lambda path: -worth[path])
                self.found.append((self._bins[seq.id].entropy, whole.index(verdict.path)))

    def forget(self, seq_id: int) -> None:
        """The next draft starts anew."""


def watched(llm: LLM, drafter: str, prompts: ListLike[ListLike[int]], *, max_tokens: int = _MAX_TOKENS) -> Watching:
    """Answers to ``prompts`` (token ids), one by one at each temperature, seeds by their place."""
    engine = llm.make_engine(drafter=drafter, num_draft_tokens=_DEPTH, tree_width=_WIDTH)
    policy = engine.policy = Watching()
    for temperature in _TEMPERATURES:
        for seed, tokens in enumerate(prompts):
            engine.submit(tokens, Sampling(temperature=temperature, max_tokens=max_tokens), seed=seed)
            while engine.has_work:
                engine.step()
    return policy


def main(model: str = "smollm2-135m", drafter: str = "copy:int4", per_task: str = "2") -> None:
    llm = LLM(model, drafter="none")
    prompts = choose(load_suite(suite_path("mixed")), per_task=int(per_task), tasks=())
    found = watched(llm, drafter, [llm.text.chat([{"role": "user", "content": prompt.text}]) for prompt in prompts])
    entropies, ranks = np.array(found.found, np.float64).reshape(-1, 2).T
    cuts = ", ".join(f"{cut:.3f}" for cut in fit_bins(entropies, ranks))
    print(f"{len(ranks)} of {found.n_drafts} drafts with a path accepted to its end; bins part at {cuts} nats a token")


if __name__ == "__main__":
    main(*sys.argv[1:])
