"""What is asked of a loaded model beyond one text: samples, scores, and the answer that is best for a metric."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListLike
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from wager.completion import Completion, Progress, Request, complete
from wager.engine import Engine
from wager.errors import OptionError
from wager.score import Candidate, Continuations, Scores, Terminator, read, rendered
from wager.text import Text
from wager.types import Event, Sampling

if TYPE_CHECKING:
    from wager.decide.decide import Decided
    from wager.decide.estimate import Estimator
    from wager.decide.options import Options

Prompt = str | ListLike[int]


class Asks:
    """What follows from a tokenizer, sampling defaults and an engine; ``LLM`` sets them."""

    text: Text
    _engine: Engine
    _continuations: Continuations
    _progress: Progress | None
    _defaults: Mapping[str, Any]

    def sampling(self, **given: Any) -> Sampling:
        """The model's own defaults (generation_config.json), overridden by what is given (None: not given)."""
        known = {f.name for f in fields(Sampling)}
        for name in given:
            if name not in known:
                raise OptionError(f"`{name}` is no sampling option: give one of {', '.join(sorted(known))}")
        return Sampling(**{**self._defaults, **{name: value for name, value in given.items() if value is not None}})

    def sample(
        self,
        prompt: Prompt,
        n: int,
        sampling: Sampling | None = None,
        *,
        first: int = 0,
        chat: bool = True,
        system: str | None = None,
        speculate: bool = True,
    ) -> list[Completion]:
        """``n`` samples of one prompt, run together: samples first … first + n - 1 of its seed, each as if alone.

        The prompt is read once. Raises what ``generate`` does.
        """
        seed = self._seed(sampling or self.sampling())
        return self.sample_many(
            [prompt], n, sampling, seeds=[seed], first=first, chat=chat, system=system, speculate=speculate
        )[0]

    def sample_many(
        self,
        prompts: ListLike[Prompt],
        n: int,
        sampling: Sampling | None = None,
        *,
        seeds: ListLike[int],
        first: int = 0,
        chat: bool = True,
        system: str | None = None,
        speculate: bool = True,
    ) -> list[list[Completion]]:
        """``sample`` of many prompts, all together; ``seeds``: one per prompt, in place of that of ``sampling``."""
        if n < 1:
            raise OptionError(f"`n` is {n}: give at least 1")
        encoded = [self.encode(prompt, chat=chat, system=system) for prompt in prompts]
        wanted = range(first, first + n)
        requests = [Request(t, seed, i) for t, seed in zip(encoded, seeds, strict=True) for i in wanted]
        done = self._complete(requests, sampling or self.sampling(), speculate)
        return [done[i : i + n] for i in range(0, len(done), n)]

    def score(
        self,
        prompt: Prompt,
        candidates: ListLike[Candidate],
        *,
        terminator: Terminator = "auto",
        temperature: float = 1.0,
        chat: bool = True,
        system: str | None = None,
    ) -> Scores:
        """Log-probabilities of given continuations (texts or token ids), exactly: all go through the target at once.

        ``terminator``: what has to follow a candidate, so that "1" does not have the mass of "10": "end" (of the text
        or the turn), "line" (that, or a new line), or "none"; "auto" is end after the chat template, line after text
        without it, end after token ids. ``temperature``: each token's law is softmax(logits / temperature).
        Raises OptionError for candidates that are no tokens, PromptError and CapacityError for what is too long.
        """
        return self.score_many(
            [prompt], [candidates], terminator=terminator, temperature=temperature, chat=chat, system=system
        )[0]

    def score_many(
        self,
        prompts: ListLike[Prompt],
        candidates: ListLike[ListLike[Candidate]],
        *,
        terminator: Terminator = "auto",
        temperature: float = 1.0,
        chat: bool = True,
        system: str | None = None,
    ) -> list[Scores]:
        """``score`` of many prompts together, each with its own candidates; what they share in front is read once."""
        if not temperature > 0:
            raise OptionError(f"`temperature` is {temperature}: give a positive number")
        tries = [
            self._continuations.trie(prompt, some, terminator, temperature, chat=chat, system=system)
            for prompt, some in zip(prompts, candidates, strict=True)
        ]
        read(self._engine, tries)
        return [trie.scores(some) for trie, some in zip(tries, candidates, strict=True)]

    def decide(
        self,
        prompt: Prompt | ListLike[Prompt],
        metric: str,
        *,
        candidates: str | ListLike[Any] | Mapping[str, Any] | None = None,
        n: int | None = None,
        price: float | None = None,
        estimator: Estimator | None = None,
        options: Options | None = None,
        rows: ListLike[int | str] | None = None,
        seed: int = 0,
        chat: bool = True,
        system: str | None = None,
    ) -> Decided | list[Decided]:
        """The answer to ``prompt`` that is best for ``metric`` under the model's own law; of a list of prompts, a list.

        ``candidates`` are scored exactly: values, texts to their values, or as in "0..5:0.25". Without them ``n``
        answers (16) are drawn, and read as the metric wants them; fewer where a draw is not expected to lower the loss
        by ``price``. ``estimator``: another one, in place of these. ``options``: what the metric's rule is told.
        ``rows``: ids that set the draws of prompts apart (default: their places); a row gets the same draws whatever
        stands around it. Raises OptionError for what does not go together.
        """
        from wager.decide.decide import decided, estimator_for

        asked = estimator or estimator_for(metric, candidates=candidates, n=n, price=price, chat=chat, system=system)
        if estimator is not None and not (candidates is None and n is None and price is None):
            raise OptionError("`estimator` was given with `candidates`, `n` or `price`: put them into the estimator")
        one = isinstance(prompt, str) or len(prompt) == 0 or isinstance(prompt[0], int | np.integer)
        prompts: list[Any] = [prompt] if one else list(prompt)
        found = decided(self, prompts, metric, asked, rows=rows, seed=seed, options=options)
        return found[0] if one else found

    def encode(self, prompt: Prompt, *, chat: bool = True, system: str | None = None) -> list[int]:
        """Token ids of a prompt: text goes through the chat template (or as it is, with BOS), ids are what they are."""
        text, add_special = rendered(self.text, prompt, chat=chat, system=system)
        return self.text.encode(text, add_special) if isinstance(text, str) else text

    # -- inside ---------------------------------------------------------------------------------------------------

    def _seed(self, sampling: Sampling) -> int:
        return secrets.randbits(63) if sampling.seed is None else sampling.seed

    def _complete(
        self,
        requests: ListLike[Request],
        sampling: Sampling,
        speculate: bool,
        on_event: Callable[[Event], None] | None = None,
    ) -> list[Completion]:
        return complete(
            self._engine,
            self.text,
            requests,
            sampling,
            speculate=speculate,
            on_event=on_event,
            progress=self._progress,
        )
