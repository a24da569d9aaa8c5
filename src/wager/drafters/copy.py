"""A low-bit copy of the target drafts for it: a draft model of the same vocabulary, without training or a file."""

from __future__ import annotations

from typing import Any

from wager.drafters.base import DrafterInfo
from wager.drafters.model import ModelDrafter, loaded
from wager.errors import ModelError, OptionError


def make(argument: str, target: Any) -> ModelDrafter:
    """For the registry: the target's own folder, read again, with its products in int4 (``models.low_bit``)."""
    check(argument)
    from wager.models.low_bit import to_int4

    def prepare(graph: Any) -> None:
        if target.progress is not None:
            target.progress("making an int4 copy", 0, 1)
        if not to_int4(graph):
            raise ModelError(f"`{target.ir_dir}` has no weights that can be made int4: choose another drafter")

    return loaded("copy:int4", target.ir_dir, target, prepare=prepare)


def check(argument: str) -> None:
    """Raises ``OptionError`` for another kind of copy."""
    if argument != "int4":
        spec = f"copy:{argument}" if argument else "copy"
        raise OptionError(f"`drafter` is {spec!r}: the one kind of copy is int4, give 'copy:int4'")


DRAFTER = DrafterInfo(
    make=make,
    family="target",
    argument="int4",
    drafts="with the target's own weights in int4, made while loading",
    costs="a forward of the copy per token",
    source="a quantised copy as draft, as in QSpec 2410.11305",
    check=check,
)
