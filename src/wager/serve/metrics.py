"""What a scraper sees: vLLM's names with our prefix where vLLM has one (docs/numbers.md defines the counts)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from wager.record import StepRecord
from wager.serve.loop import Ask, EngineLoop, Ticket

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_MAX_DEPTH = 16  # positions told apart in accepted tokens; deeper ones count as the last


class Metrics:
    """Counters of one server. ``watch`` the loop once it exists."""

    def __init__(self, *, model: str, drafter: str, profile: str) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"wager_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"wager_{name}", text, buckets=_SECONDS, registry=registry)

        info = Gauge("wager_info", "What is served.", ("model", "drafter", "profile"), registry=registry)
        info.labels(model, drafter, profile).set(1)
        self.requests = counter("request_success", "Answers by how they ended.", ("finished_reason",))
        self.errors = counter("request_errors", "Requests answered with an error, by status.", ("status",))
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of finished requests.")
        self.generation_tokens = counter("generation_tokens", "Tokens committed.")
        self.drafts = counter("spec_decode_num_drafts", "Drafts verified.", ("drafter",))
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Draft tokens verified.", ("drafter",))
        self.accepted = counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", ("drafter",))
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Draft tokens accepted, by position in the draft.", ("position",)
        )
        self.prefix_queries = counter("prefix_cache_queries", "Tokens looked for in the prefix cache.")
        self.prefix_hits = counter("prefix_cache_hits", "Tokens found there.")
        self._prefix_rows = (0, 0)
        self.forwards = counter("forwards", "Forwards of the target.")
        self.decisions = counter(
            "decisions", "(Sequence, forward) pairs that decided a token: tokens per forward is per these."
        )
        self.seconds = counter("phase_seconds", "Time of steps by phase.", ("phase",))
        self.first_token = histogram("time_to_first_token_seconds", "From arrival to the first token.")
        self.inter_token = histogram(
            "inter_token_latency_seconds", "Between tokens of one answer; those of one step share its time."
        )
        self.total = histogram("e2e_request_latency_seconds", "From arrival to the last token.")
        self.running = Gauge("wager_num_requests_running", "Sequences in the engine's turn.", registry=registry)
        self.waiting = Gauge("wager_num_requests_waiting", "Sequences that wait for a turn.", registry=registry)
        self.kv_used = Gauge("wager_kv_cache_usage_perc", "Share of K/V blocks in use (1 is all).", registry=registry)

    def watch(self, loop: EngineLoop) -> None:
        self._loop = loop
        self.running.set_function(lambda: loop.n_running)
        self.waiting.set_function(lambda: loop.n_sequences - loop.n_running)
        self.kv_used.set_function(lambda: loop.kv_used)

    def stepped(self, record: StepRecord) -> None:
        self.forwards.inc()
        queries, hits = self._loop.prefix_rows
        self.prefix_queries.inc(queries - self._prefix_rows[0])
        self.prefix_hits.inc(hits - self._prefix_rows[1])
        self._prefix_rows = queries, hits
        self.generation_tokens.inc(record.n_committed)
        for phase, seconds in (("draft", record.draft_s), ("target", record.target_s), ("host", record.host_s)):
            self.seconds.labels(phase).inc(seconds)

    def done(self, ticket: Ticket) -> None:
        """A request has left the engine, complete or not. What is only read counts as steps alone."""
        if not isinstance(ticket.ask, Ask):
            return
        drafter = ticket.ask.drafter
        for seq, stats in zip(ticket.sequences, ticket.stats, strict=True):
            self.requests.labels(seq.finish or "cancelled").inc()
            self.prompt_tokens.inc(seq.n_prompt)
            self.decisions.inc(stats.n_forwards)
            self.draft_tokens.labels(drafter).inc(stats.n_drafted)
            self.accepted.labels(drafter).inc(stats.n_accepted)
            self.drafts.labels(drafter).inc(stats.accepted_by_depth[0][1] if stats.accepted_by_depth else 0)
            for depth, (accepted, _) in enumerate(stats.accepted_by_depth):
                self.accepted_at.labels(min(depth, _MAX_DEPTH - 1)).inc(accepted)
            if stats.n_tokens_first:
                self.first_token.observe(stats.first_token_s)
                self.total.observe(stats.total_s)
            n_after = stats.n_tokens - stats.n_tokens_first
            for _ in range(n_after):
                self.inter_token.observe(stats.decode_s / n_after)

    def text(self) -> bytes:
        return generate_latest(self.registry)
