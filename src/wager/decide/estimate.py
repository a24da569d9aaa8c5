"""From prompts to laws of their answers: three estimators behind one interface, and chains of reasoning before any.

``Sampled`` draws and parses; ``Scored`` weighs distinct draws by the model's own probability; ``Enumerated`` scores a
set of candidates exactly. ``Reasoned`` draws chains of thought, asks any of them after each, and averages the laws.
Source: papers/core.md section 3 (Lukasik et al. 2024, arXiv 2403.04182).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from wager.asks import Asks, Prompt
from wager.completion import Completion
from wager.decide.law import Law, average, importance
from wager.errors import OptionError
from wager.sampling import is_softmax
from wager.score import Terminator
from wager.types import F64, Sampling

Parse = Callable[[str], Any]  # text of an answer -> its value, None where it has none
Enough = Callable[[Law, int, int], bool]  # (law so far, draws so far, draws of another batch) -> stop here


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """The ``law`` of an answer and what it rests on: ``texts`` (n,) drawn or scored, their ``values`` (None: did not
    parse), ``logprobs`` (n,) under the model, end of the answer included.
    """

    law: Law
    texts: tuple[str, ...]
    values: tuple[Any, ...]
    logprobs: F64

    @property
    def n_tokens(self) -> int:
        """Tokens drawn or fed beyond the prompt."""
        return self.law.n_tokens


class Estimator(Protocol):
    """One estimate per prompt; prompts run together. ``seeds``: one per prompt, so that each is reproducible alone."""

    def estimate(self, llm: Asks, prompts: ListLike[Prompt], seeds: ListLike[int]) -> list[Estimate]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How prompts become tokens: ``chat`` puts text prompts into the chat template, after ``system``."""

    chat: bool = True
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """What ``Sampled`` and ``Scored`` share: draws, in batches until ``enough`` says so.

    ``n``: most draws a prompt. ``batch``: draws between two questions to ``enough`` (default: all at once).
    ``sampling``: how they are drawn; None is the model's own law (temperature 1, nothing cut off), 256 tokens at most.
    """

    parse: Parse
    n: int = 16
    sampling: Sampling | None = None
    batch: int | None = None
    enough: Enough | None = None
    asking: Asking = field(default_factory=Asking)
    speculate: bool = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise OptionError(f"`n` is {self.n}: give at least 1")
        if self.batch is not None and self.batch < 1:
            raise OptionError(f"`batch` is {self.batch}: give at least 1")

    def laws(self, llm: Asks, prompts: ListLike[Prompt], draws: ListLike[ListLike[Completion]]) -> list[Law]:
        """The law of each prompt's draws."""
        raise NotImplementedError

    def estimate(self, llm: Asks, prompts: ListLike[Prompt], seeds: ListLike[int]) -> list[Estimate]:
        """Prompts that are not yet decided draw together, batch by batch."""
        sampling = self.sampling or model_law()
        sampling = replace(sampling, logprobs=sampling.logprobs or 0)
        draws: list[list[Completion]] = [[] for _ in prompts]
        laws: list[Law] = [Law.of([]) for _ in prompts]
        left, n_drawn = list(range(len(prompts))), 0
        while left and n_drawn < self.n:
            n_more = min(self.batch or self.n, self.n - n_drawn)
            new = llm.sample_many(
                [prompts[i] for i in left],
                n_more,
                sampling,
                seeds=[seeds[i] for i in left],
                first=n_drawn,
                chat=self.asking.chat,
                system=self.asking.system,
                speculate=self.speculate,
            )
            n_drawn += n_more
            for i, more in zip(left, new, strict=True):
                draws[i].extend(more)
            for i, law in zip(left, self.laws(llm, [prompts[i] for i in left], [draws[i] for i in left]), strict=True):
                laws[i] = law
            if self.enough is not None:
                left = [i for i in left if not self.enough(laws[i], n_drawn, self.batch or self.n)]
        return [self._estimate(law, some) for law, some in zip(laws, draws, strict=True)]

    def _estimate(self, law: Law, draws: ListLike[Completion]) -> Estimate:
        texts = tuple(draw.text for draw in draws)
        values = tuple(self.parse(text) for text in texts)
        return Estimate(law=law, texts=texts, values=values, logprobs=np.array([d.logprob for d in draws]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled(_Drawn):
    """Draws, parsed, one vote each. ``temperature``: of the law that is wanted, p(answer)^(1/T) over whole answers; the
    draws then carry importance weights (None: the law of the draws). They must be drawn at a temperature alone.
    """

    temperature: float | None = None

    def __post_init__(self) -> None:
        super(Sampled, self).__post_init__()
        if self.temperature is None:
            return
        if not self.temperature > 0:
            raise OptionError(f"`temperature` is {self.temperature}: give a positive number")
        if not is_softmax(self.sampling or model_law()):
            raise OptionError(
                f"`temperature` {self.temperature} needs draws at a positive temperature and nothing else: leave "
                "top_k, top_p, min_p, penalties, bias and min_tokens out of `sampling`"
            )

    def laws(self, llm: Asks, prompts: ListLike[Prompt], draws: ListLike[ListLike[Completion]]) -> list[Law]:
        """Where draws were not at temperature 1, they are scored under what they were drawn from, all together."""
        weights: list[F64 | None] = [None] * len(prompts)
        if self.temperature is not None:
            own = [np.array([draw.logprob for draw in some]) for some in draws]
            drawn_at = (self.sampling or model_law()).temperature
            drawn = own if drawn_at == 1 else self._scored(llm, prompts, draws, drawn_at)
            weights = [importance(p / self.temperature, q) for p, q in zip(own, drawn, strict=True)]
        return [
            Law.of([self.parse(draw.text) for draw in some], weight, n_tokens=n_tokens(some))
            for some, weight in zip(draws, weights, strict=True)
        ]

    def _scored(
        self, llm: Asks, prompts: ListLike[Prompt], draws: ListLike[ListLike[Completion]], temperature: float
    ) -> list[F64]:
        scores = llm.score_many(
            prompts,
            [[draw.tokens for draw in some] for some in draws],
            terminator="none",
            temperature=temperature,
            chat=self.asking.chat,
            system=self.asking.system,
        )
        return [score.logprobs for score in scores]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored(_Drawn):
    """Distinct draws, each weighted by the model's probability of its tokens: less variance where few answers occur.

    The law's ``covered`` is the probability of all distinct draws that parsed.
    """

    def laws(self, llm: Asks, prompts: ListLike[Prompt], draws: ListLike[ListLike[Completion]]) -> list[Law]:
        """The draws' own log-probabilities came with them."""
        return [self._law({tuple(draw.tokens): draw for draw in some}, n_tokens(some)) for some in draws]

    def _law(self, distinct: Mapping[tuple[int, ...], Completion], n_spent: int) -> Law:
        logprobs = [draw.logprob for draw in distinct.values()]
        return Law.scored([self.parse(draw.text) for draw in distinct.values()], logprobs, n_tokens=n_spent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enumerated:
    """Candidates scored exactly: ``candidates`` are (value, text) pairs, several texts a value where it has several
    forms. ``terminator`` as for ``LLM.score``.
    """

    candidates: tuple[tuple[Any, str], ...]
    terminator: Terminator = "auto"
    asking: Asking = field(default_factory=Asking)

    def __post_init__(self) -> None:
        if not self.candidates:
            raise OptionError("there are no `candidates`: give at least one")

    def estimate(self, llm: Asks, prompts: ListLike[Prompt], seeds: ListLike[int]) -> list[Estimate]:
        """Exact: seeds change nothing."""
        values, texts = tuple(v for v, _ in self.candidates), tuple(t for _, t in self.candidates)
        scores = llm.score_many(
            prompts,
            [texts] * len(prompts),
            terminator=self.terminator,
            chat=self.asking.chat,
            system=self.asking.system,
        )
        return [
            Estimate(
                law=Law.scored(values, score.distinct, n_tokens=score.n_tokens),
                texts=texts,
                values=values,
                logprobs=score.logprobs,
            )
            for score in scores
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reasoned:
    """``n`` chains of reasoning are drawn, ``bridge`` (such as "\\nScore:") is put after each, and ``then`` estimates
    the law of what follows; the laws are averaged. Answers inside the chains themselves are ``Sampled``'s to parse.
    """

    then: Estimator
    bridge: str
    n: int = 8
    sampling: Sampling | None = None
    asking: Asking = field(default_factory=Asking)
    speculate: bool = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise OptionError(f"`n` is {self.n}: give at least 1")

    def estimate(self, llm: Asks, prompts: ListLike[Prompt], seeds: ListLike[int]) -> list[Estimate]:
        """All chains of all prompts run together, then all questions after them."""
        asking, bridge = self.asking, llm.text.encode(self.bridge, add_special=False)
        asked = [llm.encode(prompt, chat=asking.chat, system=asking.system) for prompt in prompts]
        chains = llm.sample_many(asked, self.n, self.sampling or model_law(), seeds=seeds, speculate=self.speculate)
        after = [
            [*tokens, *without_end(chain.tokens, llm.text.eos_ids), *bridge]
            for tokens, some in zip(asked, chains, strict=True)
            for chain in some
        ]
        inner = self.then.estimate(llm, after, [mixed(seed, i) for seed in seeds for i in range(self.n)])
        return [_averaged(inner[i * self.n : (i + 1) * self.n], n_tokens(some)) for i, some in enumerate(chains)]


def model_law() -> Sampling:
    """How to draw from the model's own law: temperature 1 and nothing cut off."""
    return Sampling(temperature=1.0)


def mixed(seed: int, row: int | str) -> int:
    """The seed of one row: rows are independent of each other, and each is the same whatever stands around it."""
    data = f"{seed} {type(row).__name__} {row}".encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def n_tokens(draws: Iterable[Completion]) -> int:
    """Tokens drawn."""
    return sum(len(draw.tokens) for draw in draws)


def without_end(tokens: ListLike[int], ends: frozenset[int]) -> ListLike[int]:
    """An answer to be gone on with: without the token that ended it."""
    return tokens[:-1] if len(tokens) and tokens[-1] in ends else tokens


def _averaged(estimates: ListLike[Estimate], n_chain_tokens: int) -> Estimate:
    law = average([each.law for each in estimates])
    return Estimate(
        law=replace(law, n_tokens=law.n_tokens + n_chain_tokens),
        texts=tuple(text for each in estimates for text in each.texts),
        values=tuple(value for each in estimates for value in each.values),
        logprobs=np.concatenate([each.logprobs for each in estimates]),
    )
