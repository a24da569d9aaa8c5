"""Answers as they grow: requests to an engine in, completions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wager.engine import Engine
from wager.errors import WagerError
from wager.interrupt import whole
from wager.record import RunStats
from wager.text import StreamedText, Text, read_json
from wager.types import Event, Finish, Sampling, Sequence, TokenLogprob

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. ``tokens`` includes the token that ended it; ``text`` leaves out end-of-text and the stop string.
    ``error``: why the constraint let it go no further, where ``finish`` is "error".
    """

    text: str
    tokens: list[int]
    finish: Finish
    seed: int
    n_prompt: int
    logprobs: tuple[TokenLogprob, ...]
    stats: RunStats
    error: WagerError | None = None

    @property
    def logprob(self) -> float:
        """Log-probability of all tokens under the model's own law, the end included; needs ``Sampling.logprobs``."""
        assert len(self.logprobs) == len(self.tokens), "drawn without logprobs"
        return sum(token.logprob for token in self.logprobs)


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt in token ids, and which of its samples is wanted."""

    tokens: ListLike[int]
    seed: int
    sample: int = 0


@dataclass(slots=True)
class _Answer:
    """An answer while it grows."""

    seq: Sequence
    pieces: list[str] = field(default_factory=list)
    stats: RunStats = field(default_factory=RunStats)

    def completion(self) -> Completion:
        seq = self.seq
        assert seq.finish is not None
        text = "".join(self.pieces)
        about = (seq.output, seq.finish, seq.seed, seq.n_prompt, tuple(seq.logprobs), self.stats, seq.error)
        return Completion(text, *about)


def complete(
    engine: Engine,
    text: Text,
    requests: ListLike[Request],
    sampling: Sampling,
    *,
    speculate: bool = True,
    on_event: Callable[[Event], None] | None = None,
    progress: Progress | None = None,
) -> list[Completion]:
    """Run all requests together, one completion each, in order. Whatever ends it early cancels them all.

    Raises ConstraintError where the only request comes to a dead end; one of several has it in its completion.
    """
    answers: dict[int, _Answer] = {}
    try:
        for request in requests:
            seq = engine.submit(
                request.tokens,
                sampling,
                seed=request.seed,
                sample=request.sample,
                text=StreamedText(text, sampling.stop),
                speculate=speculate,
            )
            answers[seq.id] = _Answer(seq, stats=engine.stats(seq.id))
        while engine.has_work:
            with whole():
                events = engine.step()
            for event in events:
                answers[event.seq_id].pieces.append(event.text)
                if on_event is not None:
                    on_event(event)
            if progress is not None:
                _tell_reading(answers, progress)
    finally:
        for seq_id in answers:
            engine.cancel(seq_id)
    completions = [answer.completion() for answer in answers.values()]
    if len(completions) == 1 and completions[0].error is not None:
        raise completions[0].error
    return completions


def _tell_reading(answers: Mapping[int, _Answer], progress: Progress) -> None:
    """Progress of long prompts, until every one has its first token."""
    if any(a.seq.n_output == 0 for a in answers.values()):
        done = sum(a.seq.n_cached if a.seq.n_output == 0 else a.seq.n_prompt for a in answers.values())
        progress("reading the prompt", done, sum(a.seq.n_prompt for a in answers.values()))


def sampling_defaults(ir_dir: Path) -> dict[str, Any]:
    """Sampling options of generation_config.json; greedy where it says nothing, or says do_sample is false."""
    config = read_json(ir_dir / "generation_config.json")
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    given = {name: config[name] for name in names if config.get(name) is not None}
    if config.get("do_sample") is False:
        given = {name: value for name, value in given.items() if name == "repetition_penalty"}
    return given
