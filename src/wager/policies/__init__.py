"""How much to draft, by name. A new policy is one file and one line here."""

from __future__ import annotations

from wager.policies.base import Policy
from wager.policies.fixed import Fixed

__all__ = ["Fixed", "Policy"]
