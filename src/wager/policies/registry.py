"""Policies by name. A new policy is one file and one entry here; docs/policies.md is made from this table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from wager.cost import StepCost
from wager.errors import OptionError
from wager.policies.adaedl import AdaEdl
from wager.policies.base import Policy, Tree
from wager.policies.cost_driven import CostDriven
from wager.policies.delayed import Delayed
from wager.policies.fixed import Fixed
from wager.policies.heterospec import HeteroSpec
from wager.policies.heuristic import Heuristic
from wager.policies.threshold import Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a policy is made for: its ``knob``, the tokens a path, the tree that was asked for, and the target's costs.

    ``min_rows``: the fewest rows a sequence feeds; ``forks``: branches of a tree are fed one by one.
    """

    knob: float
    n_tokens: int
    tree: Tree
    cost: StepCost
    min_rows: int
    forks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A policy's number: what it is, and the range it lies in."""

    what: str
    default: float
    low: float
    high: float
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """A policy and what holds of it; the sentences are its row of docs/policies.md.

    ``length``: tokens a path to start from where ``num_draft_tokens`` gives none, as ``least`` at least; None where the
    policy decides alone. Where there is no ``knob``, that is the VALUE of ``NAME:VALUE``. ``takes_tree``: drafts may
    branch as asked for; ``draws_tree``: it decides that itself, with at most ``knob`` branches. ``needs_model``: a
    drafter that draws from laws of its own. ``stops``: it ends paths by what was drawn before; ``cuts``: it drops
    tokens by what they are. ``value``: what a spec said.
    """

    name: str
    make: Callable[[Setting], Policy]
    decides: str
    use: str
    source: str
    knob: Knob | None = None
    length: int | None = None
    least: int = 0
    takes_tree: bool = True
    draws_tree: bool = False
    needs_model: bool = False
    stops: bool = False
    cuts: bool = False
    value: float | None = None

    @property
    def spelled(self) -> str:
        """The policy as a user would type it."""
        return self.name if self.value is None else f"{self.name}:{self.value:g}"

    @property
    def width(self) -> int:
        """The most branches that it decides to draft by itself."""
        return int(self._knob) if self.draws_tree else 1

    @property
    def _knob(self) -> float:
        if self.knob is None:
            return math.nan
        return self.knob.default if self.value is None else self.value

    def policy(
        self, *, n_tokens: int | None, tree: Tree, cost: StepCost, min_rows: int = 2, forks: bool = True
    ) -> Policy:
        """The policy itself; ``n_tokens`` is ``num_draft_tokens``, at least ``least``."""
        if n_tokens is None:
            n_tokens = int(self.value) if self.knob is None and self.value is not None else self.length or 0
        return self.make(
            Setting(knob=self._knob, n_tokens=n_tokens, tree=tree, cost=cost, min_rows=min_rows, forks=forks)
        )


def _heuristic(name: str, *, transient: bool, use: str) -> PolicyInfo:
    return PolicyInfo(
        name=name,
        make=lambda s: Heuristic(s.n_tokens, tree=s.tree, transient=transient),
        decides="2 tokens more after a draft that was accepted whole, else 1 fewer, at least 1",
        use=use,
        source="transformers 5, num_assistant_tokens_schedule (there from 20)",
        length=5,
        least=1,
    )


POLICIES: dict[str, PolicyInfo] = {
    info.name: info
    for info in (
        PolicyInfo(
            name="cost",
            make=lambda s: CostDriven(s.cost, min_rows=s.min_rows, forks=s.forks),
            decides="what gives most tokens a second, by measured times and running acceptance; nothing is possible",
            use="the default",
            source="Dinkelbach 1967; Borodin, Linial, Saks 1992; rows of a batch as in TETRIS, 2502.15197",
            takes_tree=False,
        ),
        PolicyInfo(
            name="fixed",
            make=lambda s: Fixed(s.tree.n_nodes(s.n_tokens), depth=s.n_tokens, width=s.tree.width),
            decides="always as many",
            use="comparisons, and trees of one form",
            source="Leviathan et al. 2211.17192",
            length=4,
        ),
        _heuristic(
            "heuristic", transient=False, use="comparison with transformers; a request goes on from the last one"
        ),
        _heuristic("heuristic_transient", transient=True, use="the same; every request starts anew"),
        PolicyInfo(
            name="threshold",
            make=lambda s: Threshold(s.knob, n_tokens=s.n_tokens, tree=s.tree),
            decides="ends a path after a token that the draft model gave less than VALUE, which follows acceptance",
            use="comparison with transformers",
            source="transformers 5, assistant_confidence_threshold",
            knob=Knob(what="the first threshold", default=0.4, low=0.0, high=1.0),
            length=20,
            needs_model=True,
            stops=True,
        ),
        PolicyInfo(
            name="adaedl",
            make=lambda s: AdaEdl(s.knob, n_tokens=s.n_tokens, tree=s.tree),
            decides="draws nothing more where 1 - sqrt(0.2 H) is below a bound that keeps acceptance at VALUE",
            use="draft models, without knowing times",
            source="AdaEDL, 2410.18351",
            knob=Knob(what="the share of drafted tokens to be accepted", default=0.9, low=0.0, high=1.0),
            length=20,
            needs_model=True,
            stops=True,
        ),
        PolicyInfo(
            name="heterospec",
            make=lambda s: HeteroSpec(s.n_tokens, tree=s.tree),
            decides="half as deep again where the best path is of low entropy, and fewer nodes beside it",
            use="trees of a draft model",
            source="HeteroSpec, 2505.13254",
            length=4,
            least=1,
            needs_model=True,
            stops=True,
            cuts=True,
        ),
        PolicyInfo(
            name="delayed",
            make=lambda s: Delayed(s.cost, width=int(s.knob), min_rows=s.min_rows, forks=s.forks),
            decides="a trunk of 0 to 8 tokens, then up to VALUE branches of 0 to 8: the most tokens a second",
            use="trees of a draft model, under rules that take them",
            source="delayed trees of 2602.16994, by running averages",
            knob=Knob(what="the most branches", default=4, low=1, high=8, whole=True),
            takes_tree=False,
            draws_tree=True,
            needs_model=True,
        ),
    )
}


def policy_named(spec: str) -> PolicyInfo:
    """The policy ``NAME`` or ``NAME:VALUE``. Raises ``OptionError`` for an unknown one, or a value it does not take."""
    name, colon, text = spec.partition(":") if isinstance(spec, str) else (spec, "", "")
    if name not in POLICIES:
        raise OptionError(f"`policy` is {spec!r}: give one of {', '.join(POLICIES)}")
    info = POLICIES[name]
    if not colon:
        return info
    knob = info.knob
    if knob is None:
        if info.length is None:
            raise OptionError(f"`policy` is {spec!r}: {name} takes no value, give {name!r}")
        knob = Knob(what="draft tokens", default=info.length, low=info.least, high=math.inf, whole=True)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not knob.low <= value <= knob.high or (knob.whole and value % 1) or math.isinf(value):
        number = "a whole number" if knob.whole else "a number"
        bounds = f"of at least {knob.low:g}" if math.isinf(knob.high) else f"in [{knob.low:g}, {knob.high:g}]"
        raise OptionError(f"`policy` is {spec!r}: give {knob.what}, {number} {bounds}")
    return replace(info, value=value)
