"""Logits to log-weights, the noise, and the choice of a token: the only place that does any of them.

A token is chosen by an exponential race: ``argmin_v E[v] / p[v]`` with ``E[v] ~ Exp(1)``, which is a sample of p
(Gumbel-max). In log space that is ``argmax_v scores[v] - log E[v]``; the scores need not be normalised. E is a hash of
(seed, sample, output position, token id), so the choice at a position does not depend on how it was reached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as ListLike
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from wager.constraint import Mask
from wager.errors import ConstraintError, OptionError
from wager.types import F32, F64, I64, Sampling, TokenLogprob
from wager.wide import LONG, SLACK, chunks, exponentials, shortlist, top_indices

U64 = npt.NDArray[np.uint64]
Scores = F64 | F32
Stream = Literal["token", "draft", "accept", "residual"]

_STREAMS: dict[Stream, int] = {"token": 0, "draft": 1, "accept": 2, "residual": 3}
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of splitmix64 (Steele, Lea, Flood 2014)
_MUL1 = 0xBF58476D1CE4E5B9  # Stafford's variant 13 of the 64-bit finaliser
_MUL2 = 0x94D049BB133111EB
_DEAD_END = "the constraint allows no token here that `logit_bias` does not ban: change one of them"


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * _MUL1) & _WORD
    word = ((word ^ (word >> 27)) * _MUL2) & _WORD
    return word ^ (word >> 31)


def _key(key: int, *words: int) -> int:
    for word in words:
        key = _mix(((key + _GOLDEN) & _WORD) ^ (word & _WORD))
    return key


@lru_cache(maxsize=8)
def _counters(n: int) -> U64:
    counters = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    counters.flags.writeable = False
    return counters


def _uniforms(key: int, counters: U64) -> F64:
    """Hash of each counter as a number in (0, 1): odd multiples of 2^-53, so neither end can occur."""
    u = np.empty(len(counters))
    for part in chunks(len(counters)):
        x = counters[part] + np.uint64(key)
        x ^= x >> np.uint64(30)
        x *= np.uint64(_MUL1)
        x ^= x >> np.uint64(27)
        x *= np.uint64(_MUL2)
        x ^= x >> np.uint64(31)
        x >>= np.uint64(12)
        u[part] = x.view(np.int64)
        u[part] += 0.5
        u[part] *= 2.0**-52
    return u


class Noise:
    """Random access to the noise of one sample: every value is a function of (seed, sample) and its own address.

    ``exponential`` is the stream "token", addressed by (output position, token id): it belongs to the walk and to
    drafters that share its noise. Every other rule draws from ``uniform`` and ``race`` on the streams "draft",
    "accept" and "residual", addressed by (n_tokens at the start of the round, branch, depth).
    """

    __slots__ = ("_streams", "sample", "seed")

    def __init__(self, seed: int, sample: int = 0) -> None:
        assert 0 <= seed <= _WORD, seed
        assert sample >= 0, sample
        self.seed = seed
        self.sample = sample
        self._streams = {name: _key(0, seed, sample, code) for name, code in _STREAMS.items()}

    def exponential(self, position: int, token_ids: npt.ArrayLike | None = None, *, vocab_size: int = 0) -> F64:
        """Exp(1) values of the token stream at an output position: of ``token_ids`` (k,), or of all ids (V,)."""
        return -np.log(_uniforms(self.token_key(position), _addresses(token_ids, vocab_size)))

    def few_exponentials(self, position: int, token_ids: ListLike[int]) -> list[float]:
        """What ``exponential`` gives, to the last digit but one, for so few ids that arrays would take longer."""
        key = self.token_key(position)
        bits = [_mix((key + (i + 1) * _GOLDEN) & _WORD) >> 12 for i in token_ids]
        return [-math.log((x + 0.5) * 2.0**-52) for x in bits]

    def token_key(self, position: int) -> int:
        """Key of the uniforms behind ``exponential``, E = -log u."""
        return _key(self._streams["token"], position)

    def uniform(self, stream: Stream, start: int, *, branch: int = 0, depth: int = 0, n: int = 1) -> F64:
        """(n,) uniforms in (0, 1) for the round that starts at ``start`` tokens."""
        return _uniforms(self._address(stream, start, branch, depth), _counters(n))

    def uniform_at(self, stream: Stream, start: int, *, branch: int = 0, depth: int = 0) -> float:
        """The first number of ``uniform``, without an array around it."""
        word = _mix((self._address(stream, start, branch, depth) + _GOLDEN) & _WORD)
        return ((word >> 12) + 0.5) * 2.0**-52

    def race(
        self,
        stream: Stream,
        start: int,
        *,
        branch: int = 0,
        depth: int = 0,
        token_ids: npt.ArrayLike | None = None,
        vocab_size: int = 0,
    ) -> F64:
        """Exp(1) values per token id, like ``exponential``, from another stream."""
        return -np.log(_uniforms(self._address(stream, start, branch, depth), _addresses(token_ids, vocab_size)))

    def races(
        self, stream: Stream, start: int, branches: ListLike[int], *, depth: int = 0, token_ids: npt.ArrayLike
    ) -> F64:
        """``race`` of several branches (b,) over the same ids (k,), at once: (b, k)."""
        keys = np.array([self._address(stream, start, branch, depth) for branch in branches], np.uint64)
        addresses = _addresses(token_ids, 0) + keys[:, None]
        return -np.log(_uniforms(0, addresses.reshape(-1))).reshape(addresses.shape)

    def _address(self, stream: Stream, start: int, branch: int, depth: int) -> int:
        assert stream != "token", "the token stream belongs to the walk: use exponential"
        return _key(self._streams[stream], start, branch, depth)


def _addresses(token_ids: npt.ArrayLike | None, vocab_size: int) -> U64:
    if token_ids is None:
        assert vocab_size > 0, "give token_ids or vocab_size"
        return _counters(vocab_size)
    ids = np.asarray(token_ids, np.uint64)
    return (ids + np.uint64(1)) * np.uint64(_GOLDEN)


def check_ids(sampling: Sampling, vocab_size: int) -> None:
    """Raises ``OptionError`` when an option names a token that the vocabulary does not have."""
    for name, ids in (("logit_bias", sampling.logit_bias), ("stop_token_ids", sampling.stop_token_ids)):
        for token in ids:
            if not 0 <= token < vocab_size:
                raise OptionError(f"`{name}` names token {token!r}: the vocabulary ends at {vocab_size - 1}")


def check_allowed(sampling: Sampling, ends: frozenset[int], vocab_size: int) -> None:
    """Raises ``OptionError`` when bias and ``min_tokens`` together leave no token to choose from.

    ``ends`` are the ids that ``min_tokens`` holds off. Known before anything runs, so that one request cannot stop
    others in the middle of a step.
    """
    held_off = ends if sampling.min_tokens else frozenset[int]()
    forced = {token for token, bias in sampling.logit_bias.items() if bias == np.inf}
    banned = held_off | {token for token, bias in sampling.logit_bias.items() if bias == -np.inf}
    if (forced and forced <= held_off) or sum(0 <= token < vocab_size for token in banned) >= vocab_size:
        raise _nothing_left()


def is_plain(sampling: Sampling) -> bool:
    """Whether the scores depend on nothing but logits and temperature, top_k, top_p, min_p."""
    return (
        sampling.repetition_penalty == 1
        and sampling.presence_penalty == 0
        and sampling.frequency_penalty == 0
        and not sampling.logit_bias
        and sampling.min_tokens == 0
        and sampling.constraint is None
    )


def is_softmax(sampling: Sampling) -> bool:
    """Whether the law is softmax(logits / temperature), temperature > 0, and nothing else."""
    dropped = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
    return is_plain(sampling) and sampling.temperature > 0 and not dropped


def scores(
    logits: F32,
    sampling: Sampling,
    *,
    tokens: ListLike[int] | I64,
    n_prompt: int,
    banned: Iterable[int] = (),
    allowed: Mask | None = None,
) -> Scores:
    """Unnormalised log-weights (V,) of the next token; -inf where an option drops it.

    ``tokens`` is everything before it: prompt, output and the speculative prefix of the walked path. ``banned`` ids
    (end of text, stop ids) are impossible while fewer than ``min_tokens`` output tokens exist, and what is not
    ``allowed`` (V,) always. Order: penalties, bias, allowed, min_tokens, temperature, top_k, top_p, min_p. At
    temperature 0 the last three change nothing and are not applied, and logits that no option touches come back as they
    are (float32, shared memory): read them, do not write.

    Raises ``OptionError`` when nothing is left to choose from, ``ConstraintError`` where ``allowed`` is why.
    """
    if is_plain(sampling):
        x: Scores = logits
    else:
        wide = logits.astype(np.float64)
        _penalise(wide, sampling, tokens, n_prompt)
        _bias(wide, sampling)
        if allowed is not None:
            wide[~allowed] = -np.inf
            if wide.max() == -np.inf:
                raise ConstraintError(_DEAD_END)
        if len(tokens) - n_prompt < sampling.min_tokens:
            wide[list(banned)] = -np.inf
        x = wide
    return x if sampling.temperature == 0 else _warp(x, sampling)


def _warp(logits: Scores, sampling: Sampling) -> F64:
    if float(logits.max()) == -np.inf:
        raise _nothing_left()
    x = tempered(logits, sampling.temperature)
    if 0 < sampling.top_k < len(x):
        x = _keep(x, top_indices(x, sampling.top_k))
    if sampling.top_p < 1:
        x = _keep(x, _nucleus(x, sampling.top_p))
    if sampling.min_p > 0:
        x[x < np.log(sampling.min_p)] = -np.inf
    return x


def tempered(x: Scores, temperature: float, *, top: float | None = None) -> F64:
    """(x - top) / temperature, > 0; ``top`` is the largest x if not given."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf, as it should
        return np.subtract(x, float(x.max()) if top is None else top, dtype=np.float64) / temperature


