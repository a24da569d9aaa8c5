"""The target drafts for itself, looking at the beginning and the end of a long text only.

Attention then reads a few hundred rows however long the text is (MagicDec 2408.11049; the idea behind SPIRe
2504.06419): the same graph, fed with a shorter block table. Keys hold their rotation, so positions stay true.
"""

from __future__ import annotations

from typing import Any

from wager.drafters.base import DrafterInfo
from wager.drafters.scratch import ScratchDrafter, Unseen
from wager.errors import OptionError

SINK, WINDOW = 32, 256
_BLOCK = 32  # of the CPU plugin's K/V


def unseen_between(sink: int, window: int, block_size: int) -> Unseen:
    """Blocks unseen after n tokens: those after the first ``sink`` tokens, save the last ``window`` or a block more."""

    def unseen(n_tokens: int) -> tuple[int, int]:
        first = sink // block_size
        return first, max(first, (n_tokens - window) // block_size)

    return unseen


def parse(argument: str) -> tuple[int, int]:
    """Tokens of sink and window. Raises OptionError unless they are multiples of a block, the window at least one."""
    if not argument:
        return SINK, WINDOW
    try:
        sink, window = (int(part) for part in argument.split("+"))
    except ValueError:
        sink, window = -1, -1
    if sink < 0 or window < 1 or sink % _BLOCK or window % _BLOCK:
        raise OptionError(
            f"`drafter` is {'window:' + argument!r}: give the tokens of sink and window as multiples of {_BLOCK}, as "
            f"in window:{SINK}+{WINDOW}"
        )
    return sink, window


def make(argument: str, target: Any) -> ScratchDrafter:
    """For the registry: the target's own model, and no memory."""
    sink, window = parse(argument)
    return ScratchDrafter(
        target.model,
        n_valid_ids=target.n_valid_ids,
        eos_ids=target.text.eos_ids,
        drawing=target.drawing,
        name=f"window:{sink}+{window}",
        unseen=unseen_between(sink, window, target.model.block_size),
    )


DRAFTER = DrafterInfo(
    make=make,
    family="target",
    drafts=f"with the target itself, which sees the first {SINK} and the last {WINDOW} tokens; `window:64+512` sets "
    "both",
    costs="a forward at short context per token",
    source="MagicDec, Chen et al. 2408.11049; SPIRe 2504.06419",
    trees=False,
    check=parse,
)
