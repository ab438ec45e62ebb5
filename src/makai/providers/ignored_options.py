"""Finds the options of a request that its API leaves out, so that the user can be told.

An API decides by model and by the other options what it sends (no temperature beside reasoning, one of two sampling
options, no forced tool). This asks the API itself: an option that makes no difference to the request is not sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from makai.core.messages import UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import StreamOptions
from makai.core.stream_events import Keepalive
from makai.providers.base import Api, ProviderRequest

OPTION_IGNORED: Final = "option_ignored"
_OTHER_SCHEMA: Final = '{"type":"object","title":"makai"}'
_DEFAULTS: Final = StreamOptions()
_PLAIN: Final = ("temperature", "top_p", "reasoning_effort", "tool_choice", "cache_retention")
"""Options that make a difference to the default, or none at all. `session_id` only helps a vendor's cache, and
`account` chose the credential."""


def ignored_options(api: Api, request: ProviderRequest) -> tuple[str, ...]:
    """The names of the options that the caller set and `api` does not send. Costs nothing when none is set."""
    if request.options == _DEFAULTS:
        return ()
    # The words of a conversation do not decide which options are sent, and may be long.
    short = msgspec.structs.replace(request.context, messages=(UserMessage(content="Hi"),))
    sample = msgspec.structs.replace(request, context=short)
    sent: bytes | None = None
    ignored: dict[str, None] = {}
    for name, changes in _changes(request.options, request.model):
        sent = sent or api.request(sample).body
        others = (msgspec.structs.replace(sample.options, **change) for change in changes)
        if all(api.request(msgspec.structs.replace(sample, options=other)).body == sent for other in others):
            ignored[name] = None
    return tuple(ignored)


def notice_of(model: Model, ignored: tuple[str, ...]) -> Keepalive:
    listed = ", ".join(f"`{name}`" for name in ignored)
    note = f"{model.provider} does not take {listed} for {model.id} in this request: it was sent without."
    return Keepalive(OPTION_IGNORED, note, "warning")


def _changes(options: StreamOptions, model: Model) -> Iterator[tuple[str, tuple[dict[str, Any], ...]]]:
    """Each option that is set, with changes of which at least one must show in the request."""
    for name in _PLAIN:
        default = getattr(_DEFAULTS, name)
        if getattr(options, name) != default and not _asks_for_nothing(options, name, model):
            yield name, ({name: default},)
    if options.max_tokens is not None:
        yield "max_tokens", ({"max_tokens": None}, {"max_tokens": 1})
    if options.json_schema is not None:
        yield "json_schema", ({"json_schema": _OTHER_SCHEMA},)
    for sequence in options.stop:
        yield "stop", ({"stop": tuple(other for other in options.stop if other != sequence)},)
    for key in options.metadata:
        others = {name: value for name, value in options.metadata.items() if name != key}
        yield f"metadata.{key}", ({"metadata": others},)


def _asks_for_nothing(options: StreamOptions, name: str, model: Model) -> bool:
    """Whether leaving the option out does what it asks for."""
    if name == "tool_choice":
        return options.tool_choice is not None and options.tool_choice.mode == "auto"
    return name == "reasoning_effort" and options.reasoning_effort == "off" and not model.can(ModelCapability.REASONING)
