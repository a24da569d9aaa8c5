"""wager as a model of lm-evaluation-harness: ``lm_eval.simple_evaluate(model=wager.lm_eval.harness_model(), tasks=…)``.

The harness brings torch, so it belongs into a venv of its own. Prompts are taken as the harness makes them, without our
chat template.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from importlib import import_module
from typing import Any

from wager.errors import OptionError
from wager.llm import LLM
from wager.score import Continuations
from wager.types import Sampling

_TOGETHER = 64  # prompts
_GENERATION = {"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k", "min_p"}


class Harness:
    """The three questions of the harness, over plain arguments; ``harness_model`` makes the class it wants of this."""

    def __init__(self, llm: LLM) -> None:
        self.llm, self._continuations = llm, Continuations(llm.text)
        self._most = int(llm.info["context_length"]) - 1
        eos = sorted(llm.text.eos_ids)
        self._start = [llm.text.bos_id if llm.text.bos_id is not None else eos[0]]

    def loglikelihoods(self, pairs: ListLike[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Per (context, continuation): log-probability, and whether temperature 0 writes it.

        Both are encoded at once, so a space at the end of the context goes to the continuation. Without a context the
        text begins after BOS, or end of text. What is too long loses its beginning.
        """
        return self._scored([self._encoded(context, continuation) for context, continuation in pairs])

    def rolling(self, texts: ListLike[str]) -> list[float]:
        """Log-probability of each whole text after BOS (or end of text); where it is longer than the context, of parts,
        each after the last token of the one before.
        """
        parts: list[tuple[list[int], tuple[int, ...]]] = []
        whose: list[int] = []
        for i, text in enumerate(texts):
            tokens = self.llm.text.encode(text, add_special=False) if text else []
            for first in range(0, len(tokens), self._most - 1):
                before = tokens[first - 1 : first] or self._start
                parts.append((before, tuple(tokens[first : first + self._most - 1])))
                whose.append(i)
        totals = [0.0] * len(texts)
        for i, (logprob, _) in zip(whose, self._scored(parts), strict=True):
            totals[i] += logprob
        return totals

    def generations(self, asked: ListLike[tuple[str, Mapping[str, Any]]]) -> list[str]:
        """Per (context, options of the harness): the text up to the first of ``until``. Raises OptionError for options
        that would not be honoured.
        """
        texts = [""] * len(asked)
        samplings = [self._sampling(options) for _, options in asked]
        kinds = {repr(sampling): sampling for sampling in samplings}
        for kind, sampling in kinds.items():
            places = [i for i, each in enumerate(samplings) if repr(each) == kind]
            prompts = [self.llm.encode(asked[i][0], chat=False)[-(self._most - sampling.max_tokens) :] for i in places]
            for i, answer in zip(places, self.llm.generate(prompts, sampling, chat=False, n=1), strict=True):
                texts[i] = answer.text
        return texts

    def _encoded(self, context: str, continuation: str) -> tuple[list[int], tuple[int, ...]]:
        if not continuation:
            raise OptionError("a continuation is empty: mend the task")
        if not context:
            return self._start, tuple(self.llm.text.encode(continuation, add_special=False))
        tokens, [path] = self._continuations.split(context, (continuation,), add_special=True)
        return (tokens or self._start)[-max(1, self._most - len(path)) :], path

    def _scored(self, asked: ListLike[tuple[list[int], tuple[int, ...]]]) -> list[tuple[float, bool]]:
        """Continuations of one prompt are one trie."""
        found: list[tuple[float, bool]] = [(0.0, True)] * len(asked)
        places: dict[tuple[int, ...], list[int]] = {}
        for i, (tokens, _) in enumerate(asked):
            places.setdefault(tuple(tokens), []).append(i)
        prompts = list(places)
        for first in range(0, len(prompts), _TOGETHER):
            some = prompts[first : first + _TOGETHER]
            paths = [[asked[i][1] for i in places[prompt]] for prompt in some]
            for prompt, score in zip(some, self.llm.score_many(some, paths, terminator="none"), strict=True):
                for i, logprob, greedy in zip(places[prompt], score.logprobs.tolist(), score.greedy, strict=True):
                    found[i] = (logprob, greedy)
        return found

    def _sampling(self, options: Mapping[str, Any]) -> Sampling:
        strange = sorted(set(options) - _GENERATION)
        if strange:
            known = ", ".join(sorted(_GENERATION))
            raise OptionError(f"`{strange[0]}` is no option that is honoured here: give {known}")
        until = options.get("until") or ()
        n_most = int(options.get("max_gen_toks", 256))
        if n_most >= self._most:
            raise OptionError(f"`max_gen_toks` is {n_most}: give less than {self._most}, to leave room for the prompt")
        greedy = options.get("do_sample") is False or not options.get("temperature")
        own = {} if greedy else {name: options[name] for name in ("top_p", "top_k", "min_p") if name in options}
        return Sampling(
            temperature=0.0 if greedy else float(options["temperature"]),
            max_tokens=n_most,
            stop=tuple(text for text in ([until] if isinstance(until, str) else until) if text),
            seed=0,
            **own,
        )


def harness_model(
    *, model: str = "smollm2-135m", drafter: str = "auto", profile: str = "fast", threads: int | None = None
) -> Any:
    """An ``lm_eval.api.model.LM`` over a model. Raises OptionError where the harness is not installed."""
    return _model_class()(model=model, drafter=drafter, profile=profile, threads=threads)


def _model_class() -> Any:
    try:
        base: Any = import_module("lm_eval.api.model").LM
        register: Any = import_module("lm_eval.api.registry").register_model
    except ImportError as error:
        raise OptionError("lm-evaluation-harness is missing: pip install lm_eval, in a venv of its own") from error

    class WagerLM(base):  # type: ignore[misc]
        def __init__(
            self,
            model: str = "smollm2-135m",
            drafter: str = "auto",
            profile: str = "fast",
            threads: int | None = None,
            batch_size: object = None,
            max_batch_size: object = None,
            device: object = None,
        ) -> None:
            super().__init__()
            self._asked = Harness(LLM(model, drafter=drafter, profile=profile, threads=threads))

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return self._asked.loglikelihoods([request.args for request in requests])

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            return self._asked.rolling([request.args[0] for request in requests])

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return self._asked.generations([request.args for request in requests])

    return register("wager")(WagerLM)
