"""openvino-genai as a peer: greedy answers on token ids, timed in its own streamer. Run by worker.py."""

import time
from collections.abc import Callable
from typing import Any

JSON = dict[str, Any]
DEFAULT_MODE = "cb"  # the fastest at batch 1, by a little (docs/benchmarks.md)
_N_DRAFT = 5  # draft tokens of its prompt look-up and its draft model, as in its own examples
_MAX_NGRAM = 3
_KV_CACHE_GB = 1


def load(options: JSON) -> tuple[Callable[[JSON], JSON], JSON]:
    """What answers a question (token ids), and with what it runs."""
    import openvino_genai as genai

    mode = options["mode"] or DEFAULT_MODE
    properties = dict(options["properties"])
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = _KV_CACHE_GB
    scheduler.enable_prefix_caching = False
    if mode == "cb":
        pipeline = genai.ContinuousBatchingPipeline(options["ir_dir"], scheduler, "CPU", properties)
    elif mode == "sdpa":
        pipeline = genai.LLMPipeline(options["ir_dir"], "CPU", ATTENTION_BACKEND="SDPA", **properties)
    else:
        more: JSON = {"prompt_lookup": True} if mode == "lookup" else {}
        if mode == "draft":
            more = {"draft_model": genai.draft_model(options["draft"], "CPU", **properties)}
        pipeline = genai.LLMPipeline(
            options["ir_dir"], "CPU", ATTENTION_BACKEND="PA", scheduler_config=scheduler, **more, **properties
        )
    settings = {"engine": f"openvino-genai {genai.__version__}", "mode": mode, "properties": properties}
    return lambda question: _generate(genai, pipeline, mode, options, question), settings


def _generate(genai: Any, pipeline: Any, mode: str, options: JSON, question: JSON) -> JSON:
    import numpy as np
    import openvino as ov

    config = _config(genai, mode, options, question)
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


def _config(genai: Any, mode: str, options: JSON, question: JSON) -> Any:
    config = greedy(genai, options["eos_ids"], question)
    if mode in ("lookup", "draft"):
        config.num_assistant_tokens = options["n_draft"] or _N_DRAFT
    if mode == "lookup":
        config.max_ngram_size = _MAX_NGRAM
    return config


def greedy(genai: Any, eos_ids: list[int], question: JSON) -> Any:
    """Its settings for a greedy answer; ``question``: max_tokens, and whether to ignore_eos (default: no)."""
    config = genai.GenerationConfig()
    config.do_sample = False
    config.max_new_tokens = question["max_tokens"]
    config.ignore_eos = question.get("ignore_eos", False)
    config.apply_chat_template = False
    if eos_ids:
        config.eos_token_id = eos_ids[0]
        config.stop_token_ids = set() if config.ignore_eos else set(eos_ids)
    return config
