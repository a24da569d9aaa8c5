"""`wager store`: texts made ready for the drafters `retrieval:NAME`, `dense:NAME` and `cacheback:NAME`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, megabytes, print_json, say

if TYPE_CHECKING:
    from wager.nearest import Keys

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the store is called.")]


@app.callback()
def store() -> None:
    """Build, list and remove stores: texts to draft from.

    The drafters retrieval:NAME, cacheback:NAME and dense:NAME do.
    """


@app.command()
def build(
    name: Name,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Texts in UTF-8; .jsonl with a text or conversation a line.")
    ],
    model: o.Model = o.DEFAULT_MODEL,
    dense: Annotated[
        bool, typer.Option("--dense", help="Have the model read it all, for --drafter dense:NAME.")
    ] = False,
    threads: o.Threads = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a store of this name.")] = False,
) -> None:
    """Tokenise files for a model (and all with its vocabulary) and index them; prints the store's folder.

    With --dense the model reads every token, which takes as long as reading a prompt; the store then serves that model.
    A .jsonl line has `text`, `messages`, or `prompt` (or `question`, `turns`) with `response` (`answer`, `completion`).
    """
    from wager import stores
    from wager.corpus import read_corpus
    from wager.models import catalog
    from wager.text import Text

    stores.check_new(name, force=force)
    with Bars() as bars:
        folder = catalog.resolve(model, progress=bars)
        text = Text(folder)
        corpus = read_corpus(files, text, progress=bars)
        info = stores.build(
            name,
            corpus,
            text,
            model=model,
            model_hash=catalog.model_hash(folder),
            read=_reader(folder, threads, bars) if dense else None,
            force=force,
            progress=bars,
        )
    drafters = f"{f'dense:{name}, ' if dense else ''}retrieval:{name} or cacheback:{name}"
    say(f"{info.n_tokens} tokens in {info.n_documents} documents: draft from them with --drafter {drafters}")
    print(stores.stores_home() / name)


def _reader(folder: Path, threads: int | None, progress: Callable[[str, int, int], None]) -> Callable[..., Keys]:
    """What makes the keys of a corpus, with the model in ``folder``."""
    from wager.hidden import read_keys
    from wager.models.openvino import load_model

    model = load_model(folder, profile="fast", threads=threads)
    return partial(read_keys, model, progress=progress)


@app.command(name="list")
def list_stores(as_json: o.AsJson = False) -> None:
    """List the stores that are here, with what they were made of."""
    from wager import stores

    found = stores.local_stores()
    if as_json:
        print_json({"home": str(stores.stores_home()), "stores": [asdict(s) | {"path": str(s.path)} for s in found]})
        return
    width = max(24, *(len(store.name) + 2 for store in found)) if found else 24
    print(f"here ({stores.stores_home()}):")
    for each in found:
        size = f"  {each.name:<{width}}{megabytes(each.n_bytes):<12}"
        if (info := each.info) is None:
            print(size + str(each.problem))
        else:
            kind = "" if info.dense is None else ", dense"
            print(f"{size}{info.n_tokens} tokens, {info.n_documents} documents, {info.model}{kind}")
    if not found:
        print(f"  none yet: {stores.HOW_TO_BUILD} makes one")


@app.command()
def remove(name: Name) -> None:
    """Delete a store."""
    from wager import stores

    stores.remove(name)
    say(f"removed {name}")
