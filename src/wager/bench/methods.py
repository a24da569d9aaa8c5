"""The methods that can be measured, by name: ``[PROFILE/]NAME[:ARGUMENT][:n=TOKENS]``."""

from __future__ import annotations

import re
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import Literal

from wager.bench.replay import parse_chances
from wager.drafters import DRAFTERS, is_drafter
from wager.errors import OptionError
from wager.models.profiles import PROFILES

Kind = Literal["plain", "drafter", "oracle", "genai", "llamacpp"]
DEFAULT_PROFILE = "fast"
GENAI_MODES = ("", "pa", "sdpa", "cb", "lookup", "defaults")
_KINDS: dict[str, Kind] = {
    "plain": "plain",
    **dict.fromkeys(("auto", *DRAFTERS), "drafter"),
    "oracle": "oracle",
    "replay": "oracle",
    "genai": "genai",
    "llamacpp": "llamacpp",
}


@dataclass(frozen=True, slots=True)
class Method:
    """``name`` is for tables; ``drafter`` is a drafter's spec ("": none); ``n_draft`` None lets the policy decide."""

    name: str
    kind: Kind
    profile: str = DEFAULT_PROFILE
    drafter: str = ""
    argument: str = ""
    n_draft: int | None = None

    @property
    def is_ours(self) -> bool:
        return self.kind in ("plain", "drafter", "oracle")


def parse_methods(names: str) -> list[Method]:
    """Comma-separated method names. Raises OptionError for one that does not exist or comes twice."""
    parts = re.split(r",(?!\s*[\d.])", names)  # numbers go on with an argument: replay:0.8,0.7
    methods = [parse_method(name.strip()) for name in parts if name.strip()]
    if not methods:
        raise OptionError(f"`--methods` is `{names}`: give some of {', '.join(_KINDS)}")
    seen = [m.name for m in methods]
    twice = next((name for name in seen if seen.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"`--methods` names `{twice}` twice: once is enough")
    return methods


def parse_method(text: str) -> Method:
    """One method. A drafter's argument may hold colons and slashes (a path)."""
    profile, rest = DEFAULT_PROFILE, text
    head, slash, tail = text.partition("/")
    if slash and head in PROFILES:
        profile, rest = head, tail
    name, _, argument = rest.partition(":")
    name, together = _first_part(name)
    if name not in _KINDS and not is_drafter(name):
        raise OptionError(f"`{text}` is no method: give some of {', '.join(_KINDS)}, with a profile as in max/plain")
    argument, n_draft = _split_length(text, argument)
    kind = _kind(name)
    _check_argument(text, name, argument, n_draft)
    drafter = "" if kind != "drafter" else f"{name}{together}:{argument}" if argument else name + together
    shown = rest if profile == DEFAULT_PROFILE else f"{profile}/{rest}"
    return Method(shown, kind, profile, drafter, argument, n_draft)


def _kind(name: str) -> Kind:
    return _KINDS.get(name, "drafter")  # of another package


def _first_part(name: str) -> tuple[str, str]:
    """``a+b`` as its first drafter and the rest of it, where all of its parts are drafters."""
    parts = name.split("+")
    if len(parts) > 1 and all(map(is_drafter, parts)):
        return parts[0], "".join(f"+{part}" for part in parts[1:])
    return name, ""


def _split_length(text: str, argument: str) -> tuple[str, int | None]:
    rest, _, last = argument.rpartition(":")
    if not last.startswith("n="):
        return argument, None
    try:
        n_draft = int(last.removeprefix("n="))
    except ValueError as error:
        raise OptionError(f"`{text}` has `{last}`: give a whole number of draft tokens, as in lookup:n=8") from error
    if n_draft < 1:
        raise OptionError(f"`{text}` has `{last}`: give at least 1 (plain drafts nothing)")
    return rest, n_draft


def _check_argument(text: str, name: str, argument: str, n_draft: int | None) -> None:
    if name == "replay":
        parse_chances(argument)
        return
    allowed = {"oracle": ("", "copy"), "genai": GENAI_MODES}.get(name, ("",))
    if _kind(name) != "drafter" and name != "llamacpp" and argument not in allowed:
        wanted = ", ".join(f"{name}:{a}" if a else name for a in allowed)
        raise OptionError(f"`{text}` has the argument `{argument}`: give {wanted}")
    if name == "model" and not argument:
        raise OptionError("`model` needs a path: give model:PATH")
    if n_draft is not None and name in ("plain", "genai", "llamacpp"):
        raise OptionError(f"`{text}`: {name} takes no draft length, give `{name}`")


def check_methods(methods: ListLike[Method], *, temperature: float) -> None:
    """Raises OptionError for what cannot be compared fairly."""
    peer = next((m.name for m in methods if not m.is_ours), None)
    if temperature > 0 and peer is not None:
        raise OptionError(f"`{peer}` is compared on greedy text only: leave it out, or give --temperature 0")
    for method in methods:
        siblings = [m for m in methods if m.is_ours and m.profile == method.profile and m.kind != "oracle"]
        if method.kind == "oracle" and not siblings:
            raise OptionError(f"`{method.name}` replays the text of another method: add plain to --methods")
