"""Does the bit-identity rule hold here? A cheap test at a model's first load, remembered afterwards.

That a token's logits do not depend on how tokens are grouped (given a rows rule, design fact 5) is a property of
kernels, so it is tested on the machine, model and settings at hand: narrow and wide groupings, several sequences at
once, a long context. The best rule that holds is taken, and the widest forward that still agrees becomes ``max_rows``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace

import numpy as np

from wager.pack import Feed, Slots, n_pad_blocks, pack
from wager.types import F32, JSON, Model, RowsRule, Sampling, Sequence

_WIDE = (64, 128, 256, 512)
_N_NARROW = 34  # more than a block
_N_OUTPUT = 14


@dataclass(frozen=True, slots=True)
class Exactness:
    """The rule to lay out rows by, the widest forward, and ``reason``: None, or what differed under every rule."""

    rule: RowsRule
    max_rows: int
    reason: str | None = None

    def to_json(self) -> JSON:
        return {"rule": self.rule, "max_rows": self.max_rows, "reason": self.reason}


def check_exact(
    model: Model, n_valid_ids: int, rules: ListLike[RowsRule] = ("split", "pair"), *, budget_s: float = 8.0
) -> Exactness:
    """Compare logits bit by bit across groupings. Uses the model's first blocks: call it before any engine does.

    Where no rule holds, or none is asked for, the rule is "any" and ``reason`` says why.
    """
    limit = min(max(_WIDE), model.context_length - 2, (model.n_blocks // 4 - 4) * model.block_size)
    tokens = np.random.default_rng(0).integers(0, n_valid_ids, limit).tolist()
    reasons = []
    for rule in rules:
        check = _Check(model, tokens, rule)
        reason = check.narrow()
        if reason is None:
            return Exactness(rule, check.widest(budget_s))
        reasons.append(f"{rule}: {reason}")
    return Exactness("any", model.max_rows, "; ".join(reasons) or "the profile does not promise it")


@dataclass(frozen=True, slots=True)
class _Check:
    model: Model
    tokens: list[int]
    rule: RowsRule

    def narrow(self) -> str | None:
        """What differs between narrow groupings of a prompt, or of output tokens; None where nothing does."""
        text = self.tokens[:_N_NARROW]
        for n_prompt, widths in ((_N_NARROW, (2, 5, 16, _N_NARROW)), (_N_NARROW - _N_OUTPUT, (1, 2, 5, _N_OUTPUT))):
            base = self._read(text, n_prompt, widths[0])
            for width in widths[1:]:
                reason = _difference(base, self._read(text, n_prompt, width), f"{widths[0]} and {width} new tokens")
                if reason is not None:
                    return reason
            others = {
                "one and three sequences": self._read(text, n_prompt, 4, beside=True),
                "prompt and output apart and in one forward": self._read(text, n_prompt, 7, across=True),
            }
            for between, logits in others.items():
                reason = _difference(base, logits, between)
                if reason is not None:
                    return reason
        return None

    def widest(self, budget_s: float) -> int:
        """The widest forward that reads a prompt, and settles output tokens, like forwards of 32 rows."""
        start, max_rows = time.perf_counter(), 32
        for width in _WIDE:
            if width > len(self.tokens) or (width > min(_WIDE) and time.perf_counter() - start > budget_s):
                break
            text = self.tokens[:width]
            kinds = (width, _N_NARROW - _N_OUTPUT)  # all of it a prompt, most of it output
            if not all(np.array_equal(self._read(text, n, 32), self._read(text, n, width)) for n in kinds):
                break
            max_rows = width
        return max_rows

    def _read(self, tokens: list[int], n_prompt: int, width: int, *, beside: bool = False, across: bool = False) -> F32:
        """Logits (len(tokens), V) of one sequence that takes ``width`` tokens a forward.

        ``beside``: with two other sequences; ``across``: the end of the prompt and output tokens in one forward.
        """
        rows: list[F32] = []
        seq = Sequence(0, tokens, n_prompt, Sampling(), 0)
        while seq.n_cached < len(tokens):
            end = n_prompt if seq.n_cached < n_prompt and not across else len(tokens)
            stop = min(seq.n_cached + width, end)
            if n_prompt - stop == 1 or (end - stop == 1 and stop < n_prompt):  # no token is left alone in a prompt
                stop += 1
            rows += list(self._forward(seq, stop, self._neighbours(stop) if beside else ()))
            seq.n_cached = stop
        return np.array(rows)

    def _neighbours(self, stop: int) -> list[tuple[Sequence, int]]:
        """A sequence that reads its prompt and one that is at its output, with whatever K/V their blocks hold."""
        size = stop + 2
        reading = Sequence(1, self.tokens[:size], size, Sampling(), 0, n_cached=max(0, stop - 3))
        writing = Sequence(2, self.tokens[:size], max(2, stop - 4), Sampling(), 0, n_cached=max(2, stop - 2))
        return [(reading, stop), (writing, max(3, stop))]

    def _forward(self, seq: Sequence, stop: int, beside: ListLike[tuple[Sequence, int]]) -> F32:
        """Feed ``seq`` up to ``stop`` beside other sequences; logits of its new tokens."""
        size, model = self.model.block_size, self.model
        n_pad = n_pad_blocks(model, max(_WIDE))
        per_seq = -(-(len(seq.tokens) + 4) // size)
        feeds = [Feed(s, end, rule=self.rule) for s, end in ((seq, stop), *beside)]
        slots = [Slots(range(n_pad + i * per_seq, n_pad + (i + 1) * per_seq)) for i in range(len(feeds))]
        packed = pack(feeds, slots, width_for=model.width_for, pad_blocks=range(n_pad), block_size=size)
        n_first, n_new = feeds[0].stop - feeds[0].start + feeds[0].n_padding, stop - seq.n_cached
        wanted = np.arange(n_first, dtype=np.int64)[-n_new - feeds[0].n_padding :][:n_new]
        return model.forward(replace(packed.batch, rows=wanted)).logits.copy()


def _difference(a: F32, b: F32, between: str) -> str | None:
    if np.array_equal(a, b):
        return None
    return f"logits differ by up to {float(np.abs(a - b).max()):.2g} between {between}"
