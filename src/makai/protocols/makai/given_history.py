"""What the messages of an `agent_message` add to a session, sans-IO. A client sends either new words, or the whole
conversation as it knows it (MK-AGENT-016, MK-AGENT-022): that must agree with the log of the session, and what it has
beyond the log is added.

Clients do not see everything. Turns that called tools, and answers that broke off, may be missing in what they send,
and the texts of several turns may stand in one message. Thinking, signatures and tool ids are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from makai.protocols.makai.messages import conversation_of
from makai.protocols.makai.payloads import ChatMessage

MAX_MESSAGES: Final = 5_000
"""In one request; each becomes an event of the log."""
MAX_STEPS: Final = 1_000_000
"""What one comparison may cost: some tenths of a second. A history of 5,000 messages needs about 100,000."""
_BROKEN: Final = ("error", "aborted")
_WHAT_TO_SEND: Final = "Send only the new words, or the whole conversation, or name a new session."


def given_messages(chat: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The messages of a request; raises `InvalidRequest` unless they are a well-formed conversation."""
    if len(chat) > MAX_MESSAGES:
        raise InvalidRequest(f"at most {MAX_MESSAGES:,} messages can be sent at once")
    messages = conversation_of(chat)
    calls: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update(call.tool_call_id for call in message.tool_calls())
        elif isinstance(message, ToolMessage) and message.result.tool_call_id not in calls:
            raise InvalidRequest(f"no message before it calls the tool of result {message.result.tool_call_id!r}")
    return messages


def are_new_words(given: Sequence[Message]) -> bool:
    """Whether a client may mean these as an addition to what the session knows."""
    return all(isinstance(message, UserMessage) for message in given)


def added_messages(given: tuple[Message, ...], logged: Sequence[Message]) -> tuple[Message, ...]:
    """What a request adds to the conversation of the log; nothing when it repeats it, so that it is answered again.
    Raises `InvalidRequest` when the two do not agree."""
    log = _Log(logged)
    places = log.skipping({0})
    agreed = 0 if len(logged) in places else None
    known = 0
    for count, message in enumerate(given, 1):
        places = log.skipping(log.following(places, message))
        if len(logged) in places:
            agreed = count
        if not places:
            break
        known = count
    if agreed is not None:
        is_broken_off = agreed == len(given) and logged and isinstance(logged[-1], AssistantMessage)
        if is_broken_off and isinstance(given[-1], UserMessage):
            return given[-1:]  # models do not answer after half an answer, so the question is asked again
        return given[agreed:]
    if are_new_words(given):
        return given
    if known == len(given) and isinstance(given[-1], UserMessage) and log.is_only_answered_after(places):
        return given[-1:]  # the request of a client that lost its connection, sent again (MK-SDK-033)
    what = "messages ends before the conversation of this session does"
    if known < len(given):
        what = f"messages[{known}] is not what the log of this session has there"
    raise InvalidRequest(what, hint=_WHAT_TO_SEND)


class _Log:
    """The conversation of a log, to be compared within a bounded number of steps: almost every message of a hostile
    one may be unknown to the client, and then each could be anywhere."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._words = [_words(turn) if isinstance(turn, AssistantMessage) else "" for turn in messages]
        self._steps_left = MAX_STEPS

    def following(self, places: set[int], message: Message) -> set[int]:
        """The places after `message`, when it may be at any of these."""
        end = len(self._messages)
        self._count(len(places) * (10 + _length(message) // 1_000))
        found = {place + 1 for place in places if place < end and _is_same(message, self._messages[place])}
        if isinstance(message, AssistantMessage) and not message.tool_calls():
            if not (words := _words(message)):
                return found | places  # it says nothing, so it is nowhere and everywhere
            for place in places:
                found.update(self._joined_turns(words, place))
        return found

    def _joined_turns(self, words: str, place: int) -> Iterator[int]:
        """Where turns from `place` on end that say just these words together."""
        said = 0
        for at in range(place, len(self._messages)):
            self._count(1)
            if not isinstance(self._messages[at], AssistantMessage | ToolMessage):
                return
            if not words.startswith(self._words[at], said):
                return
            said += len(self._words[at])
            if said == len(words):
                yield at + 1

    def skipping(self, places: set[int]) -> set[int]:
        """These places, and those behind messages that a client need not know."""
        reached = set(places)
        for place in sorted(places):
            at = place
            while at < len(self._messages) and _may_be_unknown(self._messages[at]):
                self._count(1)
                at += 1
                if at in reached:
                    break
                reached.add(at)
        return reached

    def is_only_answered_after(self, places: set[int]) -> bool:
        """Whether nothing but an answer follows one of these places."""
        rest = self._messages[max(places) :]
        return all(isinstance(message, AssistantMessage | ToolMessage) for message in rest)

    def _count(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise InvalidRequest("messages cannot be compared with the log of this session", hint=_WHAT_TO_SEND)


def _may_be_unknown(message: Message) -> bool:
    match message:
        case ToolMessage():
            return True
        case AssistantMessage():
            return bool(message.tool_calls()) or message.stop_reason in _BROKEN or not _words(message)
        case _:
            return False


def _is_same(given: Message, logged: Message) -> bool:
    match given, logged:
        case SystemMessage(), SystemMessage():
            return _squeezed(given.content) == _squeezed(logged.content)
        case UserMessage(), UserMessage():
            media = [[part for part in message.parts() if not isinstance(part, Text)] for message in (given, logged)]
            return _words(given) == _words(logged) and media[0] == media[1]
        case AssistantMessage(), AssistantMessage():
            return _words(given) == _words(logged) and _calls(given) == _calls(logged)
        case ToolMessage(), ToolMessage():
            return _squeezed(given.result.text()) == _squeezed(logged.result.text())
        case _:
            return False


def _length(message: Message) -> int:
    match message:
        case SystemMessage():
            return len(message.content)
        case ToolMessage():
            return len(message.result.text())
        case _:
            return len(_words(message))


def _calls(message: AssistantMessage) -> list[tuple[str, Any]]:
    return [(call.name, _value(call.arguments_json)) for call in message.tool_calls()]


def _value(arguments_json: str) -> Any:
    try:
        return msgspec.json.decode(arguments_json or "{}")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments_json


def _words(message: UserMessage | AssistantMessage) -> str:
    parts = message.parts() if isinstance(message, UserMessage) else message.content
    return _squeezed("".join(part.text for part in parts if isinstance(part, Text)))


def _squeezed(text: str) -> str:
    """Without white space: how blocks of text are joined is the client's choice."""
    return "".join(text.split())
