"""`wager pull`: fetch a model and make it ready."""

from __future__ import annotations

from typing import Annotated

import typer

from wager.cli.console import Bars

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def pull(model: Annotated[str, typer.Argument(help="Catalog name, OWNER/NAME on the hub, or a .gguf file.")]) -> None:
    """Fetch a model, check and import it; prints its folder."""
    from wager.models import catalog

    with Bars() as bars:
        folder = catalog.pull(model, progress=bars)
    print(folder)
