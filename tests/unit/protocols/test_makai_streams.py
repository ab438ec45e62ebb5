from typing import Any

import msgspec
import pytest
from support.messages import call, call_block, text_block, thinking_block
from support.wire import EMPTY, JSON, NOW_MS, Server, ask, code_of, envelope, new_id

from makai.catalog.models import ModelsResponse
from makai.core import stream_events as ev
from makai.core.content import Text
from makai.core.errors import AuthRequired, ModelNotFound, RateLimited
from makai.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from makai.core.request import StreamOptions
from makai.core.usage import Usage
from makai.protocols.makai.commands import CancelStream, EndConnection, ListModels, OpenStream
from makai.protocols.makai.envelope import Scope
from makai.protocols.makai.reconstruct import Reconstructor
from makai.protocols.makai.server import ConnectionLimits

FINAL = msgspec.structs.replace(
    EMPTY, content=(Text(text="Hello"),), stop_reason="end_turn", usage=Usage(input=3, output=2), response_id="r"
)
HELLO = [ev.Start(EMPTY), *text_block(0, "Hel", "lo"), ev.Done("end_turn", FINAL)]
FINAL_JSON = msgspec.json.decode(msgspec.json.encode(FINAL))


def scope(stream_id: str) -> Scope:
    return Scope("stream_id", stream_id)


def code(frame: dict[str, Any]) -> str:
    return str(frame["payload"]["error_code"])


@pytest.mark.req("MK-ENV-001", "MK-ENV-002", "MK-ENV-004", "MK-ENV-005", "MK-ENV-010", "MK-ENV-012", "MK-PROV-010")
@pytest.mark.req("MK-PROV-014", "MK-PROV-015", "MK-PROV-019", "MK-ENV-022")
def test_a_stream_in_full_encoding_says_exactly_this(server: Server) -> None:
    request = ask()
    assert server.say(request) == []
    server.connection.accept(request["stream_id"])
    frames = server.heard() + server.play(request["stream_id"], HELLO)
    assert [frame.pop("sequence") for frame in frames] == list(range(1, 9))
    ids = [frame.pop("message_id") for frame in frames]
    assert len(set(ids)) == len(ids)
    for frame in frames:
        assert frame.pop("stream_id") == request["stream_id"]
        assert frame.pop("version") == 1
        assert frame.pop("timestamp") == NOW_MS
    empty: dict[str, Any] = {
        "role": "assistant",
        "content": [],
        "provider": "acme",
        "api": "x",
        "model": "m",
        "timestamp": NOW_MS,
    }

    def so_far(text: str) -> dict[str, Any]:
        return empty | {"content": [{"type": "text", "text": text}]}

    assert frames == [
        {"type": "ack", "in_reply_to": request["message_id"], "payload": {"acknowledged_id": request["message_id"]}},
        {"type": "start", "payload": {"partial": empty}},
        {"type": "text_start", "payload": {"content_index": 0, "partial": so_far("")}},
        {"type": "text_delta", "payload": {"content_index": 0, "delta": "Hel", "partial": so_far("Hel")}},
        {"type": "text_delta", "payload": {"content_index": 0, "delta": "lo", "partial": so_far("Hello")}},
        {"type": "text_end", "payload": {"content_index": 0, "partial": so_far("Hello")}},
        {"type": "done", "payload": {"reason": "end_turn", "message": FINAL_JSON}},
        {"type": "result", "payload": FINAL_JSON},
    ]