def _nothing_left() -> OptionError:
    return OptionError("no token is left to choose from: `logit_bias` and `min_tokens` ban all; allow at least one")


def _penalise(x: F64, sampling: Sampling, tokens: ListLike[int] | I64, n_prompt: int) -> None:
    if sampling.repetition_penalty != 1 and len(tokens):
        mask = np.zeros(len(x), np.bool_)
        mask[np.asarray(tokens, np.int64)] = True
        seen = np.flatnonzero(mask)
        old = x[seen]
        r = sampling.repetition_penalty  # Keskar et al. 2019, in the form Hugging Face made standard
        x[seen] = np.where(old > 0, old / r, old * r)
    if (sampling.presence_penalty or sampling.frequency_penalty) and len(tokens) > n_prompt:
        output, counts = np.unique(np.asarray(tokens[n_prompt:], np.int64), return_counts=True)
        x[output] -= sampling.presence_penalty + sampling.frequency_penalty * counts


def _bias(x: F64, sampling: Sampling) -> None:
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < len(x):
            raise OptionError(f"`logit_bias` names token {token!r}: the vocabulary ends at {len(x) - 1}")
        x[token] += bias
    if np.inf in sampling.logit_bias.values():  # forced tokens: nothing else can win, and inf - inf must not arise
        forced = x == np.inf
        x[forced] = 0
        x[~forced] = -np.inf


