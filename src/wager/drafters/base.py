"""From the name a user gives to a drafter, ``NAME`` or ``NAME:ARGUMENT``, to what is known of it and to itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from wager.errors import OptionError
from wager.types import Drafter

# Name -> "module:name" of a DrafterInfo, imported only when the drafter is asked for. A new one is a line here.
DRAFTERS: dict[str, str] = {
    "lookup": "wager.drafters.lookup:DRAFTER",
    "model": "wager.drafters.model:DRAFTER",
    "uag": "wager.drafters.uag:DRAFTER",
    "tli": "wager.drafters.tli:DRAFTER",
    "gsd": "wager.drafters.gsd:DRAFTER",
    "copy": "wager.drafters.copy:DRAFTER",
    "skip": "wager.drafters.skip:DRAFTER",
    "window": "wager.drafters.window:DRAFTER",
    "cacheback": "wager.drafters.cacheback:DRAFTER",
    "suffix": "wager.drafters.suffix:DRAFTER",
    "blend": "wager.drafters.blend:DRAFTER",
    "recycling": "wager.drafters.recycling:DRAFTER",
    "lookahead": "wager.drafters.lookahead:DRAFTER",
    "retrieval": "wager.drafters.retrieval:DRAFTER",
    "dense": "wager.drafters.dense:DRAFTER",
}

GROUP = "wager.drafters"  # entry points of other packages, NAME = "module:name" as above

_PROTOCOL = ("name", "kind", "has_laws", "propose", "observe", "forget", "seconds")

Family = Literal["text", "target", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterInfo:
    """A drafter as the registry knows it; the sentences are its row of docs/drafters.md.

    ``make(argument, target)``: what stands after the colon ("": nothing), and the target model that it will draft for
    (``drafting.DraftTarget``). ``family``: it drafts from text and what the target said, with the target's own weights,
    or with another model. ``argument``: how one that it cannot do without is shown. ``trees``: it drafts branches where
    they are allowed, else one path. ``alone``: it is no part of ``a+b``. ``needs_target``: ``make`` cannot do without
    it; where it can, a wrong argument is refused before a model is loaded. Where it cannot, ``check`` raises what is
    known of an argument without it.
    """

    make: Callable[[str, Any], Drafter]
    family: Family = "text"
    argument: str = ""
    drafts: str = ""
    needs: str = "nothing"
    remembers: str = "nothing"
    costs: str = ""
    source: str = ""
    trees: bool = True
    alone: bool = False
    needs_target: bool = True
    check: Callable[[str], object] | None = None


def drafter_named(name: str) -> DrafterInfo:
    """What is known of the drafter that is registered as ``name``, here or by another package.

    Raises ``OptionError`` where there is none.
    """
    spec = _registered(name)
    if spec is None:
        raise OptionError(_unknown(name))
    module, _, attribute = spec.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"`drafter` {name!r} cannot be imported from {spec} ({error}): install what it needs"
        ) from error
    return found if isinstance(found, DrafterInfo) else DrafterInfo(make=found)


def is_drafter(name: str) -> bool:
    """Whether a drafter is registered as ``name``."""
    return _registered(name) is not None


def _registered(name: str) -> str | None:
    if name in DRAFTERS:
        return DRAFTERS[name]
    return next((point.value for point in entry_points(group=GROUP, name=name)), None)


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
    if not is_drafter(name):
        raise OptionError(_unknown(spec))
    return drafter_named(name).make(argument, target)


def check_spec(spec: str | Drafter) -> None:
    """Raises ``OptionError`` for a name or argument that is wrong whatever the target, or for what is no drafter."""
    if not isinstance(spec, str):
        missing = [part for part in _PROTOCOL if not hasattr(spec, part)]
        if missing or isinstance(spec, type):
            what = f"it has no {', '.join(missing)}" if missing else "it is a class"
            raise OptionError(f"`drafter` is {spec!r}, but {what}: give a name or an object as types.Drafter says")
        return
    if spec in ("none", "auto"):
        return
    parts = _parts(spec)
    if not all(is_drafter(part.partition(":")[0]) for part in parts):
        raise OptionError(_unknown(spec))
    if len(parts) > 1:
        from wager.drafters import together

        together.check(spec)
    for part in parts:
        name, _, argument = part.partition(":")
        info = drafter_named(name)
        if info.check is not None:
            info.check(argument)
        elif not info.needs_target:
            info.make(argument, None)


def _parts(spec: str) -> list[str]:
    """The drafters of ``a+b``; one where not all parts are names of drafters."""
    parts = spec.split("+")
    return parts if all(is_drafter(part.partition(":")[0]) for part in parts) else [spec]


def _unknown(spec: str) -> str:
    parts = spec.split("+")
    if len(parts) > 1 and "auto" in parts:
        return f"`drafter` is {spec!r}: auto is blend, which weighs its evidence by itself, give it alone"
    shown = [f"{name}:{argument}" if (argument := drafter_named(name).argument) else name for name in DRAFTERS]
    return (
        f"`drafter` is {spec!r}: give one of {', '.join(['none', 'auto', *shown])}, or several as in lookup+recycling"
    )


def refuse_argument(name: str, argument: str) -> None:
    """Raises ``OptionError`` if a drafter that takes no argument was given one."""
    if argument:
        raise OptionError(f"`drafter` is {name + ':' + argument!r}: {name} takes no argument, give {name!r}")
