"""An optional field that is null counts as absent, in every request and at every depth."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.wire import JSON

from makai.core.request import RequestOptions
from makai.protocols.makai.agent_payloads import AGENT_CLIENT_PAYLOADS, AgentOptions
from makai.protocols.makai.auth import AUTH_CLIENT_PAYLOADS
from makai.protocols.makai.payloads import CLIENT_PAYLOADS, ChatMessage, RequestContext, read_payload

MESSAGE: JSON = {"role": "user", "content": "Hi"}
SAMPLES: dict[str, JSON] = {
    "stream_request": {"context": {"messages": [MESSAGE]}},
    "complete_request": {"context": {"messages": [MESSAGE]}},
    "abort_request": {"target_stream_id": "s"},
    "agent_message": {"messages": [MESSAGE]},
    "tool_result": {"tool_call_id": "c", "content": "x"},
    "permission_response": {"tool_call_id": "c", "decision": "deny"},
    "auth_login_start": {"provider_id": "p"},
    "auth_prompt_response": {"flow_id": "f", "prompt_id": "p", "answer": ""},
    "auth_cancel": {"flow_id": "f"},
}
"""What the requests with required fields need."""
REQUESTS = CLIENT_PAYLOADS | AGENT_CLIENT_PAYLOADS | AUTH_CLIENT_PAYLOADS
PARTS: list[tuple[type[msgspec.Struct], JSON]] = [
    (RequestOptions, {}),
    (AgentOptions, {}),
    (ChatMessage, MESSAGE),
    (RequestContext, {"messages": [MESSAGE]}),
]


def optional(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind) if not field.required]


CASES = [
    (kind, sample, name)
    for kind, sample in [*((kind, SAMPLES.get(name, {})) for name, kind in REQUESTS.items()), *PARTS]
    for name in optional(kind)
]


@pytest.mark.parametrize(("kind", "sample", "name"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_null_counts_as_absent(kind: type[msgspec.Struct], sample: JSON, name: str) -> None:
    assert read_payload(sample | {name: None}, kind) == read_payload(sample, kind)


def test_null_counts_as_absent_in_parts_of_a_request() -> None:
    nulls: Any = {
        "model_ref": "a/b@c",
        "context": {"messages": [MESSAGE | {"name": None}], "tools": None, "system_prompt": None},
        "options": {"temperature": None, "metadata": None, "stop": None},
        "tools": None,
    }
    plain = {"model_ref": "a/b@c", "context": {"messages": [MESSAGE]}}
    kind = CLIENT_PAYLOADS["stream_request"]
    assert read_payload(nulls, kind) == read_payload(plain, kind)


@pytest.mark.parametrize(
    "payload", [{"context": None}, {"context": {"messages": None}}, {"context": {"messages": [None]}}]
)
def test_null_for_what_is_needed_is_refused(payload: JSON) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_payload(payload, CLIENT_PAYLOADS["stream_request"])
