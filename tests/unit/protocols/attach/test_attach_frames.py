"""Messages of the link between the owner of the sessions and those attached, as bytes and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.session_trials import Trial

from makai.core.content import Image, Resource, Text
from makai.core.errors import InvalidRequest, ParseError
from makai.core.secret import Secret
from makai.core.server_prompts import ServerPrompt, ServerPromptArgument
from makai.core.session_events import FileDiff, SessionTerms
from makai.core.session_files import FoundPaths, Mentioned
from makai.core.settings import SettingsLayer
from makai.harness.base import ToolAnswer, ToolRequest
from makai.protocols.attach import frames
from makai.protocols.attach import messages as wire
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.index import base as index
from makai.sessions.log import base
from makai.sessions.log.nodes import Node
from makai.wire.ndjson import NDJSONDecoder

PROBLEM = wire.AttachProblem(
    code="BUSY", message="A run is active.", hint="Wait.", kind="SessionRefused", details={"code": "BUSY"}
)
COMMANDS: list[cmd.UserCommand] = [
    cmd.Send(now=0, input_id="i1", content="hi", client_msg_id="c1", delivery="queue"),
    cmd.RetryRun(now=0, run_id="r", input_id="i1"),
    cmd.WithdrawInput(now=0, input_id="i1"),
    cmd.ApproveCall(now=0, call_id="c", by="cli", scope="always", digest="d"),
    cmd.DenyCall(now=0, call_id="c", by="cli"),
    cmd.Abort(now=0, run_id="r"),
    cmd.SetMode(now=0, mode="plan"),
    cmd.SetModel(now=0, model_ref="a/b@c"),
    cmd.SetTitle(now=0, title="\u2028 \U0001f600"),
    cmd.Archive(now=0, archived=False),
    cmd.SetTerms(now=0, terms=SessionTerms(builtin_tools=True)),
    cmd.Compact(now=0, input_id="i2"),
    cmd.Close(now=0),
]
SAID_BY_ATTACHED: list[wire.FromAttached] = [
    wire.AttachHello(makai="0.1.0", format=1, pid=7, key=Secret("a key")),
    wire.RegisterExecutor(number=8, session_id="s"),
    wire.Follow(number=11, session_id="s", after=12, deltas=False),
    wire.Pull(number=11),
    wire.Unfollow(number=11),
    wire.Executed(call=1, answer=ToolAnswer(content=(Text(text="done"),), details_json="{}")),
    wire.ExecuteFailed(call=1, problem=PROBLEM),
    wire.UnregisterExecutor(number=8),
    wire.AttachPing(),
]
REQUESTS: list[req.Request[Any]] = [
    req.CreateSession(model_ref="a/b@c", roots=("/a", "/b")),
    req.ForkSession(origin="s", at=3, mode="plan"),
    *(req.RunCommand("s", command) for command in COMMANDS),
    req.ReadEvents("s", after=3, limit=4, deltas=False),
    req.GetState("s"),
    req.ListSessions(base.SessionFilter(limit=3, cwd="/a")),
    req.GetSession("s"),
    req.SearchSessions(query="tea", limit=3, archived="only", cwd="/a"),
    req.GetUsage(days=7, tz_minutes=-90),
    req.ListApprovals(),
    req.PreviewRestore("s", "redo", 2, to=7, paths=("a",)),
    req.GetSessionDiff("s"),
    req.ListPrompts("s"),
    req.GetPrompt("s", "docs", "summary", {"topic": "x"}),
    req.ListCommands("s"),
    req.ExpandCommand("s", "fix", "1 2"),
    req.HasFolder("s", ("a", "b")),
    req.FindFiles("s", "src/a"),
    req.ReadMentioned("s", "Look at @a"),
    req.ReleaseAgent("s"),
    req.DeleteSession("s"),
    req.IsTrusted("/a"),
    req.GetTrust("/a"),
    req.GetProjectSettings("/a"),
    req.ListTrusted(),
    req.SetTrust("/a", True, {".mcp.json": "d"}),
    req.ListGrants(),
    req.RevokeGrant("/a", "Bash(ls)"),
    req.CheckLog(),
    req.CreateToken(token_id="t", name="ci", scope="prompt", digest="d", expires_ms=5, session_id="s"),
    req.ListTokens(),
    req.ListNodes(),
    req.RevokeToken("t"),
    req.NoteTokenUse(("t",)),
]
SUMMARY = base.SessionSummary(session_id="s", title="T", events=3)
GRANT = base.StoredGrant(folder="/a", rule="Bash(ls)", allow=True, session_id="s", event_id=2, ts=5, by="cli")
TOKEN = base.StoredToken(token_id="t", name="ci", scope="admin", digest="d", created_ms=1, expires_ms=2, used_ms=1)
ANSWERS: list[tuple[req.Request[Any], object]] = [
    (req.CreateSession(model_ref="a/b@c"), "s"),
    (req.RunCommand("s", COMMANDS[0]), req.Receipt(last=3, run_id="r")),
    (req.ReadEvents("s"), [base.Record(1, b'{"event_id":1}')]),
    (req.GetState("s"), Trial().create().state),
    (req.ListSessions(), [SUMMARY]),
    (req.GetSession("s"), None),
    (
        req.SearchSessions(query="tea"),
        index.SearchAnswer(
            hits=(
                index.SearchHit(
                    session_id="s",
                    title="T",
                    cwd=None,
                    harness="native",
                    model_ref="m",
                    updated_ms=3,
                    archived=False,
                    matches=(index.SearchMatch(event_id=2, kind="user", text="tea", marks=((0, 3),)),),
                ),
            ),
            complete=True,
        ),
    ),
    (req.GetUsage(), index.UsageAnswer(complete=False)),
    (req.ListPrompts("s"), [ServerPrompt(server="a", name="b", arguments=(ServerPromptArgument(name="c"),))]),
    (req.GetPrompt("s", "a", "b"), "the text"),
    (req.ListCommands("s"), [req.CommandSummary(name="fix", description="Fix it", argument_hint="NUMBER")]),
    (req.ExpandCommand("s", "fix"), None),
    (req.HasFolder("s", ("a",)), True),
    (req.FindFiles("s"), FoundPaths(paths=("a/", "a/b"), is_complete=False)),
    (
        req.ReadMentioned("s", "@a @b"),
        Mentioned(files=(Resource(uri="file:///a", text="x"),), images=(Image(data="AA==", mime_type="image/png"),)),
    ),
    (req.DeleteSession("s"), True),
    (req.SetTrust("/a", True), False),
    (
        req.GetTrust("/a"),
        req.FolderTrust(
            trusted=True,
            changed=(FileDiff(path=".mcp.json", old_text=None, new_text="{}"),),
            wanted=("MCP server a: runs b",),
            digests={".mcp.json": "d"},
        ),
    ),
    (req.GetProjectSettings("/a"), SettingsLayer(model="sonnet", mode="plan", aliases={"fast": "haiku"})),
    (req.ListTrusted(), [base.TrustedFolder("/a", False)]),
    (req.ListGrants(), [GRANT]),
    (req.CheckLog(), base.LogReport(sessions=1, events=2, problems=(base.LogProblem("s", 2, "damaged or missing"),))),
    (req.ListTokens(), [TOKEN]),
    (req.ListNodes(), [Node(node_id="n", name="one", address="127.0.0.1:1", labels=("one",), started_ms=3)]),
    (req.RevokeToken("t"), True),
    (req.NoteTokenUse(("t",)), None),
]
SAID_BY_OWNER: list[wire.FromOwner] = [
    wire.AttachWelcome(makai="0.1.0", format=1, pid=7),
    wire.Refused(problem=PROBLEM),
    wire.AttachAnswer(number=1, result=msgspec.Raw(b'{"last":3}')),
    wire.Failure(number=1, problem=PROBLEM),
    wire.Moved(number=1),
    wire.Records(
        number=1, ids=[1, 3], lines=[msgspec.Raw(b'{"event_id":1}'), msgspec.Raw(b'{"event_id":3,"new":[1.50]}')]
    ),
    wire.Execute(
        call=1,
        executor=8,
        request=ToolRequest(session_id="s", run_id="r", call_id="c", name="look", arguments={"a": [1, None]}),
    ),
    wire.CancelExecute(call=1),
    wire.AttachPong(),
]


@pytest.mark.parametrize("message", SAID_BY_ATTACHED, ids=lambda message: type(message).__name__)
def test_what_an_attached_process_says_arrives_as_it_was_said(message: wire.FromAttached) -> None:
    assert frames.from_attached(frames.encoded(message)) == message


@pytest.mark.parametrize("message", SAID_BY_OWNER, ids=lambda message: type(message).__name__)
def test_what_the_owner_says_arrives_as_it_was_said(message: wire.FromOwner) -> None:
    assert plain(frames.from_owner(frames.encoded(message))) == plain(message)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_arrives_as_it_was_asked(request_: req.Request[Any]) -> None:
    message = frames.from_attached(frames.encoded_request(7, request_))

    assert isinstance(message, wire.RequestMessage)
    assert (message.number, frames.request_of(message)) == (7, request_)


def test_every_operation_is_among_the_tested_requests() -> None:
    assert {type(request) for request in REQUESTS} == {
        kind for kind in req.request_types() if kind.__module__ == req.__name__
    }


@pytest.mark.parametrize(("request_", "answer"), ANSWERS, ids=lambda value: type(value).__name__)
def test_an_answer_arrives_as_the_type_that_its_request_declares(request_: req.Request[Any], answer: object) -> None:
    message = frames.from_owner(frames.encoded_answer(7, request_, answer))

    assert isinstance(message, wire.AttachAnswer | wire.Records)
    assert frames.answer_of(request_, message) == answer


def test_a_request_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(ParseError, match="not a request"):
        frames.request_of(wire.RequestMessage(number=1, request=msgspec.Raw(b'{"type":"of_a_newer_makai"}')))


def test_bytes_that_come_one_by_one_say_the_same_as_the_whole() -> None:
    stream = b"".join(frames.encoded(message) + b"\n" for message in SAID_BY_ATTACHED)
    decoder = NDJSONDecoder(frames.MAX_FRAME_BYTES)

    lines = [line for byte in stream for line in decoder.feed(bytes([byte]))]

    assert [frames.from_attached(line) for line in lines if isinstance(line, bytes)] == SAID_BY_ATTACHED
    assert lines == NDJSONDecoder(frames.MAX_FRAME_BYTES).feed(stream)


def test_events_pass_unchanged_to_the_byte() -> None:
    records = [
        base.Record(1, b'{"event_id":1,"ts":5,"event":{"type":"notice","n":1.50,"u":"\\u00e9"}}'),
        base.Record(4, '{"event_id":4, "ts":5,"event":{"type":"of a newer makai","text":"é"}}'.encode()),
    ]

    message = frames.from_owner(frames.encoded_records(9, records))

    assert isinstance(message, wire.Records)
    assert message.number == 9
    assert frames.records_of(message) == records


def test_a_batch_whose_numbers_do_not_fit_its_events_is_refused() -> None:
    with pytest.raises(ParseError):
        frames.records_of(wire.Records(number=1, ids=[1], lines=[]))


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_log_holds_is_refused_before_it_is_sent(text: str) -> None:
    with pytest.raises(InvalidRequest):
        frames.encoded_request(1, req.RunCommand("s", cmd.SetTitle(now=0, title=text)))


def test_arguments_with_a_nul_reach_the_executor_of_their_tool() -> None:
    request = ToolRequest(session_id="s", run_id="r", call_id="c", name="echo", arguments={"a": "q\0w"})
    message = wire.Execute(call=1, executor=1, request=request)

    assert frames.from_owner(frames.encoded(message)) == message


def test_a_backslash_before_u0000_is_no_nul() -> None:
    request = req.RunCommand("s", cmd.SetTitle(now=0, title="\\u0000"))
    message = frames.from_attached(frames.encoded_request(1, request))

    assert isinstance(message, wire.RequestMessage)
    assert frames.request_of(message) == request


def test_a_key_is_never_printed() -> None:
    assert "a key" not in repr(SAID_BY_ATTACHED[0])


@given(st.sampled_from([*SAID_BY_ATTACHED, *SAID_BY_OWNER]).map(frames.encoded), st.data())
@examples(300)
def test_a_mutated_frame_is_a_message_or_a_parse_error(frame: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(frame)))
    end = data.draw(st.integers(start, len(frame)))
    mutated = frame[:start] + data.draw(st.binary(max_size=8) | st.just(b"[" * 3000)) + frame[end:]

    for read in (frames.from_attached, frames.from_owner):
        with suppress(ParseError):
            assert isinstance(read(mutated), wire.Message)


def plain(message: wire.FromOwner) -> object:
    """With what is not decoded yet as bytes: `Raw` objects compare by identity."""
    return msgspec.json.decode(frames.encoded(message))
