"""Every message of ACP as the official schema has it: read, written again, and refused when it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from support.acp_examples import (
    JSON,
    definitions,
    is_nullable,
    is_object,
    is_valid,
    shapes,
    without_unknown,
    wrong_values,
)

from makai.core.errors import ParseError
from makai.wire import strict_json
from makai.wire.acp import client_calls, common, connecting, methods, sessions, updates

RENAMED: dict[str, Any] = {
    **dict.fromkeys(
        (
            "AuthenticateResponse", "BooleanConfigOptionCapabilities", "CloseSessionResponse", "CompactionCapabilities",
            "DeleteSessionResponse", "ElicitationFormCapabilities", "ElicitationUrlCapabilities",
            "KillTerminalResponse", "LogoutCapabilities", "LogoutResponse", "NoticeCapabilities",
            "ReleaseTerminalResponse", "SessionAdditionalDirectoriesCapabilities", "SessionCloseCapabilities",
            "SessionDeleteCapabilities", "SessionListCapabilities", "SessionResumeCapabilities",
            "SetSessionModeResponse", "WriteTextFileResponse",
        ),
        common.Empty,
    ),
    **dict.fromkeys(("LoadSessionResponse", "ResumeSessionResponse"), sessions.SessionSettings),
    **dict.fromkeys(("CancelNotification", "CloseSessionRequest", "DeleteSessionRequest"), sessions.SessionRequest),
    **dict.fromkeys(
        ("KillTerminalRequest", "ReleaseTerminalRequest", "TerminalOutputRequest", "WaitForTerminalExitRequest"),
        client_calls.TerminalRequest,
    ),
    **dict.fromkeys(("TerminalExitStatus", "WaitForTerminalExitResponse"), client_calls.TerminalExit),
    **dict.fromkeys(("EnvVariable", "HttpHeader"), common.NameValue),
    "AuthCapabilities": connecting.ClientAuthCapabilities,
    "AvailableCommandInput": updates.CommandInput,
    "ClientCapabilities": connecting.AcpClientCapabilities,
    "CompleteElicitationNotification": client_calls.CompleteElicitation,
    "ContentBlock": common.ContentBlock,
    "EmbeddedResourceResource": common.ResourceContents,
    "PlanEntry": updates.PlanItem,
    "RequestPermissionOutcome": client_calls.SelectedOutcome | client_calls.CancelledOutcome,
    "SessionConfigOption": sessions.ConfigOption,
    "SessionConfigOptionsCapabilities": connecting.BooleanOptions,
    "SessionConfigSelectGroup": sessions.SelectValue,
    "SessionConfigSelectOption": sessions.SelectValue,
    "SessionInfo": sessions.ListedSession,
    "SessionUpdate": updates.SessionUpdate,
    "SetSessionConfigOptionRequest": sessions.SetConfigOptionRequest,
    "SetSessionConfigOptionResponse": sessions.SetConfigOptionResponse,
    "SetSessionModeRequest": sessions.SetModeRequest,
    "TerminalOutputResponse": client_calls.TerminalOutput,
    "ToolCallContent": updates.ToolCallContent,
    "ToolCallLocation": updates.Location,
    "ToolCallUpdate": updates.ToolCallFields,
}  # fmt: skip
"""The models whose names differ from those of the schema."""

CARRIED_NULLS = {("session_info_update", "title"), ("session_info_update", "updatedAt"), (None, "requestId")} | {
    (update, raw) for update in (None, "tool_call", "tool_call_update") for raw in ("rawInput", "rawOutput")
}
"""Members in which null differs from an absent member: it clears a value, or is a value of the caller."""

ENVELOPES = {
    "AgentNotification", "AgentRequest", "AgentResponse", "CancelRequestNotification", "ClientNotification",
    "ClientRequest", "ClientResponse", "Error", "ExtNotification", "ExtRequest", "ExtResponse",
}  # fmt: skip
"""What `wire.json_rpc` reads and writes for every protocol."""

RAW = {
    "BooleanPropertySchema", "ElicitationPropertySchema", "ElicitationSchema", "EnumOption", "IntegerPropertySchema",
    "MultiSelectItems", "MultiSelectPropertySchema", "NumberPropertySchema", "StringMultiSelectItems",
    "StringPropertySchema", "TitledMultiSelectItems",
}  # fmt: skip
"""Parts of a JSON Schema that is carried as it is."""


def model_of(name: str) -> Any:
    """The model of a definition; None when there is none, or only one with the tag that a union gives it."""
    if name in RENAMED:
        return RENAMED[name]
    modules = (common, connecting, sessions, client_calls, updates)
    for found in (vars(module).get(name) for module in modules):
        if isinstance(found, type) and issubclass(found, common.Wire) and found.__struct_config__.tag is None:
            return found
    return None


def decoder_of(name: str) -> Callable[[bytes], Any]:
    if name == "McpServer":
        return lambda data: sessions.mcp_server(msgspec.Raw(data))
    decoder = msgspec.json.Decoder(model_of(name))

    def decode(data: bytes) -> Any:
        message = strict_json.decode_with(decoder, data)
        for raw in getattr(message, "mcp_servers", ()):
            sessions.mcp_server(raw)
        return message

    return decode


def is_part(name: str) -> bool:
    """Whether a definition is a part of others and has no model of its own: a content block without its tag."""
    inlined: set[str] = set()
    for other in definitions():
        if other != name and (other == "McpServer" or (other not in ENVELOPES and model_of(other) is not None)):
            shapes(definitions()[other], inlined)
    return name in inlined


OBJECTS = sorted(
    name for name, schema in definitions().items() if is_object(schema) and name not in ENVELOPES and name not in RAW
)
MODELLED = [name for name in OBJECTS if name == "McpServer" or model_of(name) is not None]


def encoded(example: JSON) -> bytes:
    return msgspec.json.encode(example)


def refuses(name: str, example: JSON) -> bool:
    try:
        decoder_of(name)(encoded(example))
    except ParseError:
        return True
    return False


@pytest.mark.req("ACP-INIT-007")
def test_every_struct_of_the_schema_has_a_model() -> None:
    assert [name for name in OBJECTS if name not in MODELLED and not is_part(name)] == []


@pytest.mark.req("ACP-INIT-003", "ACP-INIT-007")
def test_every_method_of_the_schema_has_its_type() -> None:
    tables = {
        "agent": methods.AGENT_REQUESTS | methods.AGENT_NOTIFICATIONS,
        "client": methods.CLIENT_REQUESTS | methods.CLIENT_NOTIFICATIONS,
    }
    received = {"SessionNotification": updates.ReceivedUpdate}
    for name, schema in definitions().items():
        if name.endswith("Response") or (side := schema.get("x-side")) not in tables:
            continue
        assert tables[side][schema["x-method"]] is received.get(name, model_of(name)), name
    assert methods.AGENT_REQUESTS["session/set_model"] is sessions.SetModelRequest  # no longer in the schema


@pytest.mark.proof("E6")
@pytest.mark.req("ACP-INIT-007", "ACP-INIT-009", "ACP-EXT-003", "ACP-PROMPT-004", "ACP-PROMPT-005")
@pytest.mark.parametrize("name", MODELLED)
def test_a_message_is_read_and_written_again_unchanged(name: str) -> None:
    decode = decoder_of(name)
    for shape in shapes(definitions()[name]):
        for full in (False, True):
            example = shape.example(full=full)
            if is_valid(name, example):
                again = msgspec.json.decode(msgspec.json.encode(decode(encoded(example))))
                assert again == example
    assert any(is_valid(name, shape.example(full=True)) for shape in shapes(definitions()[name]))


@pytest.mark.req("ACP-INIT-007")
@pytest.mark.parametrize("name", MODELLED)
def test_a_message_without_a_required_member_is_refused(name: str) -> None:
    for shape in shapes(definitions()[name]):
        example = shape.example(full=True)
        for left_out in shape.required:
            wrong = {key: value for key, value in example.items() if key != left_out}
            assert is_valid(name, wrong) or refuses(name, wrong), wrong


@pytest.mark.req("ACP-INIT-007")
@pytest.mark.parametrize("name", MODELLED)
def test_a_message_with_a_member_of_a_wrong_type_is_refused(name: str) -> None:
    for shape in shapes(definitions()[name]):
        example = shape.example(full=True)
        for key, schema in shape.properties.items():
            for value in wrong_values(schema):
                wrong = {**example, key: value}
                assert is_valid(name, wrong) or refuses(name, wrong), wrong


@pytest.mark.req("ACP-INIT-008")
@pytest.mark.parametrize("name", MODELLED)
def test_members_that_are_not_known_are_ignored(name: str) -> None:
    decode = decoder_of(name)
    for shape in shapes(definitions()[name]):
        example = shape.example(full=True)
        if is_valid(name, example):
            again = msgspec.json.encode(decode(encoded(shape.example(full=True, unknown=True))))
            assert without_unknown(msgspec.json.decode(again)) == example


@pytest.mark.req("ACP-INIT-009")
@pytest.mark.parametrize("name", MODELLED)
def test_null_is_read_where_the_schema_allows_it_and_never_written_elsewhere(name: str) -> None:
    decode = decoder_of(name)
    for shape in shapes(definitions()[name]):
        example = shape.example(full=True)
        for key, schema in shape.properties.items():
            if is_nullable(schema) and is_valid(name, with_null := {**example, key: None}):
                again = msgspec.json.decode(msgspec.json.encode(decode(encoded(with_null))))
                left_out = {member: value for member, value in example.items() if member != key}
                is_carried = (example.get("sessionUpdate"), key) in CARRIED_NULLS
                assert again == (with_null if is_carried else left_out)


@pytest.mark.req("ACP-PROMPT-005")
@pytest.mark.parametrize("held", [{}, {"text": "a", "blob": "YQ=="}, {"text": None}, {"text": 1}, {"blob": []}])
def test_a_resource_has_either_text_or_bytes(held: JSON) -> None:
    assert refuses("EmbeddedResourceResource", {"uri": "file:///a", **held})


@pytest.mark.req("ACP-INIT-008", "ACP-EXT-003")
def test_meta_never_takes_the_place_of_a_member() -> None:
    hostile = {"sessionId": "other", "path": "/etc/passwd", "__class__": "x", "_meta": {"sessionId": "other"}}
    request = decoder_of("ReadTextFileRequest")(encoded({"sessionId": "s", "path": "/a", "_meta": hostile}))
    assert request == client_calls.ReadTextFileRequest(session_id="s", path="/a", meta=hostile)
