"""What `wager rules` measures: rules × numbers of children × depths, as far as each rule allows."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

from wager.bench.suite import listed
from wager.drafters.drawing import Drawing
from wager.drafting import Tree, drawing_for, spelled
from wager.errors import OptionError
from wager.types import Drafter
from wager.verify import LOSSY, RULES, RuleInfo, check_rule_takes, rule_named

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Setting:
    """One rule with one form of draft: ``k`` children (sequences, where they are drawn whole), ``depth`` tokens a path.

    ``rule`` as a user types it; "plain" is decoding without drafts, at k = depth = 0.
    """

    rule: str
    k: int = 0
    depth: int = 0
    trunk: int = 0

    @property
    def name(self) -> str:
        return self.rule if self.rule == PLAIN else f"{self.rule} k={self.k} depth={self.depth}"

    @property
    def tree(self) -> Tree:
        return Tree(max(1, self.k), self.trunk if self.k > 1 else 0)

    @property
    def info(self) -> RuleInfo:
        return rule_named("walk" if self.rule == PLAIN else self.rule)


def whole_numbers(name: str, text: str) -> list[int]:
    """Ascending numbers of a comma-separated option, at least 1 each. Raises ``OptionError``."""
    try:
        numbers = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise OptionError(f"`--{name}` is `{text}`: give whole numbers of at least 1, as in 1,2,4")
    return numbers


def chosen_rules(names: str) -> list[RuleInfo]:
    """The rules named, comma-separated, each once; all there are where none is. Raises ``OptionError``."""
    given = listed(names) or [*RULES, *LOSSY]
    infos = {spelled(info): info for info in map(rule_named, given)}
    return list(infos.values())


def settings(
    rules: ListLike[RuleInfo],
    ks: ListLike[int],
    depths: ListLike[int],
    trunk: int,
    *,
    drafter_for: Callable[[RuleInfo], Drafter],
    strict: bool,
    say: Callable[[str], None],
) -> list[Setting]:
    """Plain decoding, then every rule with every form it allows.

    Where a rule cannot take what the drafter drafts, or the least of ``ks`` (ascending): ``OptionError`` if ``strict``,
    else it is left out, said so.
    """
    if not 0 <= trunk < depths[0]:
        raise OptionError(f"`--trunk` is {trunk}: give 0 or more, but less than the least --depth {depths[0]}")
    found = [Setting(PLAIN)]
    for info in rules:
        try:
            check_rule_takes(info, drafter_for(info), width=ks[0])
        except OptionError as reason:
            if strict:
                raise
            say(f"left out: {reason}")
            continue
        allowed = [k for k in ks if k == 1 or (info.trees and k <= (info.max_children or k))]
        found += [Setting(spelled(info), k, depth, trunk) for k in allowed for depth in depths]
    return found


def drawing_of(setting: Setting) -> Drawing:
    """How the draft model draws for a setting; laws come along wherever there are any, to know the optimum."""
    return drawing_for(setting.info, setting.tree, laws=True)
