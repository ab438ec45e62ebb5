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
_BROKEN: Final = ("error", "aborted")


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
    places = _skipping({0}, logged)
    agreed = 0 if len(logged) in places else None
    known = 0
    for count, message in enumerate(given, 1):
        places = _skipping(_following(places, message, logged), logged)
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
    what = "messages ends before the conversation of this session does"
    if known < len(given):
        what = f"messages[{known}] is not what the log of this session has there"
    raise InvalidRequest(what, hint="Send only the new words, or the whole conversation, or name a new session.")


def _following(places: set[int], message: Message, logged: Sequence[Message]) -> set[int]:
    """The places in the log after `message`, when it may be at any of these."""
    found = {place + 1 for place in places if place < len(logged) and _is_same(message, logged[place])}
    if isinstance(message, AssistantMessage) and not message.tool_calls():
        for place in places:
            found.update(_joined_turns(_words(message), place, logged))
    return found


def _joined_turns(words: str, place: int, logged: Sequence[Message]) -> Iterator[int]:
    """Where turns from `place` on end that say just these words together."""
    said = ""
    for at in range(place, len(logged)):
        turn = logged[at]
        if not isinstance(turn, AssistantMessage | ToolMessage):
            return
        said += _words(turn) if isinstance(turn, AssistantMessage) else ""
        if not words.startswith(said):
            return
        if said == words:
            yield at + 1


def _skipping(places: set[int], logged: Sequence[Message]) -> set[int]:
    """These places, and those behind messages that a client need not know."""
    reached = set(places)
    for place in sorted(places):
        at = place
        while at < len(logged) and _may_be_unknown(logged[at]):
            at += 1
            if at in reached:
                break
            reached.add(at)
    return reached


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
