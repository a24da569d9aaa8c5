"""Our server as a process that starts anew when asked: nothing that one load taught it helps with the next."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

MODES: dict[str, dict[str, Any]] = {
    "off": {"drafter": "none"},
    "on": {"drafter": "auto", "num_draft_tokens": 4},
    "auto": {"drafter": "auto"},
}


def load(options: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]:
    """What starts a server in a mode and tells its port, and with what it runs."""
    from wager.llm import LLM
    from wager.serve.run import in_thread

    llm = LLM(options["model"], drafter="none", profile=options["profile"], threads=options["threads"])
    llm.warm_up()
    running = ExitStack()

    def start(question: dict[str, Any]) -> dict[str, Any]:
        running.close()
        return {"port": running.enter_context(in_thread(_service(llm, question["mode"], options["max_seqs"])))}

    ids = {text: llm.encode(text) for text in options["prompts"]}
    eos_ids, properties = sorted(llm.text.eos_ids), dict(llm.info["properties"])
    about = {"ir_dir": str(llm.ir_dir), "properties": properties, "eos_ids": eos_ids, "ids": ids}
    return start, {**about, "exactness": llm.info["exactness"], "fingerprint": llm.fingerprint}


def _service(llm: Any, mode: str, max_seqs: int) -> Any:
    from wager.serve.config import Limits, Settings
    from wager.serve.service import Service

    # As in `wager bench`, nobody finds a prompt in a cache.
    engine = llm.make_engine(**MODES[mode], max_seqs=max_seqs, prefix_caching=False, remember=False)
    return Service(llm, Settings(limits=Limits(max_seqs=max_seqs)), engine=engine)
