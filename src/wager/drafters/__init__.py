"""Drafters by name. A new drafter is one file and one line here."""

from __future__ import annotations

from wager.drafters.base import DRAFTERS, make_drafter

__all__ = ["DRAFTERS", "make_drafter"]
