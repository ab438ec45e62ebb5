"""What a session and its newest run look like to a client: the engine's `SessionState` -> parts of frames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from makai.core.content import Image, SessionPart, Text, for_model
from makai.core.session_events import UsageReported
from makai.core.usage import Usage
from makai.protocols.minicodex import frames
from makai.protocols.minicodex.vocabulary import SERVER_CAPABILITIES, VERSION, PastedImage
from makai.sessions import state as engine

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END_OF_TIME: Final = 253_402_300_799_999
"""The last millisecond RFC 3339 can write."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def rfc3339(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=min(max(milliseconds, 0), _END_OF_TIME))
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def session_state(session_id: str, state: engine.SessionState) -> frames.SessionStatePart:
    run = state.run
    is_active = run is not None and not run.settled and run.status not in ("finished", "error")
    return frames.SessionStatePart(
        session_id=session_id,
        version=VERSION,
        capabilities=SERVER_CAPABILITIES,
        last_event_id=last_event_id(state) or None,
        active_run_id=run.run_id if run is not None and is_active else None,
        run_counter=state.run_counter,
    )


def last_event_id(state: engine.SessionState) -> int:
    """The last event, 0 when there is none. That the session exists is no event for its clients (MC-EVT-001)."""
    return state.last_event_id if state.last_event_id > 1 else 0


def run_state(run: engine.Run, window: tuple[frames.TranscriptItem, ...] | UnsetType = UNSET) -> frames.RunState:
    return frames.RunState(
        run_id=run.run_id,
        status=run.status,
        started_at=rfc3339(run.started_at),
        finished_at=None if run.finished_at is None else rfc3339(run.finished_at),
        pending_approvals=tuple(
            frames.ApprovalBrief(call_id=call.call_id, tool_key=call.name, args=arguments(call.arguments_json))
            for call in run.pending()
        ),
        last_event_id=run.last_event_id,
        transcript_window=window,
    )


def session_details(session_id: str, state: engine.SessionState, usage: UsageReported | None) -> frames.SessionDetails:
    """What makai.1 knows besides."""
    return frames.SessionDetails(
        session_id=session_id,
        title=state.title,
        model_ref=state.model_ref,
        mode=state.mode,
        sandbox=state.terms.sandbox,
        harness=state.harness,
        created_at=rfc3339(state.created_at),
        closed=state.closed,
        waiting=tuple(
            frames.WaitingInput(
                input_id=waiting.input_id,
                text=words(waiting.content),
                delivery=waiting.delivery,
                client_msg_id=present(waiting.client_msg_id),
                images=images(waiting.content),
            )
            for waiting in state.waiting
        ),
        cwd=present(state.cwd),
        archived=state.archived or UNSET,
        reasoning_effort=present(state.terms.reasoning_effort),
        forked_from=present(state.forked_from),
        usage=usage.total if usage else state.usage if state.usage != Usage() else UNSET,
        context_tokens=present(usage.context_tokens) if usage else UNSET,
        context_window=present(usage.context_window) if usage else UNSET,
    )


def arguments(arguments_json: str) -> dict[str, Any]:
    """What a model wrote as an object; what is none is shown as it was written, never as if it were empty."""
    found = as_object(arguments_json)
    return {"arguments_json": arguments_json} if found is None else found


def as_object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def words(content: str | tuple[SessionPart, ...]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in map(for_model, content) if isinstance(part, Text))


def images(content: str | tuple[SessionPart, ...]) -> tuple[PastedImage, ...] | UnsetType:
    if isinstance(content, str):
        return UNSET
    found = tuple(PastedImage(data=part.data, mime_type=part.mime_type) for part in content if isinstance(part, Image))
    return found or UNSET


def present(value: Any) -> Any:
    return UNSET if value is None else value
