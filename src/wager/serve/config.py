"""What the server allows: limits against what strangers send, keys, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass, field

from wager.errors import OptionError
from wager.serve.choosing import check_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one request, and on all of them together. Counts are sequences where ``n`` samples are asked for.

    ``max_queue``: sequences that may wait beyond the ``max_seqs`` that run; more are answered 429. ``deadline_s``: how
    long a request may take in all. ``max_per_key``: requests in flight for one API key (or for all, without keys).
    """

    max_seqs: int = 16
    max_queue: int = 64
    max_body_bytes: int = 1 << 20
    max_prompt_tokens: int | None = None
    max_n: int = 16
    max_stops: int = 16
    max_stop_chars: int = 256
    max_bias: int = 1024
    max_candidates: int = 1024
    max_candidate_chars: int = 1024
    max_per_key: int | None = None
    deadline_s: float = 600.0

    def __post_init__(self) -> None:
        for name in (
            "max_seqs",
            "max_body_bytes",
            "max_n",
            "max_stops",
            "max_stop_chars",
            "max_bias",
            "max_candidates",
            "deadline_s",
        ):
            if not getattr(self, name) > 0:
                raise OptionError(f"`{name}` is {getattr(self, name)!r}: give a positive number")
        if self.max_queue < 0:
            raise OptionError(f"`max_queue` is {self.max_queue!r}: give 0 or a positive number")
        for name in ("max_prompt_tokens", "max_per_key"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"`{name}` is {value!r}: give a positive number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``keys``: API keys, none for an open server. ``hosts``: names a request's Host may have ("*": any).

    ``names``: what the model also goes by. ``drafters``: what requests may name beside the served one and "none"; None
    for the usual ones. ``cors_origins``: pages of other hosts that may ask. ``log_prompts``:
    whether the log holds prompts.
    """

    limits: Limits = field(default_factory=Limits)
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    names: tuple[str, ...] = ()
    drafters: tuple[str, ...] | None = ()
    cors_origins: tuple[str, ...] = ()
    log_prompts: bool = False

    def __post_init__(self) -> None:
        check_names(self.drafters or ())
