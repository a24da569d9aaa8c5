"""openvino-genai as a peer: greedy answers on token ids, timed in its own streamer. Run as a process by peers.py."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from wager.types import JSON

DEFAULT_MODE = "cb"  # the fastest at batch 1, by a little (docs/benchmarks.md)
_N_LOOKUP = 5  # draft tokens and n-gram of its prompt look-up, as in its own examples
_MAX_NGRAM = 3
_KV_CACHE_GB = 1


def main() -> None:
    options = json.loads(sys.argv[1])
    # Whatever the libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(row: JSON) -> None:
        answers.write(json.dumps(row) + "\n")
        answers.flush()

    try:
        generate, settings = load(options)
        tell(settings)
        for line in sys.stdin:
            tell(generate(json.loads(line)))
    except Exception as error:
        tell({"error": str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__})
        raise


def load(options: JSON) -> tuple[Callable[[JSON], JSON], JSON]:
    """The pipeline's generate function, and with what it runs."""
    import openvino_genai as genai

    mode = options["mode"] or DEFAULT_MODE
    properties = {} if mode == "defaults" else dict(options["properties"])
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = _KV_CACHE_GB
    scheduler.enable_prefix_caching = False
    if mode == "cb":
        pipeline = genai.ContinuousBatchingPipeline(options["ir_dir"], scheduler, "CPU", properties)
    elif mode == "sdpa":
        pipeline = genai.LLMPipeline(options["ir_dir"], "CPU", ATTENTION_BACKEND="SDPA", **properties)
    else:
        more = {"prompt_lookup": True} if mode == "lookup" else {}
        pipeline = genai.LLMPipeline(
            options["ir_dir"], "CPU", ATTENTION_BACKEND="PA", scheduler_config=scheduler, **more, **properties
        )
    settings = {"engine": f"openvino-genai {genai.__version__}", "mode": mode, "properties": properties}
    return lambda question: _generate(genai, pipeline, mode, options["eos_ids"], question), settings


def _generate(genai: Any, pipeline: Any, mode: str, eos_ids: list[int], question: JSON) -> JSON:
    import numpy as np
    import openvino as ov

    config = _config(genai, mode, eos_ids, question)
    tokens: list[int] = []
    times_s: list[float] = []

    class Streamer(genai.StreamerBase):  # type: ignore[misc]
        def write(self, token: int | list[int]) -> Any:
            now = time.perf_counter() - start
            new = [token] if isinstance(token, int) else list(token)
            tokens.extend(new)
            times_s.extend([now] * len(new))
            return genai.StreamingStatus.RUNNING

        def end(self) -> None:
            """Nothing to flush: tokens are counted, not shown."""

    prompt = ov.Tensor(np.array([question["tokens"]], np.int64))
    start = time.perf_counter()
    if mode == "cb":
        result = pipeline.generate([prompt], [config], Streamer())[0].m_generation_ids[0]
    else:
        result = pipeline.generate(prompt, config, Streamer()).tokens[0]
    if list(result) != tokens:
        raise RuntimeError(f"it streamed {len(tokens)} tokens and returned {len(result)} others")
    return {
        "tokens": tokens,
        "times_s": times_s,
        "finish": "length" if len(tokens) == config.max_new_tokens else "stop",
    }


def _config(genai: Any, mode: str, eos_ids: list[int], question: JSON) -> Any:
    config = genai.GenerationConfig()
    config.do_sample = False
    config.max_new_tokens = question["max_tokens"]
    config.ignore_eos = question["ignore_eos"]
    config.apply_chat_template = False
    if eos_ids:
        config.eos_token_id = eos_ids[0]
        config.stop_token_ids = set() if question["ignore_eos"] else set(eos_ids)
    if mode == "lookup":
        config.num_assistant_tokens = _N_LOOKUP
        config.max_ngram_size = _MAX_NGRAM
    return config


if __name__ == "__main__":
    main()
