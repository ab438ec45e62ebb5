"""What a session of a harness reports: eight kinds of events, as flat JSON objects with a `kind` (DM-EVT-001).

The union is closed: `encode_event` accepts exactly the classes of this module. A stream is one `init`, then any number
of others, then one `result` or `error`, and then it ends (DM-PROV-003). Texts are whole messages, not deltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from makai.core.errors import InvalidRequest, MissingEventKind, UnknownEventKind
from makai.harness.contract.shapes import ContractShape, always, decode_object, shape_from

EventKind: TypeAlias = Literal[
    "init", "system", "assistant_text", "tool_use", "tool_result", "tool_progress", "result", "error"
]
ToolCategory: TypeAlias = Literal["filesystem", "shell", "network", "linear", "code-intel"]


_NO_COST: Final = 0.0


class CostData(ContractShape, frozen=True, kw_only=True):
    """What a session used. A harness fills in what it knows."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    total_cost_usd: float = _NO_COST
    num_turns: int = 0

    def __post_init__(self) -> None:
        if not self.total_cost_usd:  # encoders omit a default by its identity
            msgspec.structs.force_setattr(self, "total_cost_usd", _NO_COST)


class HarnessEvent(ContractShape, frozen=True, kw_only=True, tag_field="kind", tag=""):
    """Base of the events, not an event itself. `raw`, the last field of each, is what the agent's own program reported:
    opaque to readers."""

    @property
    def kind(self) -> EventKind:
        return self.__struct_config__.tag  # type: ignore[return-value]


class InitEvent(HarnessEvent, frozen=True, kw_only=True, tag="init"):
    """The session exists. `session_id` is the harness' own id, which `resume` takes."""

    session_id: str
    raw: Any = None


class SystemEvent(HarnessEvent, frozen=True, kw_only=True, tag="system"):
    """A notice about the session itself, such as `compaction` or `rate_limited`."""

    subtype: str
    message: str = ""
    raw: Any = None


class AssistantTextEvent(HarnessEvent, frozen=True, kw_only=True, tag="assistant_text"):
    text: str
    raw: Any = None


class ToolUseEvent(HarnessEvent, frozen=True, kw_only=True, tag="tool_use"):
    """The agent calls a tool. `tool_use_id` pairs the call with its result."""

    tool_name: str
    tool_use_id: str = ""
    input: Mapping[str, Any] = always(dict)
    tool_category: ToolCategory | None = None
    raw: Any = None


class ToolResultEvent(HarnessEvent, frozen=True, kw_only=True, tag="tool_result"):
    tool_name: str = ""
    """Empty when the harness reports only the id of the call."""
    tool_use_id: str = ""
    content: str = always(str)
    is_error: bool = always(bool)
    raw: Any = None


class ToolProgressEvent(HarnessEvent, frozen=True, kw_only=True, tag="tool_progress"):
    tool_name: str
    elapsed_seconds: float = always(float)
    raw: Any = None


class ResultEvent(HarnessEvent, frozen=True, kw_only=True, tag="result"):
    """The end of a session, with or without success."""

    success: bool
    message: str = ""
    errors: tuple[str, ...] = ()
    error_subtype: str = ""
    """Of the harness, such as `error_max_turns`."""
    cost: CostData | None = None
    raw: Any = None


class AgentErrorEvent(HarnessEvent, frozen=True, kw_only=True, tag="error"):
    """A failure that the session does not survive: the last event of a stream that has no `result`."""

    message: str
    code: str = ""
    cost: CostData | None = None
    """What the session used before it failed; None when that is nothing, or not known."""
    raw: Any = None


ErrorEvent: TypeAlias = AgentErrorEvent
"""Its name in the contract. Class names are unique in makai, and an SDK has another `ErrorEvent`."""
Event: TypeAlias = (
    InitEvent
    | SystemEvent
    | AssistantTextEvent
    | ToolUseEvent
    | ToolResultEvent
    | ToolProgressEvent
    | ResultEvent
    | AgentErrorEvent
)
TerminalEvent: TypeAlias = ResultEvent | AgentErrorEvent
_CLASSES: Final[Mapping[str, type[Event]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}


def is_terminal(event: Event) -> bool:
    """Whether no event may follow this one."""
    return isinstance(event, ResultEvent | AgentErrorEvent)


def encode_event(event: Event) -> bytes:
    """One flat JSON object with `kind`. Raises `InvalidRequest` for objects of other classes (DM-EVT-004)."""
    if type(event) not in _CLASSES.values():
        raise InvalidRequest(f"{type(event).__qualname__} is not an event of the contract.")
    try:
        return msgspec.json.encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The {event.kind} event cannot be written as JSON: {error}.") from error


def decode_event(data: bytes | str) -> Event:
    """The event that `encode_event` wrote. Raises `MissingEventKind`, `UnknownEventKind` or another `ParseError`."""
    value = decode_object(data)
    match value.get("kind"):
        case None | "":
            raise MissingEventKind("The event has no kind.")
        case str(kind) if (event_class := _CLASSES.get(kind)) is not None:
            return shape_from(value, event_class)
        case kind:
            raise UnknownEventKind(f"There is no event of the kind {str(kind)[:100]!r}.", kind=str(kind))
