"""`wager serve`: an OpenAI-compatible server on this machine."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wager.cli import options as o
from wager.cli.console import Bars, say
from wager.errors import OptionError

if TYPE_CHECKING:
    from wager.serve.config import Settings

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@app.command()
def serve(
    model: o.Model = o.DEFAULT_MODEL,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine need --api-keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    api_keys: Annotated[
        Path | None, typer.Option(help="File with one API key a line (or WAGER_API_KEYS, comma-separated).")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Also answer requests for this host name (repeatable).")
    ] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Another name for the model, as clients know one (repeatable).")
    ] = None,
    cors_origin: Annotated[list[str] | None, typer.Option(help="Let pages of this origin ask (repeatable).")] = None,
    max_seqs: Annotated[int, typer.Option(help="Answers written at once.")] = 16,
    max_queue: Annotated[int, typer.Option(help="Answers that may wait; more are refused with 429.")] = 64,
    max_per_key: Annotated[int | None, typer.Option(help="Requests in flight for one key.")] = None,
    max_prompt_tokens: Annotated[int | None, typer.Option(help="Longest prompt; default: the context.")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds a request may take in all.")] = 600.0,
    log_prompts: Annotated[bool, typer.Option("--log-prompts", help="Write prompts to the log.")] = False,
    drafter: o.DrafterName = "auto",
    drafters: Annotated[
        str | None, typer.Option(help="What a request may choose instead, as in auto,lookup,none; default: from text.")
    ] = None,
    draft_model: o.DraftModel = None,
    policy: o.Policy = None,
    num_draft_tokens: o.NumDraftTokens = None,
    rule: o.Rule = "walk",
    tree_width: o.TreeWidth = 1,
    profile: o.Profile = "fast",
    require_identical: o.RequireIdentical = False,
    kv_cache_gb: o.KvCacheGb = None,
    threads: o.Threads = None,
) -> None:
    """Serve a model over HTTP as OpenAI does, with a page at /.

    Under /v1: chat/completions, completions, models, score and decide.
    """
    given = locals()
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise OptionError(f"`{error.name}` is not installed: pip install 'wager[serve]'") from error
    settings = _settings(given)
    from wager.serve.logs import log_to_stderr
    from wager.serve.run import Server
    from wager.serve.service import Service
    from wager.serve.sockets import bound

    log_to_stderr()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # uvicorn raises it again once it has shut down
    with bound(host, port) as listening, Bars() as bars, closing(o.load(given, bars)) as llm:
        service = Service(llm, settings)
        listening.listen()
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listening.getsockname()[1]}/v1"
        say(f"{service.name} at {url}, drafting with {service.drafter} ({llm.info['exactness']})")
        Server(service).run(sockets=[listening])


def _settings(given: dict[str, Any]) -> Settings:
    from wager.bench.suite import listed
    from wager.serve.config import Limits, Settings

    keys = _keys(given["api_keys"])
    host = given["host"]
    if host not in _LOOPBACK and not keys:
        raise OptionError(f"--host `{host}` lets other machines in: give --api-keys FILE, or listen on 127.0.0.1")
    limits = Limits(
        max_seqs=given["max_seqs"],
        max_queue=given["max_queue"],
        max_per_key=given["max_per_key"],
        max_prompt_tokens=given["max_prompt_tokens"],
        deadline_s=given["deadline"],
    )
    own = Settings().hosts if host in _LOOPBACK else ("*",)
    return Settings(
        limits=limits,
        keys=keys,
        hosts=(*own, *(given["allow_host"] or ())),
        names=tuple(given["served_model_name"] or ()),
        drafters=None if given["drafters"] is None else tuple(listed(given["drafters"])),
        cors_origins=tuple(given["cors_origin"] or ()),
        log_prompts=given["log_prompts"],
    )


def _keys(path: Path | None) -> tuple[str, ...]:
    """API keys of the file, else of the environment."""
    if path is None:
        lines = os.environ.get("WAGER_API_KEYS", "").split(",")
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"--api-keys is `{path}`, which cannot be read ({error}): give a text file") from error
    keys = tuple(line.strip() for line in lines if line.strip())
    if path is not None and not keys:
        raise OptionError(f"--api-keys is `{path}`, which is empty: write one key a line")
    return keys
