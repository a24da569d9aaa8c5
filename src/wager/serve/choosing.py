"""Drafters that a request may name beside the one served, which is what the engine was made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wager.drafters import drafter_named, is_drafter, make_drafter
from wager.drafters.choice import Choice
from wager.drafting import Tree, drawing_for
from wager.errors import OptionError
from wager.policies import policy_named

if TYPE_CHECKING:
    from wager.engine import Engine
    from wager.llm import LLM

USUAL = ("lookup", "suffix", "cacheback", "recycling", "lookahead")  # these are made in no time
_AUTO = {"auto": "blend"}


def spelled(name: str) -> str:
    """The drafter that ``name`` stands for."""
    return _AUTO.get(name, name)


def check_names(names: tuple[str, ...]) -> None:
    """Raises OptionError for a drafter that a request may not choose: it needs training, a store or a second model."""
    for name in names:
        if name == "none" or (is_drafter(known := spelled(name)) and _is_ready(known)):
            continue
        raise OptionError(f"`drafters` has {name!r}: give names of {', '.join(('none', 'auto', *USUAL))}")


def _is_ready(name: str) -> bool:
    info = drafter_named(name)
    return info.family == "text" and not info.argument


def offer(llm: LLM, engine: Engine, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Have ``engine`` draft with what each sequence is bound to; what can be asked for, the served one first.

    ``names`` None: the usual ones, where that is possible. What they learn is kept in memory only. With suffix goes
    auto, which drafts from it, but without what the model says after single tokens, unless it is asked for by name.
    Raises OptionError.
    """
    served = () if engine.drafter is None else (engine.drafter.name,)
    reason = _reason(llm, engine)
    if reason is not None and names:
        raise OptionError(f"`drafters` is {','.join(names)!r}, but {reason}: leave it out")
    asked = USUAL if names is None and reason is None else names or ()
    others = [name for name in dict.fromkeys(map(spelled, asked)) if name not in (*served, "none")]
    drawing = drawing_for(engine.rule, Tree())
    made = {name: llm.make_drafter(name, drawing, remember=False) for name in others}
    parts = {name: drafter for name, drafter in made.items() if drafter is not None}
    if "suffix" in (*served, *parts) and "blend" not in (*served, *parts):
        parts["blend"] = make_drafter("blend", None)
    if parts:
        mine = {} if engine.drafter is None else {engine.drafter.name: engine.drafter}
        engine.draft_with(Choice({**mine, **parts}))
    return (*served, *parts, "none")


def _reason(llm: LLM, engine: Engine) -> str | None:
    """Why nothing but the served drafter can be had; None where others can."""
    if not engine.rule.coupled:
        return f"the text depends on the drafter under `rule` {engine.rule.name!r}"
    policy = policy_named(llm.info["policy"])
    return f"`policy` {policy.name!r} steers a draft model" if policy.needs_model else None
