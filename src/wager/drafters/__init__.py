"""Drafters by name. A new drafter is one file and one line here."""

from __future__ import annotations

from wager.drafters.base import DRAFTERS, check_spec, make_drafter

__all__ = ["DRAFTERS", "check_spec", "make_drafter"]
