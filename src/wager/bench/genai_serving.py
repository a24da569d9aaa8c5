"""openvino-genai's continuous batching under load: a fixed number of requests in flight until all are answered."""

import time
from collections.abc import Callable
from typing import Any

from wager.bench.genai_worker import greedy


def load(options: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]:
    """What answers a load, and with what it runs."""
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = options["kv_cache_gb"]
    scheduler.enable_prefix_caching = False
    scheduler.dynamic_split_fuse = True
    properties = dict(options["properties"])
    pipeline = genai.ContinuousBatchingPipeline(options["ir_dir"], scheduler, "CPU", properties)
    settings = {"engine": f"openvino-genai {genai.__version__}", "properties": properties}
    return lambda question: _answer(genai, pipeline, options["eos_ids"], question), settings


def _answer(genai: Any, pipeline: Any, eos_ids: list[int], question: dict[str, Any]) -> dict[str, Any]:
    """``question``: prompts as token ids, n_clients, max_tokens. Tokens and seconds in all, and of each request."""
    import numpy as np
    import openvino as ov

    waiting = list(enumerate(question["prompts"]))[::-1]
    config = greedy(genai, eos_ids, question)
    flying: dict[int, tuple[Any, float, list[float], int]] = {}
    requests = []
    start = time.perf_counter()
    while waiting or flying:
        while waiting and len(flying) < question["n_clients"]:
            i, tokens = waiting.pop()
            handle = pipeline.add_request(i, ov.Tensor(np.array([tokens], np.int64)), config)
            flying[i] = handle, time.perf_counter(), [], 0
        pipeline.step()
        now = time.perf_counter()
        for i, (handle, began, first, n_tokens) in list(flying.items()):
            if handle.can_read():
                n_tokens += sum(len(output.generated_ids) for output in handle.read().values())
                first = first or [now - began]
            flying[i] = handle, began, first, n_tokens
            if handle.get_status() != genai.GenerationStatus.RUNNING:
                while handle.can_read():
                    n_tokens += sum(len(output.generated_ids) for output in handle.read().values())
                requests.append({"n_tokens": n_tokens, "first_s": (first or [now - began])[0], "total_s": now - began})
                del flying[i]
    return {"seconds": time.perf_counter() - start, "requests": requests}
