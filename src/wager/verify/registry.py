"""Acceptance rules by name. A new rule is one function and one entry here; docs/rules.md is made from this table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from wager.errors import OptionError
from wager.sampling import Noise
from wager.types import F64, SAMPLED, Draft, Drafter, DraftKind, Verdict
from wager.verify import chain, lists, lossy, shared_noise, transport
from wager.verify.base import ANY_KIND, Decide, Rows, Rule, RuleInfo
from wager.verify.dice import NoiseDice
from wager.verify.khisti import khisti
from wager.verify.traversal import traversal
from wager.verify.walk import walk


def by_dice(decide: Decide) -> Rule:
    """The rule that asks a request's noise what ``decide`` asks the dice."""

    def rule(rows: Rows, draft: Draft, noise: Noise) -> Verdict:
        return decide(rows, draft, NoiseDice(noise, rows.start))

    return rule


ONE_PATH: frozenset[DraftKind] = SAMPLED | {"deterministic"}
IID: frozenset[DraftKind] = frozenset(("iid",))
UNDRAWN: frozenset[DraftKind] = frozenset(("deterministic",))


def _dice(name: str, decide: Decide, **facts: Any) -> RuleInfo:
    return RuleInfo(name=name, rule=by_dice(decide), decide=decide, **facts)


def _list(name: str, solver: lists.Solver, **facts: Any) -> RuleInfo:
    return _dice(name, lists.top_down(solver), **facts)


_WALK = "sum_j 1 / sum_i max(p_i/p_j, q_i/q_j) with one child"

RULES: dict[str, RuleInfo] = {
    info.name: info
    for info in (
        RuleInfo(
            name="walk",
            rule=walk,
            draws="coupled",
            needs_laws=False,
            coupled=True,
            acceptance=_WALK,
            use="the default: the text is that of plain decoding, whatever the draft",
            source="Daliri et al. 2408.07978; for lists the exponential race of 2504.15475",
        ),
        _list(
            "nss",
            lists.nss,
            draws="without_replacement",
            needs_laws=False,
            acceptance="sum p (1 - (1 - q)^k)",
            use="drafts of any origin whose law is unknown",
            source="SpecInfer, 2305.09781",
        ),
        _dice(
            "standard",
            chain.standard,
            kinds=ONE_PATH,
            trees=False,
            acceptance="sum min(p, q)",
            use="the baseline of the literature",
            source="Leviathan et al. 2211.17192; Chen et al. 2302.01318",
        ),
        _dice(
            "block",
            chain.block,
            kinds=ONE_PATH,
            trees=False,
            acceptance="P(at least i accepted) = E pi_i, pi_i = min(1, pi_(i-1) p/q)",
            use="one path: never worse than standard, nothing that sees one path is better",
            source="Sun et al. 2403.10444",
        ),
        _list(
            "naive-tree",
            lists.naive,
            kinds=IID,
            acceptance="sum min(p, q) + sum (p - q)+ (1 - (1 - q)^(k-1))",
            use="a baseline for lists",
            source="as compared in 2602.16994",
        ),
        _list(
            "specinfer",
            lists.spec_infer,
            kinds=IID,
            acceptance="recursive, transport.spec_infer_acceptance",
            use="i.i.d. children without a linear program or a root to find",
            source="Miao et al. 2305.09781",
        ),
        _list(
            "spectr",
            lists.k_seq,
            kinds=IID,
            acceptance="1 - (1 - beta)^k at rho*, and what the residual hits",
            use="K i.i.d. sequences: at least 1 - 1/e of the optimum",
            source="Sun et al. 2310.15141",
        ),
        _list(
            "khisti",
            khisti,
            kinds=IID,
            max_children=8,
            acceptance="sum min(p, r), r the law of the tournament's winner",
            use="few i.i.d. children, in meetings of two",
            source="Khisti et al. 2410.18234",
        ),
        _list(
            "transport",
            transport.transport,
            kinds=IID,
            acceptance="alpha*_k = min_H p(H) + 1 - q(H)^k",
            use="i.i.d. children: accepts as often as any rule can",
            source="Sun et al. 2310.15141; split as in 2410.18234",
        ),
        _list(
            "rrsw",
            lists.without_replacement,
            kinds=frozenset(("without_replacement",)),
            draws="without_replacement",
            acceptance="no closed form",
            use="children drawn without replacement",
            source="recursive rejection, as in 2402.13720 and 2402.12374",
        ),
        _list(
            "top-k",
            lists.top_k,
            kinds=UNDRAWN,
            draws="deterministic",
            needs_laws=False,
            acceptance="sum of p over the children",
            use="the draft's k likeliest tokens, or look-ups",
            source="EAGLE-2, 2406.16858",
        ),
        _dice(
            "traversal",
            traversal,
            kinds=SAMPLED,
            acceptance="P(some node below v | v drafted) = its weight; no closed form",
            use="trees: accepts most of the rules compared in 2602.16994",
            source="Weng et al. 2505.12398",
        ),
        _dice(
            "greedy-paths",
            chain.greedy_paths,
            kinds=IID,
            acceptance="that of block with the law of the picked path",
            use="experimental",
            source="after Thomas, Pal 2602.16961",
        ),
        RuleInfo(
            name="gls",
            rule=shared_noise.gls,
            kinds=IID,
            acceptance=">= sum_j k / (sum_i max(p_i/p_j, q_i/q_j) + (k - 1) / p_j)",
            use="K sequences and no law sent to the verifier's arithmetic",
            source="Rowan et al. 2506.05632",
        ),
    )
}
ALIASES = {"race": "walk", "exponential-race": "walk", "k-seq": "spectr", "leviathan": "standard", "gumbel": "walk"}


