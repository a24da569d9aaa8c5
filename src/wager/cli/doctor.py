"""`wager doctor`: the machine, the versions, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from wager.cli import options as o
from wager.cli.console import Bars, megabytes, print_json, say

if TYPE_CHECKING:
    from wager.types import JSON

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(as_json: o.AsJson = False) -> None:
    """Show the machine, the versions, and what is missing.

    Exit code 1 if anything is.
    """
    from wager.doctor import examine

    found = {**examine(), "kernels": which_kernels()}
    if as_json:
        print_json(found)
    else:
        print("\n".join(lines(found)))
        for problem in found["problems"]:
            say(f"problem: {problem}")
    raise typer.Exit(1 if found["problems"] else 0)


def which_kernels() -> str:
    """Whether products and attention run on our kernels here, which are compiled now if they were not, and why not."""
    try:
        from wager.models.kernels import kernels

        with Bars() as bars:
            own, why_not = kernels(bars)
    except ImportError as error:  # a part of the installation that is missing is told beside this
        return f"unknown: {error}"
    return "own" if own is not None else f"the plugin's: {why_not}"


def lines(found: JSON) -> list[str]:
    """The report for people."""
    cpu, memory, home = found["cpu"], found["memory"], found["home"]
    cores = f"{cpu['cores']} cores, {cpu['usable_cores']} usable"
    if cpu["container_limit"] is not None:
        cores += f", container limit {cpu['container_limit']:g}"
    flags = "unknown"
    if cpu["flags"] is not None:
        flags = ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in cpu["flags"].items())
    sizes = [megabytes(n) if n is not None else "unknown" for n in memory.values()]
    rows = [
        ("wager", f"{found['wager'] or 'not installed'} · Python {found['python']} · {found['system']}"),
        ("processor", f"{cpu['model']} ({cores})"),
        ("instructions", flags),
        ("kernels", found["kernels"]),
        ("memory", f"{sizes[0]}, {sizes[1]} available"),
        *((name, version or "missing") for name, version in found["packages"].items()),
        ("WAGER_HOME", f"{home['path']} ({megabytes(home['free_bytes'])} free)"),
        ("verdict", "all well" if not found["problems"] else f"{len(found['problems'])} to mend"),
    ]
    return [f"{name:<21}{value}" for name, value in rows]
