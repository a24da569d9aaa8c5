"""Tools: how they are told to a model, what grammar its calls keep to, and calls read from its text.

The form is Hermes': a call is ``<tool_call>``, one JSON object with name and arguments, ``</tool_call>``; an answer of
a tool comes as ``<tool_response>``. The grammar makes every call valid, whatever the model was trained on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence as ListLike
from dataclasses import dataclass

from wager.constraint import Constraint
from wager.grammar import tool_call
from wager.serve.bodies import Message, NamedChoice, Tool
from wager.serve.errors import ApiError
from wager.types import JSON

_OPEN, _CLOSE = "<tool_call>\n", "\n</tool_call>"
_TEXT = r"([^<](.|\n)*)?"  # what may come instead of a call
_NONE: JSON = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one request. ``required``: the answer is a call; otherwise it may be text instead."""

    tools: tuple[Tool, ...]
    required: bool

    @property
    def constraint(self) -> Constraint:
        """Raises OptionError for parameters whose schema is not followed here."""
        parameters = {tool.function.name: tool.function.parameters or _NONE for tool in self.tools}
        return tool_call(parameters, before=_OPEN, after=_CLOSE, instead="" if self.required else _TEXT)

    @property
    def told(self) -> str:
        """What the model is told of them."""
        listed = "\n".join(tool.model_dump_json(exclude_none=True) for tool in self.tools)
        must = "Call one of these functions." if self.required else "You may call one of these functions."
        form = f'{_OPEN}{{"name": <function name>, "arguments": <arguments as JSON>}}{_CLOSE}'
        listing = f"They are given as JSON:\n<tools>\n{listed}\n</tools>"
        return f"{must} {listing}\nTo call one, answer with nothing but:\n{form}"


def toolbox(tools: ListLike[Tool], choice: str | NamedChoice | None) -> Toolbox | None:
    """The tools that may be called; None where none may be. Raises ApiError 400."""
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise ApiError(400, f"`tools` has a name twice: {names}", param="tools")
    if isinstance(choice, NamedChoice):
        if choice.function.name not in names:
            message = f"`tool_choice` is {choice.function.name!r}: give one of {', '.join(names) or 'no tools at all'}"
            raise ApiError(400, message, param="tool_choice")
        return Toolbox(tuple(t for t in tools if t.function.name == choice.function.name), required=True)
    if choice == "required" and not tools:
        raise ApiError(400, "`tool_choice` is 'required', but there are no `tools`", param="tool_choice")
    return Toolbox(tuple(tools), required=choice == "required") if tools and choice != "none" else None


def as_text(message: Message) -> dict[str, str]:
    """``role`` and ``content`` as a chat template without tools takes them."""
    content = message.content or ""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    if message.role == "tool":
        return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}
    for call in message.tool_calls or ():
        said = f'{{"name": {json.dumps(call.function.name)}, "arguments": {call.function.arguments}}}'
        text += f"{_OPEN}{said}{_CLOSE}"
    return {"role": "system" if message.role == "developer" else message.role, "content": text}


def with_tools(messages: list[dict[str, str]], tools: Toolbox | None) -> list[dict[str, str]]:
    """The messages, with the tools told in the system message."""
    if tools is None:
        return messages
    if messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{tools.told}"}, *messages[1:]]
    return [{"role": "system", "content": tools.told}, *messages]


def called(text: str) -> list[JSON] | None:
    """The calls that an answer is; None for any other text, one that was cut short among them."""
    if not (text.startswith(_OPEN) and text.endswith(_CLOSE)):
        return None
    said = json.loads(text[len(_OPEN) : -len(_CLOSE)])
    arguments = json.dumps(said["arguments"], ensure_ascii=False)
    function = {"name": said["name"], "arguments": arguments}
    return [{"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}]
