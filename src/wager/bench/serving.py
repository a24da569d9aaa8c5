"""A server under load: tokens a second and latencies by number of clients, speculation off, fixed and automatic.

Every client asks for the next prompt once its last answer is complete. Modes take turns within a round, so that a
drifting machine favours none, and nothing that one load taught our server helps with the next. openvino-genai's
continuous batching is asked in its own process, without HTTP.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np

from wager.bench.peers import Worker
from wager.bench.report import table
from wager.bench.stats import Percentiles, bootstrap_median, percentiles
from wager.intervals import Interval
from wager.types import JSON

GENAI = "genai"
Answered = Callable[[ListLike[JSON], int], JSON]  # (requests, clients) -> seconds, and of each its counts and times


@dataclass(frozen=True, slots=True)
class Cell:
    """One mode with so many clients, over the rounds. ``against``: tokens a second over those of mode off, paired."""

    mode: str
    n_clients: int
    tokens_per_s: float
    first_ms: Percentiles | None  # None where every request failed
    token_ms: Percentiles | None  # None too where no answer is longer than a token
    against_off: Interval | None
    against_genai: Interval | None


def over_http(server: Worker, mode: str) -> Answered:
    """Requests to our server, started anew: chats of one message, whose answers come whole."""

    def answered(prompts: ListLike[JSON], n_clients: int) -> JSON:
        port = int(server.ask({"mode": mode})["port"])
        waiting: SimpleQueue[JSON] = SimpleQueue()
        for prompt in prompts:
            waiting.put(prompt)
        with ThreadPoolExecutor(n_clients) as pool:
            start = time.perf_counter()
            done = [row for rows in pool.map(lambda _: _client(port, waiting), range(n_clients)) for row in rows]
            return {"seconds": time.perf_counter() - start, "requests": done}

    return answered


def in_process(peer: Worker, ids: dict[str, list[int]]) -> Answered:
    """The same prompts to a peer that keeps so many requests in flight by itself."""

    def answered(prompts: ListLike[JSON], n_clients: int) -> JSON:
        tokens = [ids[prompt["messages"][0]["content"]] for prompt in prompts]
        return peer.ask({"prompts": tokens, "n_clients": n_clients, "max_tokens": prompts[0]["max_tokens"]})

    return answered


def _client(port: int, waiting: SimpleQueue[JSON]) -> list[JSON]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    done: list[JSON] = []
    while True:
        try:
            body = waiting.get_nowait()
        except Empty:
            connection.close()
            return done
        start = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        answer = json.loads(response.read())
        total_s = time.perf_counter() - start
        if response.status != 200:
            done.append({"error": answer["error"]["message"]})
            continue
        counts = {"n_tokens": answer["usage"]["completion_tokens"], "text": answer["choices"][0]["message"]["content"]}
        done.append({**counts, "first_s": answer["metrics"]["first_token_s"], "total_s": total_s})


def measure(
    modes: dict[str, Answered],
    prompts: ListLike[JSON],
    clients: ListLike[int],
    *,
    rounds: int,
    first: int = 0,
    add: Callable[[JSON], None],
    progress: Callable[[str, int, int], None],
) -> None:
    """``add`` a row for every round from ``first`` on, number of clients and mode."""
    n_all, n_done = max(0, rounds - first) * len(clients) * len(modes), 0
    for mode in modes.values():
        progress("warming up", 0, 1)
        mode(prompts[:2], 2)
    for i in range(first, rounds):
        for n_clients in clients:
            for name in list(modes)[:: 1 if i % 2 == 0 else -1]:
                progress("measuring", n_done, n_all)
                add(
                    {
                        "kind": "load",
                        "round": i,
                        "n_clients": n_clients,
                        "mode": name,
                        **modes[name](prompts, n_clients),
                    }
                )
                n_done += 1
    progress("measuring", n_all, n_all)


def cells(rows: ListLike[JSON]) -> list[Cell]:
    """One for each number of clients and mode, in the order of the rows."""
    keys = dict.fromkeys((row["n_clients"], row["mode"]) for row in rows)
    return [_cell(n_clients, mode, rows) for n_clients, mode in keys]


def _cell(n_clients: int, mode: str, rows: ListLike[JSON]) -> Cell:
    mine = [row for row in rows if (row["n_clients"], row["mode"]) == (n_clients, mode)]
    good = [r for row in mine for r in row["requests"] if "error" not in r]
    per_token = [1e3 * (r["total_s"] - r["first_s"]) / (r["n_tokens"] - 1) for r in good if r["n_tokens"] > 1]
    return Cell(
        mode=mode,
        n_clients=n_clients,
        tokens_per_s=float(np.median([speed(row) for row in mine])),
        first_ms=percentiles([1e3 * r["first_s"] for r in good]),
        token_ms=percentiles(per_token),
        against_off=_against("off", n_clients, mode, rows),
        against_genai=_against(GENAI, n_clients, mode, rows),
    )


def speed(row: JSON) -> float:
    """Tokens of all answers per second of the round."""
    return float(sum(r.get("n_tokens", 0) for r in row["requests"]) / row["seconds"])


def _against(base: str, n_clients: int, mode: str, rows: ListLike[JSON]) -> Interval | None:
    by_round = {(r["round"], r["mode"]): speed(r) for r in rows if r["n_clients"] == n_clients}
    rounds = sorted({i for i, name in by_round if name == mode})
    pairs = [by_round[i, mode] / by_round[i, base] for i in rounds if by_round.get((i, base))]
    return bootstrap_median(np.array(pairs)) if pairs and mode != base else None


def errors(rows: ListLike[JSON]) -> int:
    """Requests that failed."""
    return sum("error" in r for row in rows for r in row["requests"])


def differences(rows: ListLike[JSON]) -> int:
    """Loads of our modes whose texts are not those of the first one, which must be none: all ask the same prompts."""
    loads = [row["requests"] for row in rows if row["mode"] != GENAI]
    texts = [sorted(r["text"] for r in requests) for requests in loads if all("text" in r for r in requests)]
    return sum(some != texts[0] for some in texts)


def markdown(found: ListLike[Cell]) -> str:
    """The table for people."""
    head = ["clients", "mode", "tokens/s", "against off", "against genai", "first token ms (p99)", "ms a token (p99)"]
    rows = [
        [
            str(c.n_clients),
            c.mode,
            f"{c.tokens_per_s:.0f}",
            "" if c.against_off is None else str(c.against_off),
            "" if c.against_genai is None else str(c.against_genai),
            "" if c.first_ms is None else f"{c.first_ms.p50:.0f} ({c.first_ms.p99:.0f})",
            "" if c.token_ms is None else f"{c.token_ms.p50:.1f} ({c.token_ms.p99:.1f})",
        ]
        for c in found
    ]
    return table(head, rows)
