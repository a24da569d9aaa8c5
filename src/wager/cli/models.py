"""`wager models`: what can be pulled and what is here."""

from __future__ import annotations

from typing import Annotated

import typer

from wager.cli import options as o
from wager.cli.console import megabytes, print_json, say

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def models(
    as_json: o.AsJson = False,
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Delete this model's files.")] = None,
) -> None:
    """List the catalog and the models that are here, with their sizes."""
    from wager.home import models_home
    from wager.models import catalog

    if remove is not None:
        catalog.remove(remove)
        say(f"removed {remove}")
        return
    local = catalog.local_models()
    names = {model.name for model in local}
    known = catalog.entries().values()
    if as_json:
        print_json(
            {
                "home": str(models_home()),
                "catalog": [
                    {"name": e.name, "title": e.title, "n_bytes": e.n_bytes, "here": e.name in names} for e in known
                ],
                "local": [
                    {
                        **{"name": m.name, "path": str(m.path), "n_bytes": m.n_bytes},
                        **{"quantisation": m.quantisation, "problem": m.problem},
                    }
                    for m in local
                ],
            }
        )
        return
    width = max(24, *(len(name) + 2 for name in [*names, *(e.name for e in known)]))
    print("catalog (wager pull NAME):")
    for entry in known:
        state = (
            "here" if entry.name in names else f"download {megabytes(entry.n_bytes)}" if entry.n_bytes else "on the hub"
        )
        print(f"  {entry.name:<{width}}{state:<20}{entry.title}")
    print(f"here ({models_home()}):")
    for model in local:
        print(f"  {model.name:<{width}}{megabytes(model.n_bytes):<20}{model.problem or model.quantisation}")
    if not local:
        print("  none yet: the first run pulls the default")
