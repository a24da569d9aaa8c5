"""The methods that can be measured, by name: ``[PROFILE/]NAME[:ARGUMENT][:n=TOKENS][@policy=POLICY][@rule=RULE]``.

Of peers: ``NAME[:MODE][:n=TOKENS][:defaults]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import Literal

from wager.bench.replay import parse_chances
from wager.drafters import DRAFTERS, is_drafter
from wager.drafting import Tree, planned
from wager.errors import OptionError
from wager.models.profiles import PROFILES
from wager.verify import rule_named

Kind = Literal["plain", "drafter", "oracle", "genai", "llamacpp", "transformers"]
DEFAULT_PROFILE = "fast"
DEFAULT_RULE = "walk"
DRAFT = "draft"  # a peer's mode with a draft model, named after it as in genai:draft:MODEL
PEER_MODES = {"genai": ("", "pa", "sdpa", "cb", "lookup", DRAFT), "transformers": ("", "lookup", DRAFT)}
_KINDS: dict[str, Kind] = {
    "plain": "plain",
    **dict.fromkeys(("auto", *DRAFTERS), "drafter"),
    "oracle": "oracle",
    "replay": "oracle",
    "genai": "genai",
    "transformers": "transformers",
    "llamacpp": "llamacpp",
}


@dataclass(frozen=True, slots=True)
class Method:
    """``name`` is for tables; ``drafter`` is a drafter's spec ("": none); ``n_draft`` None lets the policy decide.

    ``argument`` of a peer is its mode, ``draft`` the draft model it is given, ``defaults``: with its own properties.
    """

    name: str
    kind: Kind
    profile: str = DEFAULT_PROFILE
    drafter: str = ""
    argument: str = ""
    n_draft: int | None = None
    policy: str | None = None
    rule: str = DEFAULT_RULE
    draft: str = ""
    defaults: bool = False

    @property
    def is_ours(self) -> bool:
        return self.kind in ("plain", "drafter", "oracle")

    def keeps_text(self, temperature: float) -> bool:
        """Whether its text should be plain decoding's, token by token: not under rules whose samples follow drafts."""
        rule = rule_named(self.rule)
        return self.is_ours and rule.lossless and (rule.coupled or temperature == 0)


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
    """One method. A drafter's argument may hold colons, slashes and at signs (a path)."""
    profile, rest = DEFAULT_PROFILE, text
    head, slash, tail = text.partition("/")
    if slash and head in PROFILES:
        profile, rest = head, tail
    spec, policy, rule = _split_choices(rest)
    name, _, argument = spec.partition(":")
    name, together = _first_part(name)
    if name not in _KINDS and not is_drafter(name):
        raise OptionError(f"`{text}` is no method: give some of {', '.join(_KINDS)}, with a profile as in max/plain")
    kind = _KINDS.get(name, "drafter")  # of another package
    shown = rest if profile == DEFAULT_PROFILE else f"{profile}/{rest}"
    if kind in PEER_MODES:
        argument, draft, n_draft, defaults = _peer(text, kind, argument)
        method = Method(shown, kind, profile, "", argument, n_draft, policy, rule, draft, defaults)
    else:
        argument, n_draft = _split_length(text, argument)
        drafter = "" if kind != "drafter" else f"{name}{together}:{argument}" if argument else name + together
        method = Method(shown, kind, profile, drafter, argument, n_draft, policy, rule)
    _check(text, method)
    return method


def _split_choices(text: str) -> tuple[str, str | None, str]:
    """What stands before ``@policy=`` and ``@rule=``, and what they say."""
    policy, rule = None, DEFAULT_RULE
    while True:
        rest, at, last = text.rpartition("@")
        key, equals, value = last.partition("=")
        if not at or not equals or key not in ("policy", "rule"):
            return text, policy, rule
        text = rest
        if key == "policy":
            policy = value
        else:
            rule = value


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


def _peer(text: str, kind: Kind, argument: str) -> tuple[str, str, int | None, bool]:
    """A peer's mode, draft model, draft length, and whether it runs with its own properties."""
    rest, _, last = argument.rpartition(":")
    defaults = last == "defaults"
    argument, n_draft = _split_length(text, rest if defaults else argument)
    mode, _, draft = argument.partition(":")
    if mode not in PEER_MODES[kind] or (draft and mode != DRAFT):
        known = ", ".join(f"{kind}:{m}" if m else kind for m in PEER_MODES[kind])
        raise OptionError(f"`{text}` has the argument `{argument}`: give {known}, and :defaults after it")
    if mode == DRAFT and not draft:
        raise OptionError(f"`{text}` needs a draft model: give {kind}:draft:MODEL")
    if n_draft is not None and mode not in ("lookup", DRAFT):
        raise OptionError(f"`{text}`: {kind} takes no draft length, give `{kind}` or {kind}:lookup:n={n_draft}")
    return mode, draft, n_draft, defaults


def _check(text: str, method: Method) -> None:
    rule = rule_named(method.rule)
    if method.kind == "drafter":
        planned(method.policy, method.drafter, method.n_draft, Tree(), rule)
    elif method.policy is not None or method.rule != DEFAULT_RULE:
        raise OptionError(f"`{text}`: only drafters take a policy or a rule, as in copy:int4@policy=threshold")
    if method.kind in ("plain", "llamacpp") and method.n_draft is not None:
        raise OptionError(f"`{text}`: {method.kind} takes no draft length, give `{method.kind}`")
    if method.kind == "oracle" and text.rpartition("/")[2].startswith("replay"):
        parse_chances(method.argument)
        return
    allowed = {"plain": ("",), "oracle": ("", "copy")}.get(method.kind)
    if allowed is not None and method.argument not in allowed:
        wanted = ", ".join(f"{method.kind}:{a}" if a else method.kind for a in allowed)
        raise OptionError(f"`{text}` has the argument `{method.argument}`: give {wanted}")
    if method.drafter == "model":
        raise OptionError("`model` needs a path: give model:PATH")


def check_methods(methods: ListLike[Method], *, temperature: float) -> None:
    """Raises OptionError for what cannot be compared fairly."""
    peer = next((m.name for m in methods if not m.is_ours), None)
    if temperature > 0 and peer is not None:
        raise OptionError(f"`{peer}` is compared on greedy text only: leave it out, or give --temperature 0")
    known = {m.profile for m in methods if m.kind in ("plain", "drafter") and m.keeps_text(temperature)}
    for method in methods:
        if method.kind == "oracle" and method.profile not in known:
            raise OptionError(f"`{method.name}` replays the text of another method: add plain to --methods")