def _keep(x: F64, kept: I64) -> F64:
    out = np.full(len(x), -np.inf)
    out[kept] = x[kept]
    return out


def _nucleus(x: F64, top_p: float) -> I64:
    """Ids of the smallest set of most likely tokens with mass >= top_p; at least one. The largest of x is 0."""
    weights, total = exponentials(x)
    # Tokens below this share weigh less than 1 - top_p together, so the nucleus is among the others.
    large = np.flatnonzero(weights >= (1 - top_p) * total / len(x) * (1 - 1e-9))
    order = large[np.argsort(-weights[large], kind="stable")]
    n = int(np.searchsorted(np.cumsum(weights[order]), top_p * total)) + 1
    return order[:n]


def probabilities(x: Scores) -> F64:
    """Normalised probabilities (V,) of log-weights; -inf gives exactly 0."""
    weights: F64 = np.exp(np.subtract(x, x.max(), dtype=np.float64))
    weights /= weights.sum()
    return weights


def choose(x: Scores, noise: Noise, position: int, temperature: float) -> int:
    """The token of an output position by its ``scores`` x (V,), which know the temperature already: whether it is 0 is
    all that is asked here. The largest ``x - log E``, or at temperature 0 the largest x (of equal ones the lowest id).
    """
    return choose_softmax(x, noise, position, float(temperature > 0))