@pytest.mark.req("MK-PROV-019")
def test_partial_holds_everything_up_to_and_including_its_event_for_every_kind_of_block(server: Server) -> None:
    signed = call("c", "t", '{"a":1}', thought_signature="s3")
    thinking = {"type": "thinking", "thinking": "Hm", "thinking_signature": "s1"}
    text = {"type": "text", "text": "Yes", "text_signature": "s2"}
    begun = {"type": "tool_call", "tool_call_id": "c", "name": "t", "arguments_json": ""}
    tool = begun | {"arguments_json": '{"a":1}', "thought_signature": "s3"}
    told: list[tuple[Any, list[JSON]]] = [
        (ev.Start(EMPTY), []),
        (ev.ThinkingStart(0), [{"type": "thinking", "thinking": ""}]),
        (ev.ThinkingDelta(0, "H"), [{"type": "thinking", "thinking": "H"}]),
        (ev.ThinkingDelta(0, "m"), [{"type": "thinking", "thinking": "Hm"}]),
        (ev.ThinkingEnd(0, "s1"), [thinking]),
        (ev.Keepalive(), [thinking]),
        (ev.TextStart(1), [thinking, {"type": "text", "text": ""}]),
        (ev.TextDelta(1, "Yes"), [thinking, {"type": "text", "text": "Yes"}]),
        (ev.TextEnd(1, "s2"), [thinking, text]),
        (ev.ToolCallStart(2, "c", "t"), [thinking, text, begun]),
        (ev.ToolCallDelta(2, '{"a"'), [thinking, text, begun | {"arguments_json": '{"a"'}]),
        (ev.ToolCallDelta(2, ":1}"), [thinking, text, begun | {"arguments_json": '{"a":1}'}]),
        (ev.ToolCallEnd(2, signed), [thinking, text, tool]),
    ]
    frames = server.play(server.open(), [event for event, _ in told])

    assert [frame["payload"]["partial"]["content"] for frame in frames] == [content for _, content in told]
    facts = {"role": "assistant", "provider": "acme", "api": "x", "model": "m", "timestamp": NOW_MS}
    for frame in frames:
        assert frame["payload"]["partial"] == facts | {"content": frame["payload"]["partial"]["content"]}


@pytest.mark.req("MK-PROV-020", "MK-PROV-021", "MK-ENV-001", "MK-ENV-022")
def test_a_stream_in_proxy_encoding_never_repeats_content(server: Server) -> None:
    frames = server.play(server.open(ask(encoding="proxy")), HELLO)
    assert {frame["encoding"] for frame in frames} == {"proxy"}
    usage = {"input": 3, "output": 2}
    assert [(frame["type"], frame["payload"]) for frame in frames] == [
        ("start", {}),
        ("text_start", {"content_index": 0}),
        ("text_delta", {"content_index": 0, "delta": "Hel"}),
        ("text_delta", {"content_index": 0, "delta": "lo"}),
        ("text_end", {"content_index": 0}),
        ("done", {"reason": "end_turn", "usage": usage}),
        (
            "result",
            {
                "stop_reason": "end_turn",
                "usage": usage,
                "model": "m",
                "api": "x",
                "provider": "acme",
                "timestamp": NOW_MS,
                "response_id": "r",
            },
        ),
    ]


@pytest.mark.req("MK-PROV-022")
def test_a_tool_call_in_proxy_encoding_ends_with_only_what_its_deltas_did_not_carry(server: Server) -> None:
    signed = call("c", "t", thought_signature="sig")
    events = [*call_block(0, signed), ev.ToolCallEnd(1, call("d", "t"))]
    frames = server.play(server.open(ask(encoding="proxy")), events)
    assert [frame["payload"] for frame in frames] == [
        {"content_index": 0, "id": "c", "name": "t"},
        {"content_index": 0, "delta": "{}"},
        {"content_index": 0, "tool_call": {"thought_signature": "sig"}},
        {"content_index": 1},
    ]
    frames = server.play(server.open(), [ev.ToolCallEnd(0, signed)])
    assert frames[0]["payload"]["tool_call"]["arguments_json"] == "{}"


EVERY_KIND = [
    ev.Start(EMPTY),
    *thinking_block(0, "Hm.", signature="thought"),
    *text_block(1, "Hello", signature="said"),
    ev.Keepalive(),
    *call_block(2, call("c", "look")),
    ev.Done("end_turn", FINAL),
]
KINDS = [
    *("start", "thinking_start", "thinking_delta", "thinking_end", "text_start", "text_delta", "text_end"),
    *("keepalive", "toolcall_start", "toolcall_delta", "toolcall_end", "done", "result"),
]


