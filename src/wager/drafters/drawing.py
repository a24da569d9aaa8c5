"""How a model drafter draws the tokens it drafts."""

from __future__ import annotations

from dataclasses import dataclass

from wager.types import DraftKind


@dataclass(frozen=True, slots=True)
class Drawing:
    """``kind`` of the drafts, and whether they carry ``laws``.

    A tree is ``trunk`` tokens in one path, then ``levels`` levels at which every node has several children, then paths.
    ``max_law``: ids that a draft law keeps at most.
    """

    kind: DraftKind = "coupled"
    laws: bool = False
    trunk: int = 0
    levels: int = 1
    max_law: int = 512