def choose_softmax(x: Scores, noise: Noise, position: int, temperature: float) -> int:
    """``choose`` for the law softmax(x / temperature) of logits that nothing has been done to, at 0 their largest."""
    token = int(np.argmax(x)) if temperature == 0 else _race(x, noise, position, temperature)
    best = float(x[token])
    assert best == best, "the logits hold NaN"
    if best == -np.inf:
        raise _nothing_left()
    return token


def arrivals(x: Scores, noise: Noise, position: int, temperature: float, k: int) -> I64:
    """The (at most k) tokens that come first in the race of ``choose``, its winner first.

    Shared with the target's noise they are a draft without replacement: the best k guesses of what it will choose.
    """
    if k == 1:
        return np.array([choose(x, noise, position, temperature)], np.int64)
    alive = np.flatnonzero(x > -np.inf)
    if len(alive) == 0:
        raise _nothing_left()
    values = x[alive]
    if temperature > 0:
        values = values - np.log(noise.exponential(position, alive))
    return alive[top_indices(values, k)]


def _race(x: Scores, noise: Noise, position: int, temperature: float) -> int:
    """``race_plainly`` at a fraction of its cost: E = -log u >= 1 - u bounds every entry from above with one float32
    logarithm, and the few entries that the bound cannot rule out are computed exactly.
    """
    if len(x) < LONG:
        return race_plainly(x, noise, position, temperature)
    open_ = shortlist(x, temperature, noise.token_key(position))
    if open_ is None:
        if np.count_nonzero(x > -np.inf) < LONG:
            return race_plainly(x, noise, position, temperature)
        open_ = _shortlist(tempered(x, temperature), noise, position)
    if len(open_) == 0:  # something is no number
        return int(np.argmax(x))
    values = tempered(x[open_], temperature, top=float(x.max())) - np.log(noise.exponential(position, open_))
    return int(open_[np.argmax(values)])


def _shortlist(x: F64, noise: Noise, position: int) -> I64:
    """``wide.shortlist`` in numpy."""
    key, counters = noise.token_key(position), _counters(len(x))
    bounds, goal = np.empty(len(x), np.float32), -np.inf
    for part in chunks(len(x)):
        u, some, bound = _uniforms(key, counters[part]), x[part], bounds[part]
        with np.errstate(over="ignore"):
            bound[:] = some
        bound -= np.log((1 - u).astype(np.float32))
        leader = int(np.argmax(bound))
        goal = max(goal, float(some[leader] - np.log(-np.log(u[leader]))))
    return np.flatnonzero(bounds >= goal - SLACK)


def race_plainly(x: Scores, noise: Noise, position: int, temperature: float = 1.0) -> int:
    """The race as it is defined, over the tokens that options left alive; the oracle of ``choose``."""
    alive = np.flatnonzero(x > -np.inf)
    if len(alive) == 0:
        return int(np.argmax(x))
    values = tempered(x[alive], temperature) - np.log(noise.exponential(position, alive))
    return int(alive[np.argmax(values)])


def logprobs(logits: F32, token: int, k: int) -> TokenLogprob:
    """Log-softmax of the raw ``logits`` (V,) at ``token`` and at the k most likely ids, best first."""
    x = logits.astype(np.float64)
    x -= x.max()
    x -= np.log(np.exp(x).sum())
    return TokenLogprob(token, float(x[token]), tuple((int(i), float(x[i])) for i in top_indices(x, k)))
