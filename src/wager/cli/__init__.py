"""The command `wager`: finds the command asked for, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 our bug or a failed check, 2 the user's to mend, 130 Ctrl-C, 141 the reader of our output left.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import wager
from wager.cli.console import say
from wager.errors import WagerError

COMMANDS = (
    "run",
    "chat",
    "serve",
    "demo",
    "pull",
    "convert",
    "models",
    "store",
    "inspect",
    "tune",
    "bench",
    "rules",
    "decide",
    "doctor",
)

# What users of other engines type; each is honoured under our own name.
ALIASES = {
    "--num-assistant-tokens": "--num-draft-tokens",
    "--num-speculative-tokens": "--num-draft-tokens",
    "--draft-max": "--num-draft-tokens",
    "--assistant-model": "--draft-model",
    "--model-draft": "--draft-model",
    "--max-new-tokens": "--max-tokens",
    "--min-new-tokens": "--min-tokens",
    "--n-predict": "--max-tokens",
    "--temp": "--temperature",
}


class Commands(typer.core.TyperGroup):
    """Loads a command's module when it is asked for, and reports what goes wrong in it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(f"wager.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except WagerError as error:
            say("error: " + " ".join(str(error).split()))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # Nobody reads any more; what is still buffered must not raise again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            say(f"error: the output cannot be written ({error.strerror}): free some space or write it elsewhere")
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    help="Fast, exact LLM inference on CPUs: speculative decoding that never changes your text.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich alone would take longer to import than the help to print
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"wager {wager.__version__}")
        raise typer.Exit


@app.callback()
def _wager(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Fast, exact LLM inference on CPUs: speculative decoding that never changes your text."""


def canonical(args: Sequence[str]) -> list[str]:
    """``args`` with other engines' option names (``--name`` or ``--name=value``) replaced by ours."""
    n_options = args.index("--") if "--" in args else len(args)
    renamed = []
    for arg in args[:n_options]:
        name, equals, value = arg.partition("=")
        renamed.append(ALIASES.get(name, name) + equals + value)
    return [*renamed, *args[n_options:]]


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line (default: the process's own) and exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character must not end the answer
    command = typer.main.get_command(app)
    command(args=canonical(sys.argv[1:] if argv is None else argv), prog_name="wager")
