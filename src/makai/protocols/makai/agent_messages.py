"""What an `agent_message` adds to a session, and the terms of its run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from makai.core.content import Audio, Image, Text, UserPart
from makai.core.errors import InvalidRequest
from makai.core.request import StreamOptions, ToolDefinition
from makai.core.session_events import RunTerms
from makai.protocols.makai.agent_payloads import AgentOptions, AgentStart
from makai.protocols.makai.messages import parts_of
from makai.protocols.makai.payloads import ChatMessage, RequestOptions


def check_start(wanted: AgentStart) -> None:
    """What can be said about a start without knowing any session; raises `InvalidRequest`."""
    if wanted.model_ref is None and not wanted.resume:
        raise InvalidRequest("agent_start needs model_ref")
    if wanted.after_event_id is not None and not wanted.resume:
        raise InvalidRequest("after_event_id needs resume: a new session has no events")
    if wanted.builtin_tools and not wanted.resume and wanted.cwd is None:
        raise InvalidRequest("builtin_tools need a cwd to work in")
    if wanted.cwd is not None and not wanted.cwd.startswith("/"):
        raise InvalidRequest("cwd is not an absolute path")
    _check_tools(wanted.tools or ())


def _check_tools(tools: Sequence[ToolDefinition]) -> None:
    """MK-TOOL-001: a schema that is not valid JSON is rejected, and before anything is asked of a model."""
    names: set[str] = set()
    for tool in tools:
        if not tool.name or tool.name in names:
            raise InvalidRequest(f"tools: every tool has a name of its own, and {tool.name!r} is not one")
        names.add(tool.name)
        try:
            msgspec.json.decode(tool.parameters_schema_json, type=dict[str, object])
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"tools: parameters_schema_json of {tool.name!r} is not a JSON object: {error}"
            ) from None


def words_of(messages: Sequence[ChatMessage], *, has_history: bool) -> str | tuple[UserPart, ...]:
    """What a message adds to a session: "appends only what follows the last assistant message; anything
    else is `invalid_request`"."""
    answered = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    if answered >= 0 and not has_history:
        raise InvalidRequest(
            "a new session begins with what the user says, not with an assistant's message",
            hint="Continue a conversation by naming its session.",
        )
    parts: list[UserPart] = []
    texts: list[str] = []
    for place, message in enumerate(messages[answered + 1 :], answered + 1):
        if message.role != "user":
            hint = "Instructions are the system_prompt of agent_start." if message.role != "tool" else None
            raise InvalidRequest(f"messages[{place}]: only a user's messages can be added to a session", hint=hint)
        said = parts_of(message)
        own = tuple(part for part in said if isinstance(part, Text | Image | Audio))
        if len(own) != len(said):
            raise InvalidRequest(f"messages[{place}]: a user message holds text, images and audio only")
        parts.extend(own)
        texts.extend([message.content] if isinstance(message.content, str) else [])
    if not parts:
        raise InvalidRequest("messages holds nothing that follows the last assistant message")
    return "\n\n".join(texts) if len(texts) == len(parts) else tuple(parts)


def run_terms(options: AgentOptions) -> RunTerms:
    asking = {name: getattr(options, name) for name in RequestOptions.__struct_fields__}
    return RunTerms(
        options=StreamOptions(**asking),
        max_turns=options.max_turns,
        max_output_tokens=options.max_output_tokens,
        max_usd=options.max_usd,
        max_seconds=options.max_seconds,
        allow=options.allow,
        deny=options.deny,
    )
