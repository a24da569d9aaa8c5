"""Committing tokens: the only place where a sequence grows or finishes, whatever path its tokens came by."""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from typing import Protocol

from wager.errors import WagerError
from wager.sampling import logprobs
from wager.types import F32, Event, Finish, Sampling, Sequence


class TextStream(Protocol):
    """Text of one sequence as it grows.

    ``push`` takes a committed token and returns the piece that is final now, and whether a stop string is complete
    (looked for only where ``may_stop``). ``finish`` returns what was held back.
    """

    def push(self, token: int, *, may_stop: bool) -> tuple[str, bool]: ...
    def finish(self) -> str: ...


class SilentText:
    """A TextStream for callers who want token ids only."""

    def push(self, token: int, *, may_stop: bool) -> tuple[str, bool]:
        return "", False

    def finish(self) -> str:
        return ""


def terminal_ids(sampling: Sampling, eos_ids: frozenset[int]) -> frozenset[int]:
    """Ids that end a sequence once ``min_tokens`` are there (and are impossible before)."""
    ids = frozenset(sampling.stop_token_ids)
    return ids if sampling.ignore_eos else ids | eos_ids


def commit(
    seq: Sequence,
    tokens: ListLike[int],
    rows: ListLike[F32],
    text: TextStream,
    *,
    eos_ids: frozenset[int],
    context_length: int,
    error: WagerError | None = None,
) -> Event:
    """Commit ``tokens`` one at a time until a terminal condition; ``rows`` are the logits each was chosen from. After
    them an ``error`` ends the sequence.

    The token that ends a sequence is committed (ids, logprobs and usage include it); what follows it is dropped. The
    text leaves out end-of-text ids and the stop string.
    """
    sampling = seq.sampling
    ends = terminal_ids(sampling, eos_ids)
    n_tokens, n_logprobs, pieces = len(seq.tokens), len(seq.logprobs), []
    for token, logits in zip(tokens, rows, strict=True):
        seq.tokens.append(token)
        if sampling.logprobs is not None:
            seq.logprobs.append(logprobs(logits, token, sampling.logprobs))
        may_stop = seq.n_output >= sampling.min_tokens
        stopped = token in ends
        if not stopped:
            piece, stopped = text.push(token, may_stop=may_stop)
            pieces.append(piece)
        seq.finish = _finish(seq, context_length, stopped=stopped and may_stop)
        if seq.finish is not None:
            pieces.append(text.finish())
            break
    if seq.finish is None and error is not None:
        seq.finish, seq.error = "error", error
        pieces.append(text.finish())
    committed = tuple(seq.tokens[n_tokens:])
    n_drafted = min(len(committed), len(tokens) - (error is None))
    new = tuple(seq.logprobs[n_logprobs:])
    return Event(seq.id, committed, "".join(pieces), seq.finish, new, n_drafted, seq.error)


def _finish(seq: Sequence, context_length: int, *, stopped: bool) -> Finish | None:
    if stopped:
        return "stop"
    if seq.n_output >= seq.sampling.max_tokens or len(seq.tokens) >= context_length:
        return "length"
    return None
