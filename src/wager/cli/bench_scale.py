"""`wager bench scale`: what speculation gives at the size of a model that is not here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli import options as o
from wager.cli.console import Bars, megabytes, say

if TYPE_CHECKING:
    from wager.models.gguf_read import Shape

_SHAPE = "llama-3.2-1b"
_LENGTHS = "1,3,5,7"


def scale(
    shape: Annotated[
        str, typer.Option(help="A known size, one changed as in llama-3.2-1b:n_layers=4, or all sizes as NAME=NUMBER.")
    ] = _SHAPE,
    form: Annotated[str, typer.Option(help="Weights: int4-32, int4-64, int4-128 or int8-channel.")] = "int4-64",
    acceptance: Annotated[
        str, typer.Option(help="Chance by depth that a drafted token is right if those before are; the last goes on.")
    ] = "0.8,0.7,0.6",
    lengths: Annotated[str, typer.Option(help="Draft lengths, comma-separated.")] = _LENGTHS,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Tokens of every answer.")] = 64,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the prompts, which are random ids.")] = 128,
    repeats: Annotated[int, typer.Option(help="Prompts; everything runs on each.")] = 8,
    seed: Annotated[int, typer.Option(help="Of weights, prompts and spoiled tokens.")] = 0,
    threads: o.Threads = None,
    clock: Annotated[
        str, typer.Option(help="wall, or cpu: processor seconds, which repeat on a busy machine (with --threads 1).")
    ] = "wall",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the model among those of `wager models`.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of table and figures.")] = Path("scale-out"),
    as_json: o.AsJson = False,
) -> None:
    """Time random weights of a real size, plain and with drafts that are right as often as is asked.

    The cost model's prediction stands beside each measurement. Timing only: such text means nothing.
    """
    from wager.bench import scale as s
    from wager.bench.replay import parse_chances
    from wager.bench.setup import circumstances
    from wager.models.random_ir import check_form, shape_named

    options = s.Options(
        chances=parse_chances(acceptance),
        lengths=s.parse_lengths(lengths),
        n_prompt=prompt_tokens,
        n_tokens=max_tokens,
        repeats=repeats,
        seed=seed,
        threads=threads,
        clock=clock,
    )
    sizes = shape_named(shape)
    check_form(sizes, form)
    out.mkdir(parents=True, exist_ok=True)
    with Bars() as bars, _model(shape, sizes, form, seed, keep, bars) as folder:
        n_bytes = (folder / "openvino_model.bin").stat().st_size
        model, exactness = s.open_model(folder, threads=threads, progress=bars)
        repeated, n_different = s.measure(model, options, progress=bars)
    cost = s.table_for(model, options)
    if n_different and exactness.reason is None:
        say(f"NOT IDENTICAL: {n_different} speculative answers differ from plain decoding")
    lines = s.summarise(cost, repeated, options)
    settings = {"shape": shape, "form": form, "n_bytes": n_bytes, "exactness": exactness.to_json(), **vars(options)}
    found = s.to_json(lines, settings, cost, circumstances())
    text = s.markdown(lines, options, f"{shape} {form}", megabytes(n_bytes))
    (out / "scale.md").write_text(text + "\n", encoding="utf-8")
    (out / "scale.json").write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    print(json.dumps(found, ensure_ascii=False, indent=2) if as_json else text)
    raise typer.Exit(1 if n_different and exactness.reason is None else 0)


@contextmanager
def _model(name: str, shape: Shape, form: str, seed: int, keep: bool, bars: Bars) -> Iterator[Path]:
    """The folder of such a model: one that was kept, or a new one that goes with the measurement."""
    import shutil

    from wager.home import models_home
    from wager.models.random_ir import folder_name, write_random

    folder = models_home() / folder_name(name, form, seed)
    was_kept = folder.is_dir()
    try:
        if not was_kept:
            write_random(folder, name, shape, form=form, seed=seed, progress=bars)
        yield folder
    finally:
        if not keep and not was_kept:
            shutil.rmtree(folder, ignore_errors=True)
