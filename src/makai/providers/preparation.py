"""Prepares what every adapter sends: the conversation, JSON Schemas and the reasoning effort. Pure. A conversation as
it happened may mix vendors, broken turns and lost tool results; `prepare` makes one of which every adapter may assume
the invariants listed there. Preparing a prepared context changes nothing, and a conversation that only grows keeps the
ids it was given before, so that prompt caches still match."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from makai.core.content import AssistantPart, Text, Thinking, ToolCall, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions, ToolDefinition
from makai.providers.parts import arguments_error

NO_RESULT = "No result was recorded for this tool call."

ToolIdRule: TypeAlias = Callable[[str], str]
"""A vendor's rule for tool ids. It must leave its own results alone and give different ids nearly always."""

EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh")

_RANK = {level: rank for rank, level in enumerate(EFFORTS)} | {"none": 0, "max": 5}
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BROKEN = ("error", "aborted")
_MAX_ATTEMPTS = 1_000
MAX_NAME = 64
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}")
"""What all vendors take as the name of a tool."""


def identity(tool_id: str) -> str:
    """The rule of vendors that accept any id."""
    return tool_id


def normalised_tool_id(max_length: int = 64, *, alphanumeric: bool = False) -> ToolIdRule:
    """A rule for ids of at most `max_length` letters, digits, `_` and `-`. With `alphanumeric` ids have exactly
    `max_length` letters and digits (Mistral wants nine). An id that does not fit is replaced by one that carries its
    hash: a call and its result agree, two long ids with one beginning do not."""
    if alphanumeric:
        fits = re.compile(rf"[A-Za-z0-9]{{{max_length}}}")
        return lambda tool_id: tool_id if fits.fullmatch(tool_id) else _fingerprint(tool_id, max_length)

    allowed = re.compile(rf"[A-Za-z0-9_-]{{1,{max_length}}}")

    def shortened(tool_id: str) -> str:
        if allowed.fullmatch(tool_id):
            return tool_id
        mark = "_" + _fingerprint(tool_id, 8)
        readable = re.sub(r"[^A-Za-z0-9_-]", "_", tool_id[: max(0, max_length - len(mark))])
        return (readable + mark)[-max_length:]

    return shortened


def arguments_object(call: ToolCall) -> msgspec.Raw:
    """The arguments as JSON text of an object, for APIs that take nothing else. What the model wrote wrongly is shown
    to it as it was; it must not read `{}` as its own words."""
    if arguments_error(call.arguments_json) is None:
        return msgspec.Raw(call.arguments_json.encode())
    readable = call.arguments_json.encode("utf-8", "replace").decode()
    return msgspec.Raw(msgspec.json.encode({"_malformed_arguments": readable}))


def arguments_text(call: ToolCall) -> str:
    """The same for APIs that take text. llama.cpp and vLLM parse it, and refuse requests that repeat a wrong one."""
    return str(arguments_object(call), "utf-8")


def schema_object(schema_json: str, what: str) -> msgspec.Raw:
    """The schema byte for byte, ready to embed; `InvalidRequest` naming `what` when it is not a JSON object."""
    try:
        encoded = schema_json.encode()
        _object_decoder.decode(encoded)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequest(f"{what} is not a JSON Schema object: {error}") from error
    return msgspec.Raw(encoded)


def function_fields(tool: ToolDefinition, schema: str = "parameters") -> dict[str, Any]:
    """A tool as most APIs describe one; `schema` is the field that an API has for its JSON Schema."""
    parameters = schema_object(tool.parameters_schema_json, f"the schema of tool {tool.name!r}")
    return {"name": tool.name, "description": tool.description, schema: parameters}


