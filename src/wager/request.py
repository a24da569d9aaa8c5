"""What a request asks for: how tokens are chosen, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wager.constraint import Constraint
from wager.errors import OptionError


def _require(ok: bool, name: str, value: object, want: str) -> None:
    if not ok:
        raise OptionError(f"`{name}` is {value!r}: {want}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen from the target's logits, and when to stop.

    Order of application: penalties, bias, constraint, min_tokens, temperature, top_k, top_p, min_p.
    ``repetition_penalty`` sees prompt and output, ``presence_penalty`` and ``frequency_penalty`` the output only.
    ``temperature`` 0 is greedy (ties to the lowest id). ``seed`` None draws one and reports it. ``logprobs`` k reports
    the log-softmax of the raw logits for the chosen token and the k most likely ones. ``constraint``: what the output
    has to be (grammar.py); where it is complete the answer ends.

    Raises ``OptionError`` for a value outside its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(isinstance(value, int | float) and math.isfinite(value), name, value, "give a finite number")
        for name in ("top_k", "max_tokens", "min_tokens", "logprobs", "seed"):
            value = getattr(self, name)
            optional = value is None and name in ("logprobs", "seed")
            _require(optional or isinstance(value, int), name, value, "give an integer")
        _require(self.temperature >= 0, "temperature", self.temperature, "give 0 (greedy) or a positive number")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "give a number in (0, 1]")
        _require(self.top_k >= 0, "top_k", self.top_k, "give 0 (off) or a positive integer")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "give a number in [0, 1]")
        _require(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "give a positive number")
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "give at least 1")
        _require(0 <= self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, "give 0 … max_tokens")
        _require(self.logprobs is None or 0 <= self.logprobs <= 20, "logprobs", self.logprobs, "give 0 … 20 or None")
        _require(self.seed is None or 0 <= self.seed < 2**64, "seed", self.seed, "give an integer in [0, 2^64)")
        _require(not isinstance(self.stop, str), "stop", self.stop, "give a sequence of strings")
        _require(all(s and isinstance(s, str) for s in self.stop), "stop", self.stop, "give non-empty strings")
        ids = (*self.stop_token_ids, *self.logit_bias)
        _require(all(isinstance(i, int) for i in ids), "stop_token_ids or logit_bias", ids, "give integer token ids")
        for name in ("stop", "stop_token_ids"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        finite = all(not math.isnan(b) for b in self.logit_bias.values())
        _require(finite, "logit_bias", self.logit_bias, "give numbers (-inf bans a token)")
        self._check_constraint()

    def _check_constraint(self) -> None:
        if self.constraint is None:
            return
        whole = hasattr(self.constraint, "guide") and not isinstance(self.constraint, type)
        _require(whole, "constraint", self.constraint, "give one of wager.grammar, such as JsonSchema(...)")
        for name in ("ignore_eos", "min_tokens"):
            value = getattr(self, name)
            _require(not value, name, value, "a constraint decides where the output ends, leave one of them out")
