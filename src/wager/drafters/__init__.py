"""Drafters by name. A new drafter is one file and one line in base.py."""

from __future__ import annotations

from wager.drafters.base import DRAFTERS, DrafterInfo, check_spec, drafter_named, is_drafter, make_drafter

__all__ = ["DRAFTERS", "DrafterInfo", "check_spec", "drafter_named", "is_drafter", "make_drafter"]
