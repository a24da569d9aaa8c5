"""transformers on torch as a peer: greedy answers on token ids, timed in its own streamer. Run by worker.py, in an
environment without wager.

The weights come from a GGUF file, as float32; its tokenizer is not read (their conversion of the default model's maps
spaces to id 0).
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JSON = dict[str, Any]
_N_LOOKUP = 10  # draft tokens, as in their documentation


def load(options: JSON) -> tuple[Callable[[JSON], JSON], JSON]:
    """What answers a question (token ids), and with what it runs."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    if options["n_threads"]:
        torch.set_num_threads(options["n_threads"])
    model, draft = _model(options["gguf"]), _model(options["draft"]) if options["draft"] else None
    extra: JSON = {}
    if options["mode"] == "lookup":
        extra["prompt_lookup_num_tokens"] = options["n_draft"] or _N_LOOKUP
    elif draft is not None:
        extra["assistant_model"] = draft
        if options["n_draft"]:
            draft.generation_config.num_assistant_tokens = options["n_draft"]
            draft.generation_config.num_assistant_tokens_schedule = "constant"
    settings = {
        "engine": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "mode": options["mode"] or "plain",
        "dtype": str(model.dtype),
        "n_threads": torch.get_num_threads(),
        "weights_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
    }
    return lambda question: _generate(model, extra, options["eos_ids"], question), settings


def _model(gguf: str) -> Any:
    from transformers import AutoModelForCausalLM

    path = Path(gguf)
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True).eval()


def _generate(model: Any, extra: JSON, eos_ids: list[int], question: JSON) -> JSON:
    import torch
    from transformers.generation.streamers import BaseStreamer

    tokens: list[int] = []
    times_s: list[float] = []

    class Streamer(BaseStreamer):  # type: ignore[misc]
        def put(self, value: Any) -> None:
            now = time.perf_counter() - start
            new = value.flatten().tolist()
            tokens.extend(new)
            times_s.extend([now] * len(new))

        def end(self) -> None:
            """Nothing to flush: tokens are counted, not shown."""

    prompt = torch.tensor([question["tokens"]])
    n_prompt, unreachable = prompt.shape[1], int(model.config.vocab_size)
    start = time.perf_counter()
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=question["max_tokens"],
        eos_token_id=[unreachable] if question["ignore_eos"] or not eos_ids else eos_ids,
        pad_token_id=0,
        streamer=Streamer(),
        **extra,
    )
    if result[0].tolist() != tokens:  # it streams the prompt first
        raise RuntimeError(f"it streamed {len(tokens)} tokens and returned {result.shape[1]} others")
    tokens, times_s = tokens[n_prompt:], times_s[n_prompt:]
    return {
        "tokens": tokens,
        "times_s": times_s,
        "finish": "length" if len(tokens) == question["max_tokens"] else "stop",
    }