def nearest_effort(effort: str, accepted: Sequence[str]) -> str | None:
    """The accepted level closest to `effort`; on a tie the lower one. "off" is never rounded up to thinking that was
    not asked for: None means "leave the parameter out"."""
    if effort == "off":
        return next((level for level in accepted if _RANK.get(level) == 0), None)
    levels = [level for level in accepted if _RANK.get(level, 0) > 0]
    if not levels:
        return None
    return min(levels, key=lambda level: (abs(_RANK[level] - _RANK[effort]), _RANK[level]))


def sampling_fields(
    options: StreamOptions, *, top_p: str = "top_p", max_tokens: str = "max_tokens", stop: str = "stop"
) -> dict[str, Any]:
    """The options that decide how words are chosen and when to stop, under the names an API has for them."""
    fields = {"temperature": options.temperature, top_p: options.top_p, max_tokens: options.max_tokens}
    return {name: value for name, value in (fields | {stop: options.stop or None}).items() if value is not None}


def prepare(context: Context, model: Model, *, inline_system: bool, tool_id: ToolIdRule = identity) -> Context:
    """The conversation with these invariants, for a request to `model`:

    - An assistant turn has content, none of it empty, and does not end in thinking (nothing may follow it that it led
      to). Turns that broke off keep their words and lose the tool calls without results.
    - Thinking and signatures are those of `model` itself. Other models' thinking is text; what they redacted is gone.
    - The results of a turn's tool calls come directly after it, one for each, in the order of the calls. Lost ones
      are filled in as errors; results without a call and second results are gone.
    - Tool ids went through `tool_id` and no two calls share one.
    - The name of a call is that of a tool of `context`, or one that every vendor accepts: a name that a model made up
      would make them refuse all later requests.
    - System messages stay where they are (`inline_system`), or the leading ones have joined `system_prompt` and the
      later ones are user messages in `<system>` tags.
    """
    messages = tuple(_repaired(context, model, tool_id))
    if inline_system:
        return msgspec.structs.replace(context, messages=messages)
    leading = list(itertools.takewhile(lambda message: isinstance(message, SystemMessage), messages))
    prompts = (context.system_prompt or "", *(m.content for m in leading if isinstance(m, SystemMessage)))
    return msgspec.structs.replace(
        context,
        system_prompt="\n\n".join(prompt for prompt in prompts if prompt.strip()) or None,
        messages=tuple(_without_system(messages[len(leading) :])),
    )


class _ToolIds:
    """Ids and names of the calls of one conversation."""

    def __init__(self, rule: ToolIdRule, tools: Sequence[ToolDefinition]) -> None:
        self._rule = rule
        self._names = frozenset(tool.name for tool in tools)
        self._used: set[str] = set()

    def new(self, tool_id: str) -> str:
        """The id for one more call that its model named `tool_id`; models do reuse ids such as "call_0"."""
        mapped = self._rule(tool_id) if tool_id else ""
        if not mapped or mapped in self._used:
            mapped = self._other(tool_id)
        self._used.add(mapped)
        return mapped

    def name(self, given: str) -> str:
        """The name to send for a call that its model named `given`."""
        if given in self._names or _NAME.fullmatch(given):
            return given
        readable = re.sub(r"[^A-Za-z0-9_-]", "_", given)[:MAX_NAME] or "no_name"
        return readable if _NAME.fullmatch(readable) else f"_{readable}"[:MAX_NAME]

    def _other(self, tool_id: str) -> str:
        # Counting from the number of ids given out keeps this quick for a model that names every call the same.
        for number in range(len(self._used), len(self._used) + _MAX_ATTEMPTS):
            candidate = self._rule("call_" + _fingerprint(f"{number}:{tool_id}", 24))
            if candidate not in self._used:
                return candidate
        raise InvalidRequest(f"the conversation's tool calls cannot be told apart: too many are named {tool_id!r}")


def _repaired(context: Context, model: Model, rule: ToolIdRule) -> Iterator[Message]:
    """Turns as `prepare` promises them, each directly followed by its results."""
    messages = context.messages
    results = _results_of_calls(messages)
    ids = _ToolIds(rule, context.tools)
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            yield from _turn(message, model, results.get(position, {}), ids)
        elif not isinstance(message, ToolMessage):
            yield message