@dataclass(frozen=True, slots=True)
class Lossy:
    """A family of lossy rules: ``decide`` and ``law`` (what comes out at one position) by the value of its knob.

    ``whole``: the law follows from all of p, not from the draft law's ids and a rest.
    """

    knob: str
    default: float
    neutral: float  # the value at which the rule is exact
    bounds: tuple[float, float]
    decide: Callable[[float], Decide]
    law: Callable[[F64, F64, float], F64]
    use: str
    source: str
    kinds: frozenset[DraftKind] = ONE_PATH
    trees: bool = False
    whole: bool = False


def _cactus(gamma: lossy.Gamma, use: str) -> Lossy:
    return Lossy(
        knob="delta, nats a drafted token",
        default=0.2,
        neutral=0.0,
        bounds=(0.0, math.inf),
        decide=lambda delta: lossy.cactus(delta, gamma),
        law=lambda p, q, delta: lossy.cactus_law(p, q, delta, gamma),
        use=use,
        source="Hao, Mou 2604.04987",
    )


LOSSY: dict[str, Lossy] = {
    "lossy-cactus": _cactus(lossy.gamma_exact, "longer drafts within a budget that each drafted token keeps"),
    "lossy-cactus-taylor": _cactus(lossy.gamma_taylor, "the paper's own root; may exceed the budget above one half"),
    "lossy-typical": Lossy(
        knob="epsilon",
        default=0.09,
        neutral=math.inf,
        bounds=(0.0, math.inf),
        decide=lossy.typical,
        law=lossy.typical_law,
        use="comparison with Medusa",
        source="Cai et al. 2401.10774",
        kinds=ANY_KIND,
        trees=True,
        whole=True,
    ),
    "lossy-mentored": Lossy(
        knob="budget, nats of KL(p || w)",
        default=0.1,
        neutral=0.0,
        bounds=(0.0, math.inf),
        decide=lossy.mentored,
        law=lossy.mentored_law,
        use="one law for the position, fixed before the draft is seen",
        source="Tran-Thien 2024",
    ),
    "lossy-ensemble": Lossy(
        knob="weight of the target",
        default=0.5,
        neutral=1.0,
        bounds=(0.0, 1.0),
        decide=lossy.ensemble,
        law=lossy.ensemble_law,
        use="comparison with transformers' assistant_ensemble_weight",
        source="Hugging Face transformers",
    ),
}


def rule_named(spec: str) -> RuleInfo:
    """The rule ``NAME``, or a lossy one ``NAME:VALUE``. Raises ``OptionError`` for an unknown one or a bad value."""
    name, colon, value = spec.partition(":")
    name = ALIASES.get(name, name)
    if name in LOSSY:
        return _lossy(name, LOSSY[name], value if colon else None)
    if name not in RULES:
        raise OptionError(f"`rule` is {spec!r}: give one of {', '.join((*RULES, *LOSSY))}")
    if colon:
        raise OptionError(f"`rule` is {spec!r}: {name} takes no value, give {name!r}")
    return RULES[name]


def _lossy(name: str, family: Lossy, value: str | None) -> RuleInfo:
    try:
        knob = family.default if value is None else float(value)
    except ValueError:
        knob = math.nan
    low, high = family.bounds
    if not low <= knob <= high:
        raise OptionError(f"`rule` is '{name}:{value}': give {family.knob}, a number in [{low:g}, {high:g}]")
    facts = {"kinds": family.kinds, "trees": family.trees, "use": family.use, "source": family.source}
    info = _dice(name, family.decide(knob), lossless=False, knob=knob, **facts)
    return info if family.trees is False else replace(info, needs_laws=False)


def check_rule_takes(rule: RuleInfo, drafter: Drafter, *, width: int = 1) -> None:
    """Raises ``OptionError``, with the reason, where a rule is not right for what a drafter drafts."""
    if drafter.kind not in rule.kinds:
        wanted = " or ".join(sorted(rule.kinds))
        raise OptionError(
            f"`rule` is {rule.name!r}, which needs {wanted} drafts: drafter {drafter.name!r} drafts {drafter.kind} "
            "ones; choose another rule (walk and nss take any) or a model as the drafter"
        )
    if rule.needs_laws and drafter.kind != "deterministic" and not drafter.has_laws:
        raise OptionError(
            f"`rule` is {rule.name!r}, which needs the law that drafts were drawn from: drafter {drafter.name!r} does "
            "not tell it; choose walk or nss"
        )
    check_width(rule, width)


def check_width(rule: RuleInfo, width: int) -> None:
    """Raises ``OptionError`` where a context may not have that many children."""
    if width > 1 and not rule.trees:
        raise OptionError(f"`rule` is {rule.name!r}, which verifies a single path: give a tree width of 1, not {width}")
    if rule.max_children and width > rule.max_children:
        raise OptionError(f"`rule` is {rule.name!r}, for at most {rule.max_children} children: tree width is {width}")
