"""The measuring loop and the report, on runners that answer from a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_tools import FORGET, N_TOKENS, Bench, counting
from wager.bench.answer import MissingPeer, Request
from wager.bench.journal import rows_of, runs
from wager.bench.report import markdown
from wager.bench.stats import Percentiles
from wager.bench.summary import MIN_DECODED, summarise


def test_methods_are_interleaved_and_the_order_alternates(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup,genai")
    bench.measure(repeats=2)
    there, back = ["plain", "lookup", "genai"], ["genai", "lookup", "plain"]
    assert bench.order() == there + back + there + back + there + back
    rows = runs(rows_of(tmp_path))
    places = [("p0", 0, 0), ("p0", 0, 1), ("p0", 0, 2), ("p1", 0, 0)]
    assert [(r["prompt_id"], r["repeat"], r["position"]) for r in rows[:4]] == places
    assert [r["seed"] for r in rows] == [5] * 9 + [6] * 9
    assert rows[0] | {"tokens": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "n_prompt": 2, "task": "a"} == rows[0]
    assert bench.ticks[-1] == ("measuring", 18, 18)


def test_every_method_is_warmed_up_once_and_the_warm_up_is_not_recorded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup")
    bench.measure()
    assert [name for name, request in bench.log if request.sampling.max_tokens == 16] == ["plain", "lookup"]
    assert len(runs(rows_of(tmp_path))) == 6


def test_nothing_that_comes_again_was_answered_before(tmp_path: Path) -> None:
    """Methods forget after the warm-up, whose prompt is measured too, and before every repeat."""
    bench = Bench(tmp_path, "plain,lookup")
    bench.measure(repeats=2)
    asked = ["forget" if request is FORGET else request.sampling.max_tokens for _, request in bench.log]
    assert asked == [16, 16, *["forget"] * 2, *[64] * 6, *["forget"] * 2, *[64] * 6]
    assert [row["n_before"] for row in runs(rows_of(tmp_path))] == [0, 0, 1, 1, 2, 2] * 2


def test_an_oracle_runs_when_its_text_is_known(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,oracle,lookup")
    bench.measure(repeats=2)
    first = ["plain", "lookup", "oracle"]
    assert bench.order()[:9] == [*first, "lookup", "plain", "oracle", *first]
    assert bench.order()[9:12] == ["lookup", "oracle", "plain"]  # known since the first repeat
    asked = [r for name, r in bench.log if name == "oracle" and r.sampling.max_tokens > 16]
    assert all(r.text == counting(r) for r in asked)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup,oracle")

    def interrupt(request: Request) -> list[int]:
        if request.tokens == [3] and request.sampling.max_tokens > 16:
            raise KeyboardInterrupt
        return counting(request)

    bench.runners["lookup"]._reply = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.measure()
    assert [(r["prompt_id"], r["method"]) for r in runs(rows_of(tmp_path))] == [
        ("p0", "plain"), ("p0", "lookup"), ("p0", "oracle")]  # fmt: skip
    bench.log.clear()
    bench.runners["lookup"]._reply = counting
    bench.measure()
    assert bench.order() == ["lookup", "plain", "oracle", "plain", "lookup", "oracle"]
    bench.log.clear()
    bench.measure()
    assert bench.log == []
    assert len(runs(rows_of(tmp_path))) == 9


def test_a_different_text_is_recorded_said_and_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup")
    bench.runners["lookup"]._reply = lambda r: [1, 2, 99] if r.tokens == [1, 2] else counting(r)
    assert bench.measure().n_mismatches == 1
    (row,) = [row for row in rows_of(tmp_path) if row["kind"] == "mismatch"]
    assert (
        row | {"method": "lookup", "other": "plain", "prompt_id": "p0", "at": 2, "token": 99, "other_token": 3} == row
    )
    assert any("NOT IDENTICAL: prompt `p0` (a), token 2" in line for line in bench.said)
    assert bench.measure().n_mismatches == 1, "a resumed measurement keeps the failure"
    assert "**NOT IDENTICAL**: `lookup` and `plain` on prompt `p0`" in markdown(summarise(rows_of(tmp_path)))


def test_a_shorter_text_is_a_different_text(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup")
    bench.runners["lookup"]._reply = lambda r: counting(r)[:-1] if r.sampling.max_tokens > 16 else counting(r)
    assert bench.measure().n_mismatches == 3
    assert any("is the end with lookup" in line or "is the end with" in line for line in bench.said)


def test_a_text_that_depends_on_the_repeat_is_a_mismatch_unless_sampled(tmp_path: Path) -> None:
    def by_seed(request: Request) -> list[int]:
        return [request.sampling.seed or 0] * N_TOKENS

    for temperature, n in ((0.0, 3), (0.5, 0)):
        bench = Bench(tmp_path / str(n), "plain,lookup")
        bench.runners["plain"]._reply = bench.runners["lookup"]._reply = by_seed
        assert bench.measure(repeats=2, temperature=temperature).n_mismatches == 2 * n


def test_samples_of_rules_that_follow_drafts_are_compared_with_nothing(tmp_path: Path) -> None:
    """They run first here, and must not become what the others are compared with; greedy text is the same for all."""
    for temperature, n in ((0.8, 3), (0.0, 6)):
        bench = Bench(tmp_path / str(n), "lookup@rule=standard,plain,lookup")
        bench.runners["lookup@rule=standard"]._reply = lambda request: [7] * N_TOKENS
        bench.runners["lookup"]._reply = lambda request: [8] * N_TOKENS
        measured = bench.measure(temperature=temperature)
        assert measured.n_mismatches == n
        names = {(row["method"], row["other"]) for row in rows_of(bench.folder) if row["kind"] == "mismatch"}
        assert ("lookup@rule=standard" in {name for pair in names for name in pair}) == (temperature == 0)


def test_profiles_and_peers_may_differ(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,max/plain,max/lookup,genai")
    for name in ("max/plain", "genai"):
        bench.runners[name]._reply = lambda r: [7] * N_TOKENS
    bench.exact = frozenset({"plain"})
    assert bench.measure().n_mismatches == 0
    lines = {line.method: line for line in summarise(rows_of(tmp_path)).lines}
    assert (lines["max/lookup"].n_same, lines["genai"].n_same, lines["genai"].n_compared) == (0, 0, 3)


def test_a_peer_that_fails_is_reported_and_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,genai")

    def fail(request: Request) -> list[int]:
        if request.tokens == [3] and request.sampling.max_tokens > 16:
            raise MissingPeer("out of memory")
        return counting(request)

    bench.runners["genai"]._reply = fail
    bench.measure()
    assert bench.order() == ["plain", "genai", "genai", "plain", "plain"]
    assert bench.runners["genai"].closed
    assert bench.said == ["`genai` stops here: out of memory"]
    assert "`genai` is missing: out of memory." in markdown(summarise(rows_of(tmp_path)))


# -- the report ----------------------------------------------------------------------------------------------------


def test_the_report_has_the_known_ratios(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup,genai", plain=0.5, lookup=0.25, genai=1.0)
    bench.measure(repeats=2)
    summary = summarise(rows_of(tmp_path))
    lines = {line.method: line for line in summary.lines}
    assert lines["plain"].speed_up is None
    assert lines["lookup"].speed_up is not None
    assert lines["lookup"].speed_up.value == pytest.approx(2.0)
    assert lines["lookup"].speed_up.n == 3, "prompts, not requests"
    assert lines["lookup"].end_to_end is not None
    assert lines["lookup"].end_to_end.value == pytest.approx((1 + 11 * 0.5) / (1 + 11 * 0.25))
    assert lines["lookup"].ms_per_token == pytest.approx(250)
    assert lines["lookup"].tokens_per_s == pytest.approx(4.0)
    assert lines["lookup"].first_token_ms == Percentiles(1000, 1000, 1000, 6)
    assert lines["lookup"].gap_ms == Percentiles(250, 250, 250, 6 * (N_TOKENS - 1))
    assert lines["lookup"].total_s == Percentiles(*[pytest.approx(1 + 11 * 0.25)] * 3, 6)
    assert lines["lookup"].split_ms == pytest.approx({"draft": 10, "target": 225, "host": 15})
    assert lines["lookup"].accepted_by_depth == [[6, 18], [6, 6]]
    assert lines["lookup"].outside_share == pytest.approx(0.1)
    assert lines["lookup"].acceptance_rate == pytest.approx(0.5)
    assert lines["lookup"].tokens_per_forward == pytest.approx(1.0)
    assert lines["genai"].outside_share is lines["genai"].split_ms is lines["genai"].accepted_by_depth is None
    assert {t: {m: i.value for m, i in by.items()} for t, by in summary.tasks.items()} == {
        "a": {"lookup": pytest.approx(2.0), "genai": pytest.approx(0.5)},
        "b": {"lookup": pytest.approx(2.0), "genai": pytest.approx(0.5)},
    }
    assert {mine: by["genai"].value for mine, by in summary.peers.items()} == {
        "plain": pytest.approx(2.0), "lookup": pytest.approx(4.0)}  # fmt: skip


def test_methods_are_compared_with_plain_of_their_own_profile(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, "plain,max/plain,max/lookup,lookup", **{"max/plain": 0.5, "max/lookup": 0.25, "lookup": 0.8}
    )
    bench.exact = frozenset()
    bench.measure()
    ups = {line.method: line.speed_up and line.speed_up.value for line in summarise(rows_of(tmp_path)).lines}
    assert ups == {"plain": None, "max/plain": None, "max/lookup": pytest.approx(2.0), "lookup": pytest.approx(1.25)}


def test_short_answers_are_in_no_ratio_and_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "plain,lookup")
    for runner in bench.runners.values():
        runner._reply = lambda r: [1] * (MIN_DECODED if r.tokens == [3] else MIN_DECODED + 1)
    bench.measure()
    summary = summarise(rows_of(tmp_path))
    assert summary.n_short == 2
    assert summary.lines[1].speed_up is not None
    assert summary.lines[1].speed_up.n == 2
    assert summary.lines[1].n_compared == 3
    assert f"2 answers of at most {MIN_DECODED} tokens" in markdown(summary)


def test_a_measurement_without_plain_or_without_rows_can_be_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "lookup,genai")
    bench.measure()
    summary = summarise(rows_of(tmp_path))
    assert summary.tasks == {}
    assert list(summary.peers) == ["lookup"]
    text = markdown(summarise(rows_of(tmp_path)[:1]))
    assert text.startswith("# m on chip, 2 cores")
    for line in markdown(summary).splitlines():
        assert not line.startswith("|") or line.count("|") in (3, 4, 6, 11, 13), line


def test_every_row_is_one_line_of_json(tmp_path: Path) -> None:
    Bench(tmp_path, "plain").measure()
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["provenance", "method", "run", "run", "run"]
