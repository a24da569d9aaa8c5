"""What a user's words about drafting come to: how to draw, how much, and what may be promised of the text."""

from __future__ import annotations

from dataclasses import dataclass

from wager.drafters import drafter_named, is_drafter
from wager.drafters.drawing import Drawing
from wager.errors import IdentityError, OptionError
from wager.policies import Fixed
from wager.types import Drafter
from wager.verify import RuleInfo

DEFAULT_DEPTH = 4  # of a tree, where nobody says


@dataclass(frozen=True, slots=True)
class Tree:
    """``trunk`` tokens in one path, then ``levels`` levels at which a node has ``width`` children, then paths."""

    width: int = 1
    trunk: int = 0
    levels: int = 1

    def n_nodes(self, depth: int) -> int:
        """Nodes of its root-to-leaf paths, ``depth`` each: as forks are fed, what paths share counts with each."""
        return depth * int(self.width ** max(0, min(self.levels, depth - self.trunk)))


def check_drafting(drafter: str | Drafter, num_draft_tokens: int | None, tree: Tree) -> None:
    """Raises ``OptionError`` for what contradicts itself, before anything is loaded."""
    if drafter == "none" and num_draft_tokens:
        raise OptionError(
            f"`num_draft_tokens` is {num_draft_tokens} but `drafter` is 'none': name a drafter, or give 0"
        )
    if num_draft_tokens is not None and num_draft_tokens < 0:
        raise OptionError(
            f"`num_draft_tokens` is {num_draft_tokens}: give 0 or more, or nothing to let the policy decide"
        )
    for name, value, least in (("width", tree.width, 1), ("trunk", tree.trunk, 0), ("levels", tree.levels, 1)):
        if value < least:
            raise OptionError(f"`tree_{name}` is {value}: give at least {least}")
        if value > least and tree.width == 1:
            raise OptionError(f"`tree_{name}` is {value} but `tree_width` is 1: give a width of at least 2")
    if tree.width > 1 and isinstance(drafter, str):
        check_drafts_trees(drafter, "tree_width", str(tree.width))


def check_drafts_trees(drafter: str, option: str, value: str) -> None:
    """Raises ``OptionError`` where an option asks for a tree of a drafter that has none."""
    if drafter in ("none", "auto") or (is_drafter(drafter) and not drafter_named(drafter).trees):
        raise OptionError(
            f"`{option}` is {value} but `drafter` is {drafter!r}, which drafts single paths: name another one, as in "
            "model:PATH"
        )


def drawing_for(rule: RuleInfo, tree: Tree, *, laws: bool = False) -> Drawing:
    """How a model has to draw for ``rule``; ``laws`` asks for them where coupled drafts could do without.

    Raises ``OptionError`` for levels that such drafts do not have.
    """
    if rule.draws == "iid" and tree.levels > 1:
        raise OptionError(f"`tree_levels` is {tree.levels} but `rule` {rule.name!r} draws whole sequences: give 1")
    return Drawing(rule.draws, laws and rule.draws == "coupled", tree.trunk, tree.levels, rule.max_law)


def fixed(depth: int, tree: Tree) -> Fixed:
    """Always the same draft, whole."""
    return Fixed(tree.n_nodes(depth), depth=depth, width=tree.width)


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
