"""Fits pictures and recordings of a conversation to the model that is asked: what it does not take becomes a note in
words, so that no old message makes a later one fail. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from makai.catalog.inputs import Medium, is_taken, not_taken, placeholder
from makai.catalog.resolver import Resolver
from makai.core.content import Audio, Image, SessionPart, Text, UserPart
from makai.core.messages import Message, ToolMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context

Replace: TypeAlias = Callable[[Medium], str | None]
"""The words for a part, or None where it stays."""


def media_of(message: Message) -> Iterator[Medium]:
    content = message.result.content if isinstance(message, ToolMessage) else message.content
    if not isinstance(content, str):
        yield from (part for part in content if isinstance(part, Image | Audio))


def without_media(message: Message, replace: Replace) -> Message:
    """The message with words in the place of parts."""
    if isinstance(message, ToolMessage) and not isinstance(message.result.content, str):
        kept = tuple(_part(part, replace) for part in message.result.content)
        result = msgspec.structs.replace(message.result, content=kept)
        return msgspec.structs.replace(message, result=result)
    if isinstance(message, UserMessage) and not isinstance(message.content, str):
        return msgspec.structs.replace(message, content=tuple(_part(part, replace) for part in message.content))
    return message


def check_input(resolver: Resolver, model: Model, content: str | tuple[SessionPart, ...]) -> None:
    """Raise `InvalidRequest` for a message with a part that the model is known not to take."""
    for part in content if not isinstance(content, str) else ():
        if isinstance(part, Image | Audio) and not is_taken(resolver, model, part):
            raise not_taken(resolver, model, part)


def fitted(context: Context, resolver: Resolver, model: Model) -> Context:
    """The conversation as the model takes it. Raises `InvalidRequest` when the newest message, which asks something
    about the part, cannot be sent; earlier ones are changed."""
    if not any(True for message in context.messages for _ in media_of(message)):
        return context
    newest = context.messages[-1]
    if isinstance(newest, UserMessage):
        check_input(resolver, model, newest.content)

    def replace(part: Medium) -> str | None:
        return None if is_taken(resolver, model, part) else placeholder(model, part)

    return msgspec.structs.replace(context, messages=tuple(without_media(each, replace) for each in context.messages))


def _part(part: UserPart, replace: Replace) -> UserPart:
    words = replace(part) if isinstance(part, Image | Audio) else None
    return part if words is None else Text(text=words)
