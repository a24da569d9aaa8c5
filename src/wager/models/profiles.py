"""Execution profiles: which numerics the target runs with, and what that promises (design facts 3, 5, 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wager.errors import OptionError
from wager.types import RowsRule

HELD_WIDTHS = (1, 2, 4, 8, 16)
OWN_WIDTHS = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)  # with our kernels every row costs something


@dataclass(frozen=True, slots=True)
class Profile:
    """``properties`` go to the CPU plugin.

    ``rules``: layouts under which logits should not depend on how tokens are grouped, best first; the self-check takes
    the first that holds. None: nothing is promised. ``masks``: draft trees go under a tree mask instead of as forks.
    ``merge_products``: products of the same input become one (fact 4). ``widths``: rows of a decoding step are padded
    to one of these, wider ones to a multiple of 8 (fact 11). ``kernels``: products and attention are our own where
    they can be compiled (models/kernels).
    """

    name: str
    properties: dict[str, str]
    rules: tuple[RowsRule, ...] = ()
    masks: bool = False
    merge_products: bool = True
    widths: tuple[int, ...] = HELD_WIDTHS
    kernels: bool = False

    def with_kernels(self) -> Profile:
        """What it is where there are kernels: they compute in f32 on f16 K/V, and a row of theirs is like any other."""
        properties = {**self.properties, "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"}
        rules: tuple[RowsRule, ...] = ("any", *self.rules) if self.rules else ()
        widths = OWN_WIDTHS if self.widths == HELD_WIDTHS else self.widths
        return replace(self, properties=properties, rules=rules, widths=widths)


_LATENCY = {"PERFORMANCE_HINT": "LATENCY"}

PROFILES = {
    "fast": Profile(
        "fast",
        {**_LATENCY, "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"},
        ("split", "pair"),
        kernels=True,
    ),
    "reference": Profile(
        "reference",
        {
            **_LATENCY,
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        },
        ("split", "pair"),
    ),
    "u8": Profile("u8", {**_LATENCY, "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "u8"}),
    "max": Profile("max", dict(_LATENCY), masks=True, kernels=True),
}


def profile_named(name: str, *, threads: int | None = None, weights_group: int = 0) -> Profile:
    """The profile for a model whose weights are quantised in groups of ``weights_group`` (0: per channel or plain).

    Dynamic quantisation of activations works in groups of the same size (fact 3: another size loses the speed).
    Raises OptionError for an unknown name.
    """
    if name not in PROFILES:
        raise OptionError(f"`profile` is {name!r}: give one of {', '.join(PROFILES)}")
    if threads is not None and threads < 1:
        raise OptionError(f"`threads` is {threads}: give at least 1")
    profile = PROFILES[name]
    properties = dict(profile.properties)
    if name in ("fast", "u8"):
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(weights_group or 32)
    if threads is not None:
        properties["INFERENCE_NUM_THREADS"] = str(threads)
    return replace(profile, properties=properties)
