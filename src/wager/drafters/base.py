"""From the name a user gives to a drafter: ``NAME`` or ``NAME:ARGUMENT``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from wager.errors import OptionError
from wager.types import Drafter

# Name -> "module:function"; the function takes (argument, target) and is imported only when the name is used.
DRAFTERS: dict[str, str] = {
    "lookup": "wager.drafters.lookup:make",
    "model": "wager.drafters.model:make",
    "copy": "wager.drafters.copy:make",
    "cacheback": "wager.drafters.cacheback:make",
    "suffix": "wager.drafters.suffix:make",
    "recycling": "wager.drafters.recycling:make",
    "lookahead": "wager.drafters.lookahead:make",
    "retrieval": "wager.drafters.retrieval:make",
}


def make_drafter(spec: str, target: Any) -> Drafter:
    """The drafter that ``spec`` names, for the target model that it will draft for (whatever the front door loads).

    ``a+b`` puts drafters from text together (together.py); a plus sign in a path does not, because no drafter's name
    follows it.

    Raises ``OptionError`` for an unknown name or a wrong argument.
    """
    names = [part.partition(":")[0] for part in spec.split("+")]
    if len(names) > 1 and all(name in DRAFTERS for name in names):
        from wager.drafters import together

        return together.make(spec, target)
    name, _, argument = spec.partition(":")
    if name not in DRAFTERS:
        raise OptionError(
            f"`drafter` is {spec!r}: give one of {', '.join(DRAFTERS)} (with what they need: model:PATH, copy:int4, "
            "retrieval:STORE)"
        )
    module, _, function = DRAFTERS[name].partition(":")
    make: Callable[[str, Any], Drafter] = getattr(import_module(module), function)
    return make(argument, target)


def refuse_argument(name: str, argument: str) -> None:
    """Raises ``OptionError`` if a drafter that takes no argument was given one."""
    if argument:
        raise OptionError(f"`drafter` is {name + ':' + argument!r}: {name} takes no argument, give {name!r}")
