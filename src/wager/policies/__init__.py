"""How much to draft each step. A new policy is one file, and one entry in registry.py."""

from __future__ import annotations

from wager.policies.base import Policy, Tree
from wager.policies.cost_driven import CostDriven
from wager.policies.fixed import Fixed
from wager.policies.registry import POLICIES, PolicyInfo, policy_named

__all__ = ["POLICIES", "CostDriven", "Fixed", "Policy", "PolicyInfo", "Tree", "policy_named"]
