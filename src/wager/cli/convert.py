"""`wager convert`: a model of any source to a named one, in the weights one asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wager.cli.console import Bars, say

if TYPE_CHECKING:
    from wager.models.convert import Weights
    from wager.models.convert_source import FullModel

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def convert(
    source: Annotated[
        str, typer.Argument(help="Hugging Face or OpenVINO folder, .gguf file, model here, or OWNER/NAME on the hub.")
    ],
    name: Annotated[str | None, typer.Argument(help="What the result is called; default: from the source.")] = None,
    weight_format: Annotated[str, typer.Option(help="f16, int8 (per row) or int4 (in groups).")] = "int8",
    group_size: Annotated[
        int | None, typer.Option(help="Weights that share a scale in int4.", show_default="64")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="Share of the weights in int4, the rest int8.", show_default="1")
    ] = None,
    awq: Annotated[
        bool, typer.Option("--awq", help="int4 that spares the weights that matter most (2306.00978).")
    ] = False,
    scale_estimation: Annotated[
        bool, typer.Option("--scale-estimation", help="int4 scales fitted to what flows through the model.")
    ] = False,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A text in UTF-8 for --awq and --scale-estimation.")
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Measure the result's quality.")] = True,
) -> None:
    """Convert a model, say what it lost, and print its folder."""
    from wager.models import convert as c
    from wager.models.convert_source import full_precision

    weights = c.Weights(
        format=weight_format,
        group_size=group_size,
        ratio=ratio,
        awq=awq,
        scale_estimation=scale_estimation,
        calibration=calibration,
    )
    folder = c.target_folder(name or f"{_stem(source)}-{weights.form}")
    c.check_tools(weights)
    with Bars() as bars, full_precision(source, folder, progress=bars) as full:
        found = c.convert(full, folder, weights, progress=bars)
        _tell(found, weights)
        if check:
            _check(folder, full, bars)
    print(folder)


def _stem(source: str) -> str:
    name = Path(source).name or source
    return name.partition(":")[0].removesuffix(".gguf")


def _tell(found: dict[str, int], weights: Weights) -> None:
    """The forms of the matrices, and why not all have the one asked for."""
    listed = ", ".join(f"{n} {form}" for form, n in sorted(found.items(), key=lambda pair: -pair[1]))
    halved = weights.format == "int4" and any(
        form.startswith("int4") and form != f"int4-{weights.group}" for form in found
    )
    say(f"matrices: {listed}" + (f" ({weights.group} does not divide all their inputs)" if halved else ""))


def _check(folder: Path, full: FullModel, bars: Bars) -> None:
    from wager.bench import quality

    table = quality.measure([str(folder)], reference=str(full.folder), progress=bars)
    say(quality.markdown(table))