@pytest.mark.req("MK-PROV-010", "MK-PROV-012", "MK-PROV-014", "MK-PROV-019", "MK-PROV-020", "MK-PROV-022")
def test_every_kind_of_event_has_its_name_its_fields_and_in_full_encoding_the_message_so_far(server: Server) -> None:
    full = server.play(server.open(), EVERY_KIND)
    proxy = server.play(server.open(ask(encoding="proxy")), EVERY_KIND)

    assert [frame["type"] for frame in full] == [frame["type"] for frame in proxy] == KINDS
    blocks = [len(frame["payload"].pop("partial")["content"]) for frame in full[:-2]]
    assert blocks == [0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    said = [frame["payload"] for frame in proxy[1:-2]]
    assert said == [
        {"content_index": 0},
        {"content_index": 0, "delta": "Hm."},
        {"content_index": 0, "thinking_signature": "thought"},
        {"content_index": 1},
        {"content_index": 1, "delta": "Hello"},
        {"content_index": 1, "content_signature": "said"},
        {},
        {"content_index": 2, "id": "c", "name": "look"},
        {"content_index": 2, "delta": "{}"},
        {"content_index": 2},
    ]
    assert [frame["payload"] for frame in full[1:-3]] == said[:-1]


@pytest.mark.parametrize("encoding", ["full", "proxy"])
def test_a_keepalive_carries_what_the_provider_has_to_say_to_the_user(server: Server, encoding: str) -> None:
    notes = [
        ev.Keepalive("option_ignored", "acme does not take `stop`.", "warning"),
        ev.Keepalive("rate_limited", "Waiting 2 s."),
    ]
    frames = server.play(server.open(ask(encoding=encoding)), [ev.Start(EMPTY), *notes])[1:]
    rebuilt = Reconstructor("m", 0)

    assert [frame["type"] for frame in frames] == ["keepalive", "keepalive"]
    assert [frame["payload"].pop("partial", None) is not None for frame in frames] == [encoding == "full"] * 2
    assert frames[0]["payload"] == {
        "code": "option_ignored",
        "note": "acme does not take `stop`.",
        "level": "warning",
    }
    assert [rebuilt.apply("keepalive", msgspec.json.encode(frame["payload"])) for frame in frames] == notes


@pytest.mark.req("MK-PROV-005")
@pytest.mark.parametrize(("kind", "encoding"), [("stream", "full"), ("stream", "proxy"), ("complete", "full")])
def test_a_result_says_which_options_the_vendor_did_not_take(server: Server, kind: str, encoding: str) -> None:
    notes = [
        ev.Keepalive("option_ignored", "acme does not take `stop`.", "warning"),
        ev.Keepalive("rate_limited", "Waiting 2 s."),
    ]
    stream = server.open(ask(f"{kind}_request", encoding=encoding))
    silent = server.open(ask(f"{kind}_request", encoding=encoding))

    told = server.play(stream, [ev.Start(EMPTY), *notes, EVERY_KIND[-1]])[-1]
    assert (told["type"], told["payload"].pop("warnings")) == ("result", ["acme does not take `stop`."])
    assert told["payload"] == server.play(silent, [ev.Start(EMPTY), EVERY_KIND[-1]])[-1]["payload"]


@pytest.mark.req("MK-ENV-023")
def test_an_unknown_encoding_is_full(server: Server) -> None:
    frames = server.play(server.open(ask(encoding="brotli")), HELLO[:1])
    assert "encoding" not in frames[0]
    assert "partial" in frames[0]["payload"]


@pytest.mark.req("MK-PROV-003", "MK-ENV-012")
@pytest.mark.parametrize("encoding", ["full", "proxy"])
def test_a_complete_request_gets_the_whole_message_and_no_events(server: Server, encoding: str) -> None:
    (result,) = server.play(server.open(ask("complete_request", encoding=encoding)), HELLO)
    assert (result["type"], result["payload"], result["sequence"]) == ("result", FINAL_JSON, 2)


@pytest.mark.req("MK-PROV-003", "MK-PROV-014", "MK-PROV-016")
def test_a_complete_request_that_fails_gets_one_stream_error_with_only_what_is_known(server: Server) -> None:
    stream_id = server.open(ask("complete_request"))
    failed = ev.Failed(reason="error", error_code="provider_error", error_message="Broken.", message=EMPTY)
    frames = server.play(stream_id, [ev.Start(EMPTY), failed])
    assert [(frame["type"], frame["payload"]) for frame in frames] == [
        ("stream_error", {"error_code": "provider_error", "error_message": "Broken."})
    ]
    assert server.play(stream_id, HELLO) == []


@pytest.mark.req("MK-PROV-014", "MK-PROV-016", "MK-PROV-017", "MK-PROV-018")
def test_a_failure_is_told_by_one_event_and_one_terminal(server: Server) -> None:
    failed = ev.Failed(
        reason="error",
        error_code="rate_limited",
        error_message="slow down",
        message=EMPTY,
        retry_after_ms=2000,
        provider_id="acme",
        hint="Wait.",
        usage=Usage(input=1),
    )
    stream_id = server.open()
    event, terminal = server.play(stream_id, [failed])
    assert server.play(stream_id, HELLO) == [], "nothing follows"
    assert (event["type"], event["payload"]) == (
        "error",
        {
            "reason": "error",
            "error_message": "slow down",
            "error_code": "rate_limited",
            "usage": {"input": 1, "output": 0},
        },
    )
    assert (terminal["type"], terminal["payload"]) == (
        "stream_error",
        {
            "error_code": "rate_limited",
            "error_message": "slow down",
            "retry_after_ms": 2000,
            "usage": {"input": 1, "output": 0},
            "provider_id": "acme",
            "hint": "Wait.",
        },
    )


def test_partial_is_left_out_of_a_message_above_a_megabyte(server: Server) -> None:
    stream_id = server.open()
    big = "x" * (1024 * 1024 + 1)
    frames = server.play(stream_id, [ev.Start(EMPTY), ev.TextStart(0), ev.TextDelta(0, big), ev.TextDelta(0, "y")])
    assert ["partial" in frame["payload"] for frame in frames] == [True, True, False, False]


REFUSALS = [
    (ModelNotFound("model not found: x"), {"reason": "model not found: x", "error_code": "invalid_request"}),
    (
        AuthRequired("No key.", provider_id="groq", hint="Set GROQ_API_KEY."),
        {"reason": "No key.", "error_code": "auth_required", "provider_id": "groq", "hint": "Set GROQ_API_KEY."},
    ),
    (
        RateLimited("full", provider_id="acme", retry_after_ms=5),
        {"reason": "full", "error_code": "rate_limited", "provider_id": "acme", "retry_after_ms": 5},
    ),
]


@pytest.mark.req("MK-ENV-013")
@pytest.mark.parametrize(("error", "payload"), REFUSALS)
def test_what_is_refused_gets_one_nack_and_nothing_else(server: Server, error: Any, payload: dict[str, Any]) -> None:
    request = ask()
    server.say(request)
    server.connection.refuse(scope(request["stream_id"]), error)
    server.connection.event(request["stream_id"], HELLO[0])
    (nack,) = server.heard()
    assert nack["payload"] == {"rejected_id": request["message_id"], **payload}


@pytest.mark.req("MK-PROV-001", "MK-PROV-002")
def test_the_server_is_asked_to_resolve_a_ref_or_a_whole_model(server: Server) -> None:
    server.say(ask())
    command = server.command(OpenStream)
    assert command.model == "scripted/scripted@echo"
    request = ask()
    del request["payload"]["model_ref"]
    request["payload"]["model"] = {"id": "m", "api": "ollama", "provider": "ollama", "base_url": ""}
    server.say(request)
    command = server.command(OpenStream)
    assert not isinstance(command.model, str)
    assert (command.model.id, command.model.api) == ("m", "ollama")
    nameless = ask()
    del nameless["payload"]["model_ref"]
    assert code_of(server.say(nameless)) == "invalid_request"


@pytest.mark.req("MK-PROV-005")
@pytest.mark.parametrize("effort", ["off", "minimal", "low", "medium", "high", "xhigh"])
def test_options_are_handed_on_as_they_were_given(server: Server, effort: str) -> None:
    request = ask()
    options = {
        "temperature": 0.0,
        "max_tokens": 1,
        "session_id": "s",
        "metadata": {"a": "b"},
        "reasoning_effort": effort,
    }
    request["payload"]["options"] = options
    server.say(request)
    assert server.command(OpenStream).options == msgspec.convert(options, StreamOptions)


BAD_REQUESTS: list[dict[str, Any]] = [
    {},
    {"model_ref": "a/b@c"},
    {"model_ref": "a/b@c", "context": {}},
    {"model_ref": "a/b@c", "context": {"messages": []}},
    {"model_ref": 7, "context": {"messages": [{"role": "user", "content": "x"}]}},
    {"model_ref": "a/b@c", "context": {"messages": [{"role": "king", "content": "x"}]}},
    {"model_ref": "a/b@c", "context": {"messages": [{"role": "user", "content": [{"type": "smell"}]}]}},
    {"model_ref": "a/b@c", "context": {"messages": [{"role": "tool", "content": "x"}]}},
    {"model_ref": "a/b@c", "context": {"messages": [{"role": "system", "content": [{"type": "image"}]}]}},
    {"model_ref": "a/b@c", "context": {"messages": [{"role": "user", "content": "x"}]}, "options": {"stop": 1}},
]


NACKED = [
    *((envelope("stream_request", payload), "invalid_request") for payload in BAD_REQUESTS),
    (ask(stream_id=None, session_id=new_id()), "invalid_request"),
    (ask(sequence=0), "invalid_sequence"),
    (ask(sequence=2), "sequence_gap"),
    *(
        pytest.param(envelope("models_request", payload), "invalid_request", marks=pytest.mark.req("MK-MODEL-001"))
        for payload in ({"provider_id": 7}, {"include_deprecated": "yes"}, {"model_id": 7.5})
    ),
    *(
        pytest.param(envelope(kind), "not_implemented", marks=pytest.mark.req("MK-ENV-018"))
        for kind in ("agent_start", "agent_message", "tool_register")
    ),
]


@pytest.mark.parametrize(
    ("request_", "fault"), NACKED, ids=lambda value: value if isinstance(value, str) else str(value["payload"])
)
def test_a_request_that_cannot_be_meant_is_nacked(server: Server, request_: dict[str, Any], fault: str) -> None:
    assert code_of(server.say(request_)) == fault
    assert server.commands == []
    assert not server.connection.busy


@pytest.mark.req("MK-PROV-036")
def test_an_id_in_use_is_refused_without_disturbing_its_stream(server: Server) -> None:
    stream_id = server.open()
    (nack,) = server.say(ask(stream_id=stream_id, sequence=2))
    assert (code(nack), nack["sequence"]) == ("stream_already_exists", 2)
    frames = server.play(stream_id, HELLO)
    assert [frame["sequence"] for frame in frames] == [3, 4, 5, 6, 7, 8, 9]
    assert frames[-1]["type"] == "result"


@pytest.mark.proof("E3")
@pytest.mark.req("MK-PROV-036", "MK-ENV-005")
def test_many_streams_interleave_and_each_counts_for_itself(server: Server) -> None:
    ids = [server.open() for _ in range(20)]
    frames = []
    for event in HELLO:
        for stream_id in ids:
            server.connection.event(stream_id, event)
    frames = server.heard()
    for stream_id in ids:
        own = [frame for frame in frames if frame["stream_id"] == stream_id]
        assert [frame["sequence"] for frame in own] == list(range(2, 9))
        assert [frame["type"] for frame in own][-1] == "result"
    assert not server.connection.busy


def test_the_hundred_and_first_stream_is_refused_until_another_ends() -> None:
    server = Server(ConnectionLimits(streams=100))
    ids = [server.open() for _ in range(100)]
    assert code_of(server.say(ask())) == "rate_limited"
    server.play(ids[0], HELLO)
    server.open()


@pytest.mark.proof("E3")
@pytest.mark.req("MK-ENV-006")
@pytest.mark.parametrize(
    ("sequence", "fault"), [(0, "invalid_sequence"), (1, "duplicate_sequence"), (3, "sequence_gap")]
)
def test_a_wrong_number_is_nacked_and_not_executed(server: Server, sequence: int, fault: str) -> None:
    stream_id = server.open()
    assert code_of(server.say(ask(stream_id=stream_id, sequence=sequence))) == fault
    assert server.commands == []


def test_a_scope_is_forgotten_after_its_terminal(server: Server) -> None:
    request = ask()
    for _ in range(2):
        server.open(request)
        frames = server.play(request["stream_id"], HELLO)
        assert frames[-1]["sequence"] == 8


@pytest.mark.req("MK-PROV-031", "MK-PROV-033", "MK-ENV-010", "MK-ENV-012")
@pytest.mark.parametrize("encoding", ["full", "proxy"])
def test_an_abort_is_acked_and_ends_the_stream_at_once(server: Server, encoding: str) -> None:
    stream_id = server.open(ask(encoding=encoding))
    server.play(stream_id, HELLO[:3])
    abort = envelope("abort_request", {"target_stream_id": stream_id, "reason": "enough"})
    ack, event, terminal = server.say(abort)
    assert server.commands == [CancelStream(stream_id)]
    assert (ack["type"], ack["stream_id"], ack["payload"]) == (
        "ack",
        abort["stream_id"],
        {"acknowledged_id": abort["message_id"]},
    )
    assert (event["type"], event["payload"]) == (
        "error",
        {"reason": "aborted", "error_message": "enough", "error_code": "aborted"},
    )
    assert (terminal["type"], terminal["payload"]) == (
        "stream_error",
        {"error_code": "aborted", "error_message": "enough"},
    )
    assert server.play(stream_id, HELLO[3:]) == []


@pytest.mark.req("MK-PROV-033", "MK-PROV-010")
def test_an_abort_before_anything_came_still_gives_a_lawful_stream(server: Server) -> None:
    request = ask()
    server.say(request)
    frames = server.say(envelope("abort_request", {"target_stream_id": request["stream_id"]}))
    own = [frame["type"] for frame in frames if frame["stream_id"] == request["stream_id"]]
    assert own == ["ack", "start", "error", "stream_error"]


@pytest.mark.req("MK-PROV-034")
def test_aborting_what_does_not_run_is_nacked_and_causes_nothing(server: Server) -> None:
    finished = server.open()
    server.play(finished, HELLO)
    for target in (finished, new_id(), "garbage"):
        assert code_of(server.say(envelope("abort_request", {"target_stream_id": target}))) == "stream_not_found"
        assert server.commands == []


@pytest.mark.req("MK-PROV-035")
def test_aborting_one_of_several_leaves_the_others_running(server: Server) -> None:
    first, second = server.open(), server.open()
    server.say(envelope("abort_request", {"target_stream_id": first}))
    assert server.play(second, HELLO)[-1]["type"] == "result"


@pytest.mark.req("MK-ENV-016")
def test_goodbye_ends_the_connection_without_an_answer(server: Server) -> None:
    assert server.say(envelope("goodbye", {"reason": "done"})) == []
    assert server.commands == [EndConnection()]


@pytest.mark.req("MK-MODEL-001", "MK-MODEL-003", "MK-MODEL-027", "MK-ENV-004", "MK-ENV-012")
@pytest.mark.parametrize("scope_kind", ["stream_id", "session_id"])
def test_a_models_request_gets_ack_then_its_response_in_either_scope(server: Server, scope_kind: str) -> None:
    request = envelope("models_request", {"provider_id": "acme"}, **{"stream_id": None, scope_kind: new_id()})
    assert server.say(request) == []
    command = server.command(ListModels)
    assert (command.request.provider_id, command.request.include_login_required) == ("acme", True)
    server.connection.models(command.scope, ModelsResponse(models=(), fetched_at_ms=1, cache_max_age_ms=2))
    ack, response = server.heard()
    assert (ack["type"], ack["sequence"]) == ("ack", 1)
    assert (response["type"], response["sequence"], response["in_reply_to"]) == (
        "models_response",
        2,
        request["message_id"],
    )
    assert response["payload"] == {"models": [], "fetched_at_ms": 1, "cache_max_age_ms": 2}


@pytest.mark.req("MK-MODEL-029")
def test_a_models_request_cannot_be_aborted_and_still_gets_its_answer(server: Server) -> None:
    request = envelope("models_request")
    server.say(request)
    command = server.command(ListModels)
    (nack,) = server.say(envelope("abort_request", {"target_stream_id": request["stream_id"]}))
    assert code(nack) == "stream_not_found"
    server.connection.models(command.scope, ModelsResponse(models=(), fetched_at_ms=1, cache_max_age_ms=2))
    assert [frame["type"] for frame in server.heard()] == ["ack", "models_response"]


@pytest.mark.req("MK-PROV-001", "MK-PROV-004")
@pytest.mark.parametrize("as_parts", [False, True])
def test_every_role_and_option_of_a_request_is_in_the_command(server: Server, as_parts: bool) -> None:
    def written(text: str) -> Any:
        return [{"type": "text", "text": text}] if as_parts else text

    request = ask()
    roles = ("system", "developer", "user", "assistant", "tool")
    request["payload"]["context"]["messages"] = [
        {"role": role, "content": written(role)} | ({"tool_call_id": "c"} if role == "tool" else {}) for role in roles
    ]
    request["payload"]["options"] = {"temperature": 0.5, "max_tokens": 7}
    server.say(request)
    command = server.command(OpenStream)
    system, developer, user, assistant, tool = command.context.messages
    assert (system, developer) == (SystemMessage(content="system"), SystemMessage(content="developer"))
    assert isinstance(user, UserMessage)
    assert user.parts() == (Text(text="user"),)
    assert isinstance(assistant, AssistantMessage)
    assert assistant.text() == "assistant"
    assert isinstance(tool, ToolMessage)
    assert (tool.result.tool_call_id, tool.result.text()) == ("c", "tool")
    assert (command.options.temperature, command.options.max_tokens) == (0.5, 7)


def test_assistant_history_keeps_who_made_it(server: Server) -> None:
    request = ask()
    request["payload"]["context"]["messages"].append(FINAL_JSON)
    server.say(request)
    command = server.command(OpenStream)
    assert isinstance(command.context.messages[1], AssistantMessage)
    assert command.context.messages[1] == msgspec.structs.replace(FINAL, response_id=None)
