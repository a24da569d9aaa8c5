"""Fast, exact LLM inference on CPUs: a drafter wagers tokens, the target settles them in one forward."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wager.errors import WagerError as WagerError
    from wager.llm import LLM as LLM
    from wager.llm import Completion as Completion
    from wager.record import RunStats as RunStats
    from wager.text import Text as Text
    from wager.types import Event as Event
    from wager.types import Sampling as Sampling

__version__ = "0.1.0"

_HOME = {
    "LLM": "wager.llm",
    "Completion": "wager.llm",
    "Sampling": "wager.types",
    "Event": "wager.types",
    "RunStats": "wager.record",
    "Text": "wager.text",
    "WagerError": "wager.errors",
}
__all__ = ["LLM", "Completion", "Event", "RunStats", "Sampling", "Text", "WagerError", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module `wager` has no `{name}`")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
