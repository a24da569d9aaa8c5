"""What drafting without some modules would have got right, replayed on texts that the target wrote."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from wager.drafters.skip_search import Modules
from wager.errors import CapacityError
from wager.models import skipping
from wager.models.openvino import OpenVINOModel
from wager.pack import Feed, Slots, pack
from wager.types import F64, I64, Batch, Sampling, Sequence

SPAN = 4  # drafted tokens a trial


@dataclass(frozen=True, slots=True)
class Written:
    """A text that the target wrote greedily: prompt and output, ``n_prompt`` tokens of it prompt."""

    tokens: list[int]
    n_prompt: int


@dataclass(frozen=True, slots=True, eq=False)
class _Trials:
    """One forward of many drafts: ``batch`` with all its rows wanted, ``truth`` (drafts, tokens) what is right."""

    batch: Batch
    truth: I64


class Replay:
    """What a target without some modules would have drafted for texts, in one forward a set.

    Every ``SPAN`` tokens a draft starts that sees the target's own K/V up to there and its own after it, told the
    right tokens: where it is right from its first token on is what a verification accepts. Takes the model's K/V
    memory: engines read again. Raises CapacityError where that is too small.
    """

    def __init__(self, target: OpenVINOModel, texts: ListLike[Written]) -> None:
        target.kv_owner = self
        self.n_modules = target.n_modules
        self._target, self._n_taken = target, 0
        self._gated = target.variant(skipping.gate)
        self._set(frozenset())
        tables = [self._read(text) for text in texts]
        drafts = [
            (text, table, start, SPAN)
            for text, table in zip(texts, tables, strict=True)
            for start in range(text.n_prompt - 1, len(text.tokens) - SPAN, SPAN)
        ]
        whole = [(t, table, t.n_prompt - 1, len(t.tokens) - t.n_prompt) for t, table in zip(texts, tables, strict=True)]
        self._drafts = [self._trials(part) for part in self._parts(drafts)]
        self._whole = [self._trials([each]) for each in whole]

    def accepted(self, modules: Modules) -> I64:
        """(drafts,) how many of the ``SPAN`` tokens of each draft would have been accepted."""
        right = np.concatenate([self._right(trials, modules) for trials in self._drafts])
        n: I64 = np.cumprod(right, axis=1, dtype=np.int64).sum(axis=1)
        return n

    def matchness(self, modules: Modules) -> float:
        """SWIFT's own score: share of the output that is right in one pass over all of it, seeing its own K/V."""
        return float(np.concatenate([self._right(trials, modules).ravel() for trials in self._whole]).mean())

    def measures(self) -> tuple[F64, F64]:
        """Means over the outputs: the confidence of every module (modules,), the cosine of the stream before and after
        every attention (layers,).
        """
        confidences, cosines = [], []
        for trials in self._whole:
            self._right(trials, frozenset())
            stream = self._rows(skipping.STREAM)
            for i in range(self.n_modules):
                result = self._rows(f"module.{i}")
                confidences.append(_confidence(result))
                cosines.append(_cosine(stream, stream + result))
                stream = stream + result
        shape = (-1, self.n_modules)
        return np.reshape(confidences, shape).mean(axis=0), np.reshape(cosines, shape).mean(axis=0)[::2]

    # -- inside --------------------------------------------------------------------------------------------------

    def _set(self, modules: Modules) -> None:
        gates = np.ones(self.n_modules, np.float32)
        gates[sorted(modules)] = 0
        self._gated.put(skipping.GATES, gates)

    def _right(self, trials: _Trials, modules: Modules) -> npt.NDArray[np.bool_]:
        self._set(modules)
        logits = self._gated.forward(trials.batch).logits
        return np.asarray(logits.argmax(axis=1).reshape(trials.truth.shape) == trials.truth)

    def _rows(self, name: str) -> F64:
        values = self._gated.output(name)
        return values.reshape(-1, values.shape[-1]).astype(np.float64)

    def _take(self, n: int) -> list[int]:
        taken = range(self._n_taken, self._n_taken + n)
        if taken.stop > self._target.n_blocks:
            raise CapacityError(
                f"`kv_cache_gb` holds {self._target.n_blocks * self._target.block_size} tokens, too few for these "
                "prompts: give fewer prompts or more memory"
            )
        self._n_taken = taken.stop
        return list(taken)

    def _read(self, text: Written) -> list[int]:
        """Blocks with the K/V of a text, all modules at work."""
        table = self._take(-(-len(text.tokens) // self._target.block_size))
        seq = Sequence(0, text.tokens, len(text.tokens), Sampling(), 0)
        while seq.n_cached < len(text.tokens):
            stop = min(seq.n_cached + self._target.max_rows, len(text.tokens))
            self._gated.forward(self._batch([(replace(seq), stop, table)]))
            seq.n_cached = stop
        return table

    def _parts(self, drafts: ListLike[_Draft]) -> Iterator[ListLike[_Draft]]:
        n = max(1, self._target.max_rows // SPAN)
        for i in range(0, len(drafts), n):
            yield drafts[i : i + n]

    def _trials(self, drafts: ListLike[_Draft]) -> _Trials:
        """Drafts side by side, each with blocks of its own from the one on that it starts in."""
        size, feeds, truth = self._target.block_size, [], []
        for text, table, start, n in drafts:
            first = start // size
            own = self._take((start + n - 1) // size + 1 - first)
            self._target.copy(table[first : first + 1], own[:1])
            seq = Sequence(0, text.tokens, len(text.tokens), Sampling(), 0, n_cached=start)
            feeds.append((seq, start + n, [*table[:first], *own]))
            truth.append(text.tokens[start + 1 : start + n + 1])
        return _Trials(self._batch(feeds), np.array(truth, np.int64))

    def _batch(self, feeds: ListLike[tuple[Sequence, int, list[int]]]) -> Batch:
        packed = pack(
            [Feed(seq, stop, rule="any") for seq, stop, _ in feeds],
            [Slots(table) for _, _, table in feeds],
            width_for=lambda n: n,
            pad_blocks=(),
            block_size=self._target.block_size,
        )
        return replace(packed.batch, rows=np.arange(len(packed.batch.tokens), dtype=np.int64))


_Draft = tuple[Written, list[int], int, int]  # text, its blocks, where the draft starts, its length


def _confidence(result: F64) -> float:
    """1 - entropy / log(width) of the softmax of each row (T, H), the mean over rows."""
    x = result - result.max(axis=1, keepdims=True)
    total = np.log(np.exp(x).sum(axis=1, keepdims=True))
    p = np.exp(x - total)
    return float(1 + (p * (x - total)).sum(axis=1).mean() / np.log(result.shape[1]))


def _cosine(a: F64, b: F64) -> float:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / np.maximum(lengths, 1e-30)).mean())
