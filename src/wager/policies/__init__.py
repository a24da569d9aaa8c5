"""How much to draft each step. A new policy is one file here."""

from __future__ import annotations

from wager.policies.base import Policy
from wager.policies.cost_driven import CostDriven
from wager.policies.fixed import Fixed

__all__ = ["CostDriven", "Fixed", "Policy"]
