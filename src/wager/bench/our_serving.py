"""Our server as a process that starts anew when asked: nothing that one load taught it helps with the next."""

import threading
import time
from collections.abc import Callable
from typing import Any

MODES: dict[str, dict[str, Any]] = {
    "off": {"drafter": "none"},
    "on": {"drafter": "auto", "num_draft_tokens": 4},
    "auto": {"drafter": "auto"},
}


def load(options: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]:
    """What starts a server in a mode and tells its port, and with what it runs."""
    from wager.llm import LLM

    llm = LLM(options["model"], drafter="none", profile=options["profile"], threads=options["threads"])
    llm.warm_up()
    running: list[tuple[Any, threading.Thread]] = []

    def start(question: dict[str, Any]) -> dict[str, Any]:
        while running:
            server, thread = running.pop()
            server.should_exit = True
            thread.join()
        server, thread, port = _started(llm, question["mode"], options["max_seqs"])
        running.append((server, thread))
        return {"port": port}

    ids = {text: llm.encode(text) for text in options["prompts"]}
    eos_ids, properties = sorted(llm.text.eos_ids), dict(llm.info["properties"])
    about = {"ir_dir": str(llm.ir_dir), "properties": properties, "eos_ids": eos_ids, "ids": ids}
    return start, {**about, "exactness": llm.info["exactness"], "fingerprint": llm.fingerprint}


def _started(llm: Any, mode: str, max_seqs: int) -> tuple[Any, threading.Thread, int]:
    import socket

    from wager.serve.config import Limits, Settings
    from wager.serve.run import Server
    from wager.serve.service import Service

    # As in `wager bench`, nobody finds a prompt in a cache.
    engine = llm.make_engine(**MODES[mode], max_seqs=max_seqs, prefix_caching=False, remember=False)
    server = Server(Service(llm, Settings(limits=Limits(max_seqs=max_seqs)), engine=engine))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    return server, thread, listening.getsockname()[1]
