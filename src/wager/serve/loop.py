"""The engine's thread: requests join and leave between two steps, everything else happens elsewhere.

The asynchronous side hands over an ``Ask`` and gets a ``Ticket``, whose parts arrive as the engine commits tokens. The
engine is touched by this one thread only; the two sides meet in a queue each way.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from collections.abc import Sequence as ListLike
from contextlib import suppress
from dataclasses import dataclass, field

from wager.engine import Engine
from wager.errors import WagerError
from wager.record import RunStats, StepRecord
from wager.sampling import logprobs
from wager.score import Trie, queue_reads
from wager.serve.errors import ApiError
from wager.text import StreamedText, Text
from wager.types import F32, Event, Sampling, Sequence, TokenLogprob

_RECENT = 32  # finished requests whose mean time says when to come back
_PATHS_AN_ANSWER = 16
_IDLE_S = 0.5  # how often an idle thread looks at its deadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """``n`` samples of each of the ``prompts`` (token ids). ``drafter``: which of the engine's drafts, or "none".
    ``num_draft_tokens``: draft at most so many a step. ``before``: by prompt, tokens whose last character answers end.
    """

    prompts: ListLike[ListLike[int]]
    sampling: Sampling
    seed: int
    n: int = 1
    drafter: str
    num_draft_tokens: int | None = None
    deadline_s: float = math.inf
    before: ListLike[ListLike[int]] = ()

    @property
    def n_sequences(self) -> int:
        return len(self.prompts) * self.n

    def begin(self, engine: Engine, text: Text) -> Iterator[Sequence]:
        """Queue everything, one by one. Raises what ``Engine.submit`` does."""
        for i, tokens in enumerate(self.prompts):
            before = self.before[i] if self.before else ()
            for sample in range(self.n):
                yield engine.submit(
                    tokens,
                    self.sampling,
                    seed=self.seed,
                    sample=sample,
                    text=StreamedText(text, self.sampling.stop, before),
                    speculate=self.drafter != "none",
                    drafter=self.drafter,
                    num_draft_tokens=self.num_draft_tokens,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Candidates to be read: ``tries`` are filled when the ticket ends."""

    tries: ListLike[Trie]
    deadline_s: float = math.inf

    @property
    def n_sequences(self) -> int:
        """As answers count that take as long: a path is read in a step or two."""
        return max(1, sum(len(trie.paths) for trie in self.tries) // _PATHS_AN_ANSWER)

    def begin(self, engine: Engine, text: Text) -> Iterator[Sequence]:
        """Queue every path of every trie. Raises what ``Engine.read`` does."""
        for trie in self.tries:
            yield from queue_reads(engine, trie)


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Prompts whose own log-probabilities are wanted, with the ``n_top`` likeliest tokens: ``found`` at the end.

    ``found``: by prompt, of every token but the first, which nothing stands before.
    """

    prompts: ListLike[ListLike[int]]
    n_top: int
    deadline_s: float = math.inf
    found: list[list[TokenLogprob]] = field(default_factory=list)

    @property
    def n_sequences(self) -> int:
        return len(self.prompts)

    def begin(self, engine: Engine, text: Text) -> Iterator[Sequence]:
        """Queue every prompt of at least two tokens. Raises what ``Engine.read`` does."""
        for tokens in self.prompts:
            mine: list[TokenLogprob] = []
            self.found.append(mine)

            def hear(
                first: int,
                rows: ListLike[F32],
                tokens: ListLike[int] = tokens,
                mine: list[TokenLogprob] = mine,
            ) -> None:
                asked = zip(rows, tokens[first + 1 :], strict=False)  # nothing is known after the last token
                mine.extend(logprobs(row, token, self.n_top) for row, token in asked)

            yield engine.read(tokens, n_prompt=len(tokens), first=0, hear=hear)


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence of a request gained: ``index`` counts samples, prompt by prompt."""

    index: int
    event: Event


Work = Ask | Scoring | Echo


@dataclass(slots=True, eq=False)
class Ticket:
    """A request in flight, as the asynchronous side sees it. ``sequences`` and ``stats`` are complete at the end."""

    ask: Work
    _loop: asyncio.AbstractEventLoop
    arrived_s: float = field(default_factory=time.monotonic)
    sequences: list[Sequence] = field(default_factory=list)
    stats: list[RunStats] = field(default_factory=list)
    n_unfinished: int = 0
    done: bool = False
    _parts: asyncio.Queue[Part | Exception | None] = field(default_factory=asyncio.Queue)

    async def parts(self) -> AsyncIterator[Part]:
        """Parts as they come, to the end. Raises what went wrong: WagerError, ApiError, or a bug of ours."""
        while True:
            part = await self._parts.get()
            if part is None:
                return
            if isinstance(part, Exception):
                raise part
            yield part

    def put(self, part: Part | Exception | None) -> None:
        """From the engine's thread; a loop that is gone has nobody left to tell."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._parts.put_nowait, part)


class EngineLoop:
    """Runs ``engine`` in a thread of its own. ``on_step`` and ``on_done`` are called in that thread, and ``on_idle``
    whenever there was nothing to do for a while.

    At most ``max_queue`` sequences may wait beyond those the engine runs at once.
    """

    def __init__(
        self,
        engine: Engine,
        text: Text,
        *,
        max_queue: int,
        on_step: Callable[[StepRecord], None] | None = None,
        on_done: Callable[[Ticket], None] | None = None,
        on_idle: Callable[[], object] | None = None,
    ) -> None:
        self._engine, self._text, self._on_done, self._on_idle = engine, text, on_done, on_idle
        self._max_sequences = engine.budget.n_seqs + max_queue
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._tickets: dict[int, tuple[Ticket, int]] = {}  # sequence id -> its request, and its place there
        self._lock = threading.Lock()
        self._n_sequences = 0  # in flight, those not yet taken over by the thread included
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._beat_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="wager-engine", daemon=True)
        self._previous_on_step, engine.on_step = engine.on_step, self._stepped
        self._told_step = on_step

    # -- the asynchronous side -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def submit(self, ask: Work) -> Ticket:
        """Queue a request. Raises ApiError 429 where too many wait already."""
        with self._lock:
            if self._n_sequences + ask.n_sequences > self._max_sequences:
                message = f"{self._n_sequences} answers are being written or wait already: come back later"
                raise ApiError(429, message, code="queue_full", retry_after_s=self.retry_after_s)
            self._n_sequences += ask.n_sequences
        ticket = Ticket(ask, asyncio.get_running_loop())
        self._commands.put(lambda: self._begin(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """The request is not wanted any more: everything it holds is free before the next step."""
        self._commands.put(lambda: self._end(ticket))

    def turn_away(self) -> None:
        """Tell everybody that the server ends, whatever they wait for."""
        self._commands.put(self._turn_away)

    def close(self, *, timeout_s: float = 30.0) -> None:
        """Cancel what runs and end the thread."""
        self._commands.put(None)
        self._thread.join(timeout_s)

    @property
    def retry_after_s(self) -> int:
        """Whole seconds in which about one of the recent requests was done."""
        seconds = list(self._seconds)
        return max(1, math.ceil(sum(seconds) / len(seconds))) if seconds else 1

    @property
    def n_sequences(self) -> int:
        """Sequences that run or wait."""
        return self._n_sequences

    @property
    def n_running(self) -> int:
        return min(self._n_sequences, self._engine.budget.n_seqs)

    @property
    def kv_used(self) -> float:
        """Share of the K/V blocks that running sequences hold."""
        cache = self._engine.cache
        return 1 - cache.n_free / cache.n_blocks

    @property
    def prefix_rows(self) -> tuple[int, int]:
        """Rows of K/V that were looked for in the cache since the start, and those that were found."""
        return self._engine.cache.n_prefix_queries, self._engine.cache.n_prefix_hits

    def stalled_s(self) -> float:
        """Seconds since the thread last showed that it lives; infinite where it has ended."""
        return time.monotonic() - self._beat_s if self._thread.is_alive() else math.inf

    # -- the engine's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self._beat_s = time.monotonic()
            if not self._take_commands():
                break
            self._expire()
            if self._engine.has_work:
                self._step()
            elif self._on_idle is not None and self._commands.empty():
                self._rest(self._on_idle)
        self._turn_away()

    def _turn_away(self) -> None:
        for ticket in self._flying():
            ticket.put(ApiError(503, "the server is shutting down", code="shutting_down"))
            self._end(ticket)

    def _rest(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            logging.getLogger("wager.serve").exception("what an idle server does failed, and is not tried again")
            self._on_idle = None

    def _take_commands(self) -> bool:
        """Do what was asked for since the last step; wait for something to do. False: end."""
        wait = not self._engine.has_work
        while True:
            try:
                command = self._commands.get(block=wait, timeout=_IDLE_S if wait else None)
            except queue.Empty:
                return True
            if command is None:
                return False
            try:
                command()
            except Exception:
                logging.getLogger("wager.serve").exception("work between two steps failed")
            wait = False

    def _begin(self, ticket: Ticket) -> None:
        try:
            for seq in ticket.ask.begin(self._engine, self._text):
                self._tickets[seq.id] = ticket, len(ticket.sequences)
                ticket.sequences.append(seq)
                ticket.stats.append(self._engine.stats(seq.id))
                ticket.n_unfinished += 1
        except Exception as error:
            if not isinstance(error, WagerError):
                logging.getLogger("wager.serve").exception("a request could not be queued")
            ticket.put(error)
            self._end(ticket)

    def _step(self) -> None:
        try:
            events = self._engine.step()
        except Exception as error:  # a bug of ours: nobody knows whose, so all that run are told, and the next may try
            logging.getLogger("wager.serve").exception("a step failed")
            for ticket in self._flying():
                ticket.put(error)
                self._end(ticket)
            return
        for event in events:
            ticket, index = self._tickets[event.seq_id]
            ticket.put(Part(index, event) if event.error is None else event.error)
        finished = [i for i, (ticket, index) in self._tickets.items() if ticket.sequences[index].finish is not None]
        for seq_id in finished:
            ticket, _ = self._tickets.pop(seq_id)
            ticket.n_unfinished -= 1
            if ticket.n_unfinished == 0:
                self._seconds.append(time.monotonic() - ticket.arrived_s)
                self._finish(ticket)
                ticket.put(None)

    def _expire(self) -> None:
        now = time.monotonic()
        for ticket in [t for t in self._flying() if now - t.arrived_s > t.ask.deadline_s]:
            message = f"the answer was not complete after {ticket.ask.deadline_s:.0f} s: ask for fewer tokens"
            ticket.put(ApiError(504, message, code="deadline_exceeded"))
            self._end(ticket)

    def _flying(self) -> list[Ticket]:
        """Requests of which something still runs or waits."""
        return list(dict.fromkeys(ticket for ticket, _ in self._tickets.values()))

    def _end(self, ticket: Ticket) -> None:
        """Cancel what still runs of a request. Harmless where it has ended."""
        mine = [seq_id for seq_id, (other, _) in self._tickets.items() if other is ticket]
        for seq_id in mine:
            self._engine.cancel(seq_id)
            del self._tickets[seq_id]
        ticket.n_unfinished = 0
        self._finish(ticket)

    def _finish(self, ticket: Ticket) -> None:
        if ticket.done:
            return
        ticket.done = True
        with self._lock:
            self._n_sequences -= ticket.ask.n_sequences
        if self._on_done is not None:
            try:
                self._on_done(ticket)
            except Exception:  # who only watches must not end this thread
                logging.getLogger("wager.serve").exception("a finished request could not be counted")

    def _stepped(self, record: StepRecord) -> None:
        if self._previous_on_step is not None:
            self._previous_on_step(record)
        if self._told_step is not None:
            self._told_step(record)
