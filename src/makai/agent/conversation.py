"""The conversation of a run while it grows, and how long it is. Every tool call in it has a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from makai.core.content import Audio, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from makai.core.usage import Usage
from makai.providers.media import Replace, media_of, without_media
from makai.providers.preparation import NO_RESULT

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_MEDIUM = 1_500
"""About what vendors count for a picture."""
_TOKENS_PER_MESSAGE = 4
_BROKEN = ("error", "aborted")


class Conversation:
    """Messages with their places. It only grows, except when its older part is replaced by a summary."""

    def __init__(self, messages: Sequence[Message], places: Sequence[int]) -> None:
        if len(messages) != len(places):
            raise AssertionError("every message has a place")
        self.messages = list(messages)
        self.places = list(places)
        self._counted_tokens: int | None = None
        """What the provider counted for the first `_counted` messages."""
        self._counted = 0

    def fill_in_results(self) -> None:
        """Give every call a result: a conversation that was interrupted earlier must not make this run fail."""
        before, places = self.messages, self.places
        self.messages, self.places = [], []
        for index, (message, place) in enumerate(zip(before, places, strict=True)):
            self.add((message,), place)
            if isinstance(message, AssistantMessage) and message.stop_reason not in _BROKEN:
                self.add(map(_no_result, _unanswered(message, before, index + 1)), place)

    def add_answer(self, message: AssistantMessage, results: Sequence[ToolMessage], place: int) -> None:
        """A whole turn: what the model said, and one result for each of its calls, in their order."""
        called = [call.tool_call_id for call in message.tool_calls()]
        if called != [result.result.tool_call_id for result in results]:
            raise AssertionError("every call of a turn has its result before the model is asked again")
        if message.content:
            self.add((message,), place)
            self._counted = len(self.messages)
            self._counted_tokens = context_tokens(message.usage)
            self.add(results, place)

    def add(self, messages: Iterable[Message], place: int) -> None:
        for message in messages:
            self.messages.append(message)
            self.places.append(place)

    def replace_older(self, count: int, summary: UserMessage) -> None:
        through = max(self.places[:count])
        self.messages[:count] = [summary]
        self.places[:count] = [through]
        self._counted_tokens, self._counted = None, 0

    def drop_media(self, replace: Replace) -> bool:
        """Replace pictures and recordings, but for those of the user's newest message; False when there is none."""
        newest = max((at for at, each in enumerate(self.messages) if isinstance(each, UserMessage)), default=None)
        found = [at for at, message in enumerate(self.messages) if at != newest and any(media_of(message))]
        for at in found:
            self.messages[at] = without_media(self.messages[at], replace)
        return bool(found)

    def asks_with_media(self) -> bool:
        """Whether the newest message of the user has a picture or a recording."""
        newest = next((each for each in reversed(self.messages) if isinstance(each, UserMessage)), None)
        return newest is not None and any(media_of(newest))

    def tokens(self) -> int:
        """About how long it is: what the provider counted, and an estimate for what came since."""
        return (self._counted_tokens or 0) + estimated_tokens(self.messages[self._counted :])


def context_tokens(usage: Usage) -> int | None:
    """How much of the context window a turn filled, or None when its provider does not count."""
    return usage.input + usage.cache_read + usage.cache_write + usage.output or None


def estimated_tokens(messages: Iterable[Message]) -> int:
    return sum(_message_tokens(message) for message in messages)


def _message_tokens(message: Message) -> int:
    content = message.result.content if isinstance(message, ToolMessage) else message.content
    characters = media = 0
    for part in (Text(text=content),) if isinstance(content, str) else content:
        match part:
            case Text(text=text) | Thinking(thinking=text):
                characters += len(text)
            case ToolCall(name=name, arguments_json=arguments_json):
                characters += len(name) + len(arguments_json)
            case Image() | Audio():
                media += 1
    return characters // CHARACTERS_PER_TOKEN + media * TOKENS_PER_MEDIUM + _TOKENS_PER_MESSAGE


def _unanswered(message: AssistantMessage, messages: Sequence[Message], after: int) -> list[ToolCall]:
    """The calls of a message that have no result before the next answer."""
    missing = list(message.tool_calls())
    for at in range(after, len(messages)):
        later = messages[at]
        if isinstance(later, AssistantMessage):
            break
        if isinstance(later, ToolMessage):
            answered = later.result.tool_call_id
            if (call := next((call for call in missing if call.tool_call_id == answered), None)) is not None:
                missing.remove(call)
    return missing


def _no_result(call: ToolCall) -> ToolMessage:
    return ToolMessage(
        result=ToolResult(tool_call_id=call.tool_call_id, tool_name=call.name, content=NO_RESULT, is_error=True)
    )