def _results_of_calls(messages: tuple[Message, ...]) -> dict[int, dict[int, ToolResult]]:
    """Position of an assistant message -> position of a call in its content -> the call's result. A result belongs to
    the latest turn before it that has a call of its id; several such calls in one turn take their results in order."""
    results: dict[int, dict[int, ToolResult]] = {}
    waiting: dict[str, deque[tuple[int, int]]] = {}
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            calls: dict[str, deque[tuple[int, int]]] = {}
            for place, part in enumerate(message.content):
                if isinstance(part, ToolCall):
                    calls.setdefault(part.tool_call_id, deque()).append((position, place))
            waiting.update(calls)
        elif isinstance(message, ToolMessage) and (queue := waiting.get(message.result.tool_call_id)):
            turn, place = queue.popleft()
            results.setdefault(turn, {})[place] = message.result
    return results


def _turn(
    message: AssistantMessage, model: Model, results: dict[int, ToolResult], ids: _ToolIds
) -> Iterator[AssistantMessage | ToolMessage]:
    """One assistant turn and its results, or nothing when nothing of it is usable."""
    is_own = (message.provider, message.api, message.model) == (model.provider, model.api, model.id)
    broken = message.stop_reason in _BROKEN
    content: list[AssistantPart] = []
    answers: list[ToolMessage] = []
    for place, part in _without_trailing_thinking(_usable(message.content, results, broken)):
        if isinstance(part, ToolCall):
            call = msgspec.structs.replace(
                part,
                tool_call_id=ids.new(part.tool_call_id),
                name=ids.name(part.name),
                thought_signature=part.thought_signature if is_own else None,
            )
            content.append(call)
            answers.append(_answer(call, results.get(place)))
        elif (kept := part if is_own else _foreign(part)) is not None:
            content.append(kept)
    if content:
        yield msgspec.structs.replace(message, content=tuple(content))
        yield from answers


def _usable(
    content: tuple[AssistantPart, ...], results: dict[int, ToolResult], broken: bool
) -> list[tuple[int, AssistantPart]]:
    """The parts worth sending, with their place in the turn."""
    return [
        (place, part)
        for place, part in enumerate(content)
        if (not broken or place in results if isinstance(part, ToolCall) else not _is_empty(part))
    ]


def _without_trailing_thinking(parts: list[tuple[int, AssistantPart]]) -> list[tuple[int, AssistantPart]]:
    """Thinking cut off before it led to anything: Anthropic and OpenAI refuse a turn that ends in it."""
    while parts and isinstance(parts[-1][1], Thinking):
        parts.pop()
    return parts


def _is_empty(part: Text | Thinking) -> bool:
    if isinstance(part, Text):
        return not part.text.strip() and part.text_signature is None
    return not part.thinking.strip() and part.thinking_signature is None


def _foreign(part: Text | Thinking) -> Text | None:
    """What another model said or thought, as words; its signatures mean nothing here."""
    if isinstance(part, Text):
        return Text(text=part.text) if part.text.strip() else None
    return Text(text=part.thinking) if part.thinking.strip() and not part.redacted else None


def _answer(call: ToolCall, result: ToolResult | None) -> ToolMessage:
    if result is None:
        result = ToolResult(tool_call_id=call.tool_call_id, tool_name=call.name, content=NO_RESULT, is_error=True)
    return ToolMessage(result=msgspec.structs.replace(result, tool_call_id=call.tool_call_id, tool_name=call.name))


def _without_system(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if not isinstance(message, SystemMessage):
            yield message
        elif message.content.strip():
            yield UserMessage(content=f"<system>{message.content}</system>")


def _fingerprint(text: str, length: int) -> str:
    """`length` hexadecimal digits that stand for the text."""
    digest = hashlib.shake_256(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest((length + 1) // 2)[:length]
