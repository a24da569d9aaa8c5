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

_NEED_NO_TARGET = ("lookup", "cacheback", "suffix", "recycling", "lookahead")


def make_drafter(spec: str, target: Any) -> Drafter:
    """The drafter that ``spec`` names, for the target model that it will draft for (whatever the front door loads).

    ``a+b`` puts drafters from text together (together.py); a plus sign in a path does not, because no drafter's name
    follows it.

    Raises ``OptionError`` for an unknown name or a wrong argument.
    """
    if len(_parts(spec)) > 1:
        from wager.drafters import together

        return together.make(spec, target)
    name, _, argument = spec.partition(":")
    module, _, function = DRAFTERS[_known(name, spec)].partition(":")
    make: Callable[[str, Any], Drafter] = getattr(import_module(module), function)
    return make(argument, target)


def check_spec(spec: str) -> None:
    """Raises ``OptionError`` for a drafter's name or argument that is wrong whatever the target."""
    if spec in ("none", "auto"):
        return
    names = [part.partition(":")[0] for part in _parts(spec)]
    for name in names:
        _known(name, spec)
    if all(name in _NEED_NO_TARGET for name in names):
        make_drafter(spec, None)


def _parts(spec: str) -> list[str]:
    """The drafters of ``a+b``; one where not all parts are names of drafters."""
    parts = spec.split("+")
    return parts if all(part.partition(":")[0] in DRAFTERS for part in parts) else [spec]


def _known(name: str, spec: str) -> str:
    if name not in DRAFTERS:
        raise OptionError(
            f"`drafter` is {spec!r}: give one of {', '.join(DRAFTERS)} (with what they need: model:PATH, copy:int4, "
            "retrieval:STORE), or several as in lookup+recycling"
        )
    return name


def refuse_argument(name: str, argument: str) -> None:
    """Raises ``OptionError`` if a drafter that takes no argument was given one."""
    if argument:
        raise OptionError(f"`drafter` is {name + ':' + argument!r}: {name} takes no argument, give {name!r}")
