"""From a request body to a running request: the model's part of the server, without HTTP."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import TypeVar

from wager.constraint import Constraint
from wager.decide.law import Law
from wager.engine import Engine
from wager.grammar import JsonObject, JsonSchema
from wager.llm import LLM
from wager.score import Continuations, Scores, Terminator
from wager.serve import deciding
from wager.serve.bodies import ChatBody, CompletionBody, DecideBody, Message, ScoreBody, check_n, sampling_options
from wager.serve.choosing import offer, spelled
from wager.serve.config import Settings
from wager.serve.errors import ApiError
from wager.serve.formats import Echoed, Style
from wager.serve.loop import Ask, Echo, EngineLoop, Scoring, Ticket
from wager.serve.metrics import Metrics
from wager.serve.tools import Toolbox, as_text, toolbox, with_tools
from wager.types import JSON, Sampling, TokenLogprob

_MOST_DRAFTED = 64
Hold = Callable[[Ticket], None]
Result = TypeVar("Result")


@dataclass(slots=True)
class Running:
    """A request in the engine, and how its answer looks."""

    ticket: Ticket
    style: Style


class Service:
    """A loaded model that answers requests. Once ``loop`` is started its thread owns ``llm``'s engine, or another
    ``engine`` over the same model.
    """

    def __init__(self, llm: LLM, settings: Settings, *, engine: Engine | None = None) -> None:
        engine, self._continuations = engine or llm.engine, Continuations(llm.text)
        self.llm, self.settings = llm, settings
        self.name, self._created = str(llm.info["model"]), int(time.time())
        self.drafter = engine.drafter.name if engine.drafter is not None else "none"
        self.drafters = offer(llm, engine, settings.drafters)
        self.rule = engine.rule.name
        self._vocabulary = engine.vocabulary
        self._room = engine.cache.n_blocks * engine.cache.block_size
        self.metrics = Metrics(model=self.name, drafter=self.drafter, profile=str(llm.info["profile"]))
        self.loop = EngineLoop(
            engine,
            llm.text,
            max_queue=settings.limits.max_queue,
            on_step=self.metrics.stepped,
            on_done=self.metrics.done,
            on_idle=llm.prepare,
        )
        self.metrics.watch(self.loop)

    async def chat(self, body: ChatBody) -> Running:
        """Raises ApiError or WagerError."""
        self._check(body)
        tools = toolbox(body.tools or (), body.tool_choice)
        constraint = await self._aside(lambda: self._constraint(body, tools))
        tokens = await self._chat(body.messages, tools)
        return self._begin(body, [tokens], chat=True, constraint=constraint, tools=tools is not None)

    async def complete(self, body: CompletionBody, hold: Hold) -> Running:
        """Raises ApiError or WagerError. ``hold`` is given a ticket as soon as there is one."""
        self._check(body)
        texts = _prompts(body)
        if len(texts) * (body.n or 1) > self.settings.limits.max_n:
            most = self.settings.limits.max_n
            raise ApiError(400, f"`prompt` and `n` ask for more than {most} answers", param="prompt")
        encode = self.llm.text.encode
        prompts = await self._aside(lambda: [encode(p) if isinstance(p, str) else p for p in texts])
        echo = None
        if body.echo:
            echo = Echoed.of(texts, prompts, await self._prompt_logprobs(body, prompts, hold), self.llm.text)
        return self._begin(body, prompts, chat=False, echo=echo)

    async def _prompt_logprobs(
        self, body: CompletionBody, prompts: ListLike[list[int]], hold: Hold
    ) -> list[list[TokenLogprob]] | None:
        """Of every token of the prompts but the first; None where none were asked for."""
        if body.logprobs is None:
            return None
        for tokens in prompts:
            self._check_length(len(tokens))
        asked = Echo(prompts=prompts, n_top=body.logprobs, deadline_s=self.settings.limits.deadline_s)
        ticket = self.loop.submit(asked)
        hold(ticket)
        async for _ in ticket.parts():
            pass
        return asked.found

    async def score(self, body: ScoreBody, hold: Hold) -> JSON:
        """Raises ApiError or WagerError. ``hold`` is given the ticket as soon as there is one."""
        self.check_model(body.model)
        deciding.check_prompt(body)
        deciding.check_count("candidates", body.candidates, self.settings.limits)
        prompt = body.prompt if body.messages is None else await self._chat(body.messages)
        assert prompt is not None
        scores = await self._scores(prompt, body.candidates, body.terminator, body.temperature, hold)
        return deciding.score_answer(self._head("score"), scores)

    async def decide(self, body: DecideBody, hold: Hold) -> JSON:
        """Raises ApiError or WagerError. ``hold`` is given the ticket as soon as there is one."""
        self.check_model(body.model)
        deciding.check_prompt(body)
        pairs, rules = deciding.candidates_of(body, self.settings.limits), deciding.rules_of(body)
        tokens = await self._chat(body.messages or [Message(role="user", content=body.prompt or "")])
        if pairs:
            scores = await self._scores(tokens, [text for _, text in pairs], "end", 1.0, hold)
            law = Law.scored([value for value, _ in pairs], scores.distinct, n_tokens=scores.n_tokens)
        else:
            law = await self._drawn(body, tokens, hold)
        usage = {"prompt_tokens": len(tokens), "completion_tokens": law.n_tokens}
        usage["total_tokens"] = len(tokens) + law.n_tokens
        return deciding.decision_answer(self._head("decide"), law, rules, usage)

    async def _drawn(self, body: DecideBody, tokens: list[int], hold: Hold) -> Law:
        """The law of ``n`` draws from the model's own law."""
        limits = self.settings.limits
        n = check_n(body.n, limits)
        self._check_length(len(tokens))
        sampling = Sampling(temperature=1.0, max_tokens=body.max_tokens)
        seed = secrets.randbits(53) if body.seed is None else body.seed
        ticket = self.loop.submit(
            Ask(
                prompts=[tokens],
                sampling=sampling,
                seed=seed,
                n=n,
                drafter=self.drafter,
                deadline_s=limits.deadline_s,
            )
        )
        hold(ticket)
        texts = ["" for _ in range(n)]
        async for part in ticket.parts():
            texts[part.index] += part.event.text
        return deciding.drawn_law(texts, sum(seq.n_output for seq in ticket.sequences))

    def models(self) -> JSON:
        info = self.llm.info
        about = {
            "drafter": self.drafter,
            "drafters": list(self.drafters),
            "rule": self.rule,
            "metrics": list(deciding.SIMPLE),
            **{k: info[k] for k in ("profile", "exactness")},
        }
        entry = {"id": self.name, "object": "model", "created": self._created, "owned_by": "wager"}
        return {"object": "list", "data": [{**entry, "max_model_len": info["context_length"], "wager": about}]}

    # -- inside --------------------------------------------------------------------------------------------------

    def _head(self, kind: str) -> JSON:
        head = {"id": f"{kind}-{uuid.uuid4().hex}", "created": int(time.time()), "model": self.name}
        return {**head, "system_fingerprint": self.llm.fingerprint}

    async def _scores(
        self, prompt: str | list[int], candidates: ListLike[str], terminator: Terminator, temperature: float, hold: Hold
    ) -> Scores:
        """Read the candidates after a text, or after the tokens of a chat."""
        trie = await self._aside(
            lambda: self._continuations.trie(prompt, candidates, terminator, temperature, chat=False, system=None)
        )
        self._check_length(len(trie.prompt))
        ticket = self.loop.submit(Scoring(tries=[trie], deadline_s=self.settings.limits.deadline_s))
        hold(ticket)
        async for _ in ticket.parts():
            pass
        return trie.scores(candidates)

    def _constraint(self, body: ChatBody, tools: Toolbox | None) -> Constraint | None:
        """What the answer has to be, compiled here so that no step waits for it. Raises ApiError or OptionError."""
        wanted = body.response_format
        if tools is not None and wanted is not None and wanted.type != "text":
            raise ApiError(
                400, "`tools` and `response_format` contradict each other: give one", param="response_format"
            )
        constraint: Constraint | None = None if tools is None else tools.constraint
        if wanted is not None and wanted.type == "json_object":
            constraint = JsonObject()
        elif wanted is not None and wanted.json_schema is not None:
            constraint = JsonSchema(wanted.json_schema.schema_)
        if constraint is not None:
            constraint.guide(self._vocabulary)
        return constraint

    async def _chat(self, messages: ListLike[Message], tools: Toolbox | None = None) -> list[int]:
        plain = with_tools([as_text(m) for m in messages], tools)
        return await self._aside(lambda: self.llm.text.chat(plain))

    async def _aside(self, work: Callable[[], Result]) -> Result:
        """Run what takes longer than the event loop may be held up for."""
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def _check(self, body: ChatBody | CompletionBody) -> None:
        self.check_model(body.model)
        if body.drafter is not None and spelled(body.drafter) not in self.drafters:
            offered = ", ".join(self.drafters)
            message = (
                f"`drafter` is {body.drafter[:99]!r}: give one of {offered} (`wager serve --drafters` offers more)"
            )
            raise ApiError(400, message, param="drafter")
        if body.rule is not None and body.rule != self.rule:
            message = f"`rule` is {body.rule[:99]!r}: all answers here are verified with {self.rule!r}, give that"
            raise ApiError(400, message, param="rule")
        if body.num_draft_tokens is not None and body.num_draft_tokens > _MOST_DRAFTED:
            raise ApiError(
                400, f"`num_draft_tokens` is {body.num_draft_tokens}: at most {_MOST_DRAFTED}", param="num_draft_tokens"
            )
        if body.stream_options is not None and not body.stream:
            raise ApiError(400, "`stream_options` is given without `stream`: set it to true", param="stream_options")

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.name and name not in self.settings.names:
            message = f"the model {name!r} is not served here: give {self.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _begin(
        self,
        body: ChatBody | CompletionBody,
        prompts: ListLike[ListLike[int]],
        *,
        chat: bool,
        echo: Echoed | None = None,
        constraint: Constraint | None = None,
        tools: bool = False,
    ) -> Running:
        limits, options = self.settings.limits, body.stream_options
        sampling = self._sampling(body, max(map(len, prompts)), constraint)
        seed = secrets.randbits(53) if body.seed is None else body.seed % 2**64  # 53: what JavaScript reads exactly
        speculate = body.speculate is not False and body.num_draft_tokens != 0
        ask = Ask(
            prompts=prompts,
            sampling=sampling,
            seed=seed,
            n=body.n or 1,
            drafter=spelled(body.drafter or self.drafter) if speculate else "none",
            num_draft_tokens=body.num_draft_tokens,
            deadline_s=limits.deadline_s,
            before=() if echo is None else echo.open,
        )
        style = Style(
            chat=chat,
            model=self.name,
            fingerprint=self.llm.fingerprint,
            text=self.llm.text,
            n=ask.n,
            include_usage=options is not None and options.include_usage,
            include_tokens=options is not None and options.include_tokens,
            echo=echo,
            ids=isinstance(body, CompletionBody) and bool(body.return_tokens_as_token_ids),
            tools=tools,
        )
        return Running(self.loop.submit(ask), style)

    def _sampling(self, body: ChatBody | CompletionBody, n_prompt: int, constraint: Constraint | None) -> Sampling:
        self._check_length(n_prompt)
        options = sampling_options(body, self.settings.limits)
        room = min(int(self.llm.info["context_length"]), self._room - 1) - n_prompt
        if 0 < room < options.get("min_tokens", 0):
            message = f"`min_tokens` is {options['min_tokens']}: there is room for {room} after this prompt"
            raise ApiError(400, message, param="min_tokens")
        options.setdefault("max_tokens", max(1, room))  # as much as there is room for
        return self.llm.sampling(**options, constraint=constraint)

    def _check_length(self, n_prompt: int) -> None:
        most = self.settings.limits.max_prompt_tokens
        if most is not None and n_prompt > most:
            message = f"the prompt has {n_prompt} tokens: at most {most} here"
            raise ApiError(400, message, code="context_length_exceeded")


def _prompts(body: CompletionBody) -> list[str | list[int]]:
    """The prompts of a completion request: one or several, each a text or ids."""
    prompt = body.prompt
    if isinstance(prompt, str) or (prompt and all(isinstance(p, int) for p in prompt)):
        return [prompt]  # type: ignore[list-item]
    if not prompt:
        raise ApiError(400, "`prompt` is empty: give some text", param="prompt")
    return list(prompt)  # type: ignore[arg-type]
