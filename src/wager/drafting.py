"""What a user's words about drafting come to: how to draw, how much, and what may be promised of the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wager.drafters import drafter_named, is_drafter
from wager.drafters.drawing import Drawing
from wager.errors import IdentityError, OptionError
from wager.policies import PolicyInfo, policy_named
from wager.policies import Tree as Tree
from wager.types import SAMPLED, Drafter, DraftKind, Steered
from wager.verify import RuleInfo, check_width

if TYPE_CHECKING:
    from wager.models.openvino import OpenVINOModel
    from wager.text import Text


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """What a drafter may know of the model that it drafts for, and how the verification rule wants it to draw.

    ``remember``: what it learns may outlive the process. ``model``: the target itself (an ``OpenVINOModel``).
    """

    text: Text
    n_valid_ids: int
    profile: str
    threads: int | None
    progress: Callable[[str, int, int], None] | None
    ir_dir: Path
    drawing: Drawing
    model: OpenVINOModel
    remember: bool = True


def check_drafting(drafter: str | Drafter, num_draft_tokens: int | None, tree: Tree) -> None:
    """Raises ``OptionError`` for what contradicts itself, before anything is loaded."""
    if num_draft_tokens is not None and not (isinstance(num_draft_tokens, int) and num_draft_tokens >= 0):
        raise OptionError(
            f"`num_draft_tokens` is {num_draft_tokens!r}: give a whole number of at least 0, or nothing to let the "
            "policy decide"
        )
    if drafter == "none" and num_draft_tokens:
        raise OptionError(
            f"`num_draft_tokens` is {num_draft_tokens} but `drafter` is 'none': name a drafter, or give 0"
        )
    for name, value, least in (("width", tree.width, 1), ("trunk", tree.trunk, 0), ("levels", tree.levels, 1)):
        if not isinstance(value, int) or value < least:
            raise OptionError(f"`tree_{name}` is {value!r}: give a whole number of at least {least}")
        if value > least and tree.width == 1:
            raise OptionError(f"`tree_{name}` is {value} but `tree_width` is 1: give a width of at least 2")
    if tree.width > 1 and isinstance(drafter, str):
        check_drafts_trees(drafter, "tree_width", str(tree.width))


def check_drafts_trees(drafter: str, option: str, value: str, *, remedy: str = "") -> None:
    """Raises ``OptionError`` where an option asks for a tree of a drafter without. ``remedy``: what else helps."""
    name = drafter.partition(":")[0]
    if name in ("none", "auto") or (is_drafter(name) and not drafter_named(name).trees):
        raise OptionError(
            f"`{option}` is {value} but `drafter` is {drafter!r}, which drafts single paths: {remedy}name another "
            "one, as in model:PATH"
        )


def drawing_for(rule: RuleInfo, tree: Tree, *, laws: bool = False) -> Drawing:
    """How a model has to draw for ``rule``; ``laws`` asks for them where coupled drafts could do without.

    Raises ``OptionError`` for levels that such drafts do not have.
    """
    if rule.draws == "iid" and tree.levels > 1:
        raise OptionError(f"`tree_levels` is {tree.levels} but `rule` {rule.name!r} draws whole sequences: give 1")
    return Drawing(rule.draws, laws and rule.draws == "coupled", tree.trunk, tree.levels)


def planned(
    policy: str | None, drafter: str | Drafter, num_draft_tokens: int | None, tree: Tree, rule: RuleInfo
) -> PolicyInfo:
    """The policy that such options ask for: without a name a fixed one for lengths and trees, else the cost-driven one.

    Raises ``OptionError`` for what contradicts itself, before anything is loaded.
    """
    check_drafting(drafter, num_draft_tokens, tree)
    check_width(rule, tree.width)
    if policy is None:
        return policy_named("cost" if num_draft_tokens is None and tree.width == 1 else "fixed")
    info = policy_named(policy)
    if drafter == "none":
        raise OptionError(f"`policy` is {policy!r} but `drafter` is 'none': name a drafter, or leave the policy out")
    if num_draft_tokens is not None and (info.length is None or (info.knob is None and info.value is not None)):
        raise OptionError(
            f"`num_draft_tokens` is {num_draft_tokens} but `policy` is {policy!r}, which decides that: give one of them"
        )
    if num_draft_tokens is not None and num_draft_tokens < info.least:
        raise OptionError(
            f"`num_draft_tokens` is {num_draft_tokens} but `policy` is {policy!r}: give at least {info.least}"
        )
    if tree.width > 1 and not info.takes_tree:
        raise OptionError(
            f"`tree_width` is {tree.width} but `policy` is {policy!r}, which takes no form of a tree: give one of them"
        )
    most = rule.max_children or info.width if rule.trees else 1
    if info.width > most:
        raise OptionError(
            f"`policy` is {policy!r}, which drafts up to {info.width} branches, but `rule` {rule.name!r} takes {most}: "
            f"give {info.name}:{most} or another rule"
        )
    if isinstance(drafter, str):
        if info.width > 1:
            check_drafts_trees(drafter, "policy", repr(policy), remedy=f"give {info.name}:1, or ")
        runs_model = is_drafter(name := drafter.partition(":")[0]) and drafter_named(name).family != "text"
        if info.needs_model and not runs_model:
            raise OptionError(_no_model(info, drafter))
        if runs_model:
            _check_kind(info, rule.draws, tree)
    return info


def check_policy_takes(info: PolicyInfo, drafter: Drafter, tree: Tree) -> None:
    """Raises ``OptionError``, with the reason, where a policy is not right for what a drafter drafts."""
    if info.needs_model and not isinstance(drafter, Steered):
        raise OptionError(_no_model(info, drafter.name))
    _check_kind(info, drafter.kind, tree)


def _no_model(info: PolicyInfo, drafter: str) -> str:
    return (
        f"`policy` is {info.spelled!r}, which steers a draft by its model's laws: drafter {drafter!r} tells none, name "
        "one like model:PATH or copy:int4, or another policy"
    )


def _check_kind(info: PolicyInfo, kind: DraftKind, tree: Tree) -> None:
    if kind not in SAMPLED:
        return
    if info.cuts:
        raise OptionError(
            f"`policy` is {info.spelled!r}, which drops tokens by what they are, and these drafts are drawn by chance "
            f"({kind}): use rule walk or top-k, or another policy"
        )
    if info.stops and tree.width > 1:
        raise OptionError(
            f"`policy` is {info.spelled!r}, which ends paths by what was drawn: of {kind} drafts that is right for one "
            f"path alone, give a tree width of 1, not {tree.width}"
        )


def promise(rule: RuleInfo, profile: str, reason: str | None) -> str:
    """What holds of the text. ``reason``: why logits depend on how tokens are grouped here; None where they do not."""
    if rule.coupled:
        return "bit-identical" if reason is None else f"{profile} (not bit-identical here: {reason})"
    if not rule.lossless:
        return f"lossy: sampled text has another law than plain decoding ({spelled(rule)})"
    rounding = "" if reason is None else ", up to rounding"
    return f"lossless: same law as plain decoding{rounding}, but sampled text depends on the drafts"


def spelled(rule: RuleInfo) -> str:
    """The rule as a user would type it."""
    return rule.name if rule.knob is None else f"{rule.name}:{rule.knob!r}"


def check_identical(rule: RuleInfo, reason: str | None) -> None:
    """Raises ``IdentityError`` where text might depend on drafts, or on how tokens are grouped."""
    if not rule.coupled:
        raise IdentityError(f"text depends on the drafts under `rule` {spelled(rule)!r}: use walk")
    if reason is not None:
        raise IdentityError(f"this setting is not bit-identical here ({reason}): use profile reference")
