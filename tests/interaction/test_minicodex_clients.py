"""What clients of a session can rely on beyond the test matrix, on a real WebSocket: cursors, snapshots, capabilities,
decisions by several people, sessions that go away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.live_sessions import owned_sessions
from support.machine import slack
from support.minicodex_client import BOTH, JSON, MinicodexClient, logged
from support.serving import serving

from makai.core.errors import SessionRefused
from makai.core.session_events import RunTerms
from makai.protocols.makai.envelope import log_id_of
from makai.protocols.minicodex.server import Limits
from makai.server.session_views import SessionViews
from makai.sessions.commands import Send
from makai.sessions.requests import CreateSession, GetState, ListSessions, RunCommand
from makai.sessions.service import Sessions

HELLO = "say: Hello to you."
TALK = "pace: 1ms\nrepeat: 400 word "
TWO_WRITES = (
    'tool: shell {"command": "echo one >> made"}\ntool: shell {"command": "echo two >> made"}\n---\nsay: Both written.'
)
TWO_PAGES = (
    'tool: fetch {"url": "https://one.example/"}\ntool: fetch {"url": "https://two.example/"}\n---\nsay: Then not.'
)
ONE_WRITE = 'tool: shell {"command": "echo one >> made"}\n---\nsay: Written.'
NAMED_BY_DOCUMENT = {
    "accepted", "welcome", "snapshot", "run_status", "user_text", "assistant_text", "reasoning", "tool_call",
    "function_call_output", "approval_pending", "approval_decision", "turn_done", "error", "heartbeat", "backpressure",
}  # fmt: skip


async def snapshot(client: MinicodexClient, **fields: bool) -> JSON:
    await client.say("get_snapshot", **fields)
    return (await client.until("snapshot"))[-1]


@pytest.mark.proof("D6")
@pytest.mark.req("MC-RESUME-004")
@pytest.mark.parametrize("capabilities", [(), BOTH], ids=["document", "makai.1"])
async def test_a_cursor_that_cannot_be_continued_asks_for_a_snapshot_and_replays_nothing(
    tmp_path: Path, capabilities: tuple[str, ...]
) -> None:
    async with serving(tmp_path, HELLO, limits=Limits(replay_events=5)) as site:
        session_id = await site.talked()
        last = (await site.sessions.dispatch(GetState(session_id))).last_event_id
        for cursor in (0, last - 6, last + 1, 2**53, 2**63 - 1, -1):
            client = await site.connect(session_id, *capabilities)
            assert await client.resume(cursor) == "RESYNC_REQUIRED"
            assert "get_snapshot" in client.frames[-1]["message"]
            assert await client.ask("ping") == "accepted"
            assert client.kinds() == ["error", "accepted"]
            assert _text_of(await snapshot(client)) == "Hello to you."
            await client.close()


@pytest.mark.proof("D6")
@pytest.mark.req("MC-RESUME-004")
async def test_a_cursor_of_another_session_gives_nothing_away(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        mine, other = await site.talked("mine"), await site.talked("the secret of the other")
        client = await site.connect(mine)
        assert await client.ask("resume", last_seen_event_id=3, session_id=other) == "RESYNC_REQUIRED"
        assert await client.ask("hello", v="1.0.0", session_id=other) == "BAD_ARGUMENT"
        assert await client.ask("hello", v="1.0.0") == "accepted"
        await client.until("snapshot")
        assert await client.ask("send", text="hi", session_id=other) == "BAD_ARGUMENT"
        assert "secret" not in str(client.frames)


@pytest.mark.parametrize("attaches", ["by name", "by id"])
async def test_every_command_may_name_its_session_by_its_id_or_by_its_name(tmp_path: Path, attaches: str) -> None:
    async with serving(tmp_path, HELLO) as site:
        name, session_id = "run 1", log_id_of("run 1")
        await site.sessions.dispatch(CreateSession(model_ref="scripted/scenario", session_id=session_id))
        client = await site.connect("run%201" if attaches == "by name" else session_id)
        for given in (name, session_id):
            assert await client.ask("hello", v="1.0.0", session_id=given) == "accepted"
            assert await client.ask("send", text="hi", session_id=given) == "accepted"
            await client.until("turn_done")
            assert await client.ask("get_snapshot", session_id=given) == "accepted"
            assert await client.ask("resume", last_seen_event_id=1, session_id=given) == "accepted"
        for other in ("run 2", log_id_of("run 2"), ""):
            assert await client.ask("send", text="hi", session_id=other) == "BAD_ARGUMENT"


async def test_a_cursor_without_a_session_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.talked()
        client = await site.connect()
        assert await client.ask("resume", last_seen_event_id=3) == "MISSING_FIELD"
        assert await client.ask("resume", last_seen_event_id=3, session_id=session_id) == "accepted"
        await client.until("turn_done")


async def test_an_unknown_session_is_an_error_and_the_connection_stays(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.connect("unknown")
        assert await client.ask("hello", v="1.0.0") == "UNKNOWN_SESSION"
        assert await client.ask("resume", last_seen_event_id=0) == "UNKNOWN_SESSION"
        assert await client.ask("send", text="hi") == "INVALID_COMMAND"
        assert await client.ask("ping") == "accepted"
        assert await site.sessions.dispatch(ListSessions()) == []


async def test_sessions_that_do_not_exist_leave_nothing_behind(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, HELLO) as sessions:

        async def get() -> Sessions:
            return sessions

        views = SessionViews(get)
        for number in range(50):
            with pytest.raises(SessionRefused):
                await views.enter(f"unknown-{number}", lambda: None)
        assert (views._open, views._opening) == ({}, {})


@pytest.mark.req("MC-RESUME-003")
@pytest.mark.parametrize("fields", [{}, {"last_seen_event_id": None}], ids=["absent", "null"])
async def test_a_resume_without_a_cursor_is_a_fresh_load(tmp_path: Path, fields: dict[str, None]) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.connect(await site.talked())
        assert await client.ask("resume", **fields) == "accepted"
        await client.until("snapshot")
        assert client.kinds() == ["accepted", "welcome", "snapshot"]


async def test_a_replay_from_far_below_what_is_remembered_comes_from_the_log(tmp_path: Path) -> None:
    """A view that was opened again remembers no frames, so all of them are read from the log."""
    async with serving(tmp_path, "repeat: 3000 word \n---\nsay: Bye.") as site:
        session_id = await site.session()
        witness = await site.client(session_id, *BOTH)
        await witness.ask("send", text="talk")
        await witness.until_over()
        live = logged(witness.frames)
        await witness.close()
        for capabilities in (BOTH, ()):
            client = await site.connect(session_id, *capabilities)
            assert await client.resume(0) == "accepted"
            await client.until("turn_done")
            if capabilities:
                assert logged(client.frames) == live
            else:
                assert [frame["event_id"] for frame in logged(client.frames)] == [
                    frame["event_id"] for frame in live if frame["type"] in NAMED_BY_DOCUMENT
                ]
            await client.close()


@pytest.mark.req("MC-EVT-003", "MC-CMD-004", "MC-CMD-006")
async def test_snapshots_taken_while_a_run_talks_fit_between_the_events(tmp_path: Path) -> None:
    async with serving(tmp_path, f"{TALK}\n---\nsay: Bye.") as site:
        session_id = await site.session()
        client = await site.client(session_id, *BOTH)
        bystander = await site.client(session_id, *BOTH)
        await client.ask("send", text="talk")
        taken = [await snapshot(client) for _ in range(20)]
        await client.until_over()
        await bystander.until_over()
        events = logged(client.frames)
        assert [frame["event_id"] for frame in events] == sorted({frame["event_id"] for frame in events})
        assert events == logged(bystander.frames)
        assert len(bystander.of_type("snapshot")) == 1
        for shown in taken:
            place = client.frames.index(shown)
            assert max([0, *(frame["event_id"] for frame in logged(client.frames[:place]))]) <= shown["event_id"]
            assert all(frame["event_id"] > shown["event_id"] for frame in logged(client.frames[place:]))
            assert _text_of(shown) == "".join(
                frame["text"] for frame in events
                if frame["type"] == "assistant_text_delta" and frame["event_id"] <= shown["event_id"]
            )  # fmt: skip


def _text_of(shown: JSON) -> str:
    return "".join(item["text"] for item in shown["transcript"] if item["type"] == "assistant_text")


@pytest.mark.req("MC-EVT-005")
async def test_only_a_snapshot_that_was_asked_for_a_window_has_one(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.client(await site.talked())
        plain, windowed = await snapshot(client), await snapshot(client, include_transcript_window=True)
        assert "transcript_window" not in plain["run_state"]
        assert [item["type"] for item in windowed["run_state"]["transcript_window"]] == ["user_text", "assistant_text"]
        assert windowed["transcript"] == plain["transcript"]


@pytest.mark.req("MC-CMD-009")
async def test_refused_commands_leave_the_session_as_it_was(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.client(await site.talked())
        before = await snapshot(client)
        assert [
            await client.ask("send"),
            await client.ask("send", text=5),
            await client.ask("send", text="x", color="red"),
            await client.ask("approve"),
            await client.ask("approve", call_id="x"),
            await client.ask("abort"),
            await client.ask("dance"),
            await client.ask("set_title", title="x"),
            await client.ask("send", text="x", delivery="queue"),
            await client.ask("hello", v="2.0.0"),
            await client.ask("hello"),
        ] == [
            "MISSING_FIELD", "BAD_ARGUMENT", "BAD_ARGUMENT", "MISSING_FIELD", "UNKNOWN_CALL_ID", "NOT_RUNNING",
            "INVALID_COMMAND", "INVALID_COMMAND", "BAD_ARGUMENT", "BAD_ARGUMENT", "MISSING_FIELD",
        ]  # fmt: skip
        assert await snapshot(client) == before


@pytest.mark.req("MC-ENV-002", "MC-EVT-012", "MC-EVT-006")
async def test_a_client_of_the_document_sees_nothing_beyond_it(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, f"think: Hm.\n{TWO_WRITES}") as site:
        session_id = await site.session(cwd=project)
        plain, streaming, full = [await site.client(session_id, *names) for names in ((), ("streaming",), BOTH)]
        await full.ask("set_title", title="Two writes")
        await full.ask("send", text="write", images=[])
        for _ in range(2):
            asked = (await full.until("approval_pending"))[-1]
            await full.ask("approve", call_id=asked["call_id"], scope="once", digest=asked["digest"])
        await full.until_over()
        await plain.until_over()
        await streaming.until_over()
        assert set(plain.kinds()) <= NAMED_BY_DOCUMENT
        assert set(streaming.kinds()) <= NAMED_BY_DOCUMENT | {"assistant_text_delta", "reasoning_delta"}
        own = {"title_changed", "turn_started", "turn_ended", "tool_started", "usage", "run_ended"}
        assert own <= set(full.kinds())
        assert [frame["event_id"] for frame in logged(plain.frames)] == [
            frame["event_id"] for frame in logged(full.frames) if frame["type"] in NAMED_BY_DOCUMENT
        ]
        spoken = "".join(frame["text"] for frame in streaming.of_type("assistant_text_delta"))
        assert spoken == "".join(frame["text"] for frame in plain.of_type("assistant_text")) == "Both written."
        assert (await snapshot(plain))["transcript"][0] == {"type": "user_text", "text": "write"}


async def test_makai_commands_over_the_socket(tmp_path: Path) -> None:
    async with serving(tmp_path, TALK) as site:
        session_id = await site.session()
        client, other = await site.client(session_id, *BOTH), await site.client(session_id, *BOTH)
        assert await client.ask("set_title", title="A title") == "accepted"
        assert await client.ask("set_mode", mode="plan") == "accepted"
        assert await client.ask("set_mode", mode="godlike") == "BAD_ARGUMENT"
        assert await client.ask("send", text="first") == "accepted"
        assert await client.ask("send", text="second", delivery="queue", client_msg_id="q") == "accepted"
        accepted = (await other.until("input_accepted"))[-1]
        assert (accepted["text"], accepted["delivery"], accepted["client_msg_id"]) == ("second", "queue", "q")
        await client.say("get_snapshot")
        details = (await client.until("session_details"))[-1]
        assert (details["title"], details["mode"]) == ("A title", "plan")
        assert [waiting["text"] for waiting in details["waiting"]] == ["second"]
        await client.until_over()
        await client.until_over()
        assert [frame["text"] for frame in client.of_type("user_text")] == ["first", "second"]


async def test_a_waiting_message_is_taken_back_for_every_client_and_never_runs(tmp_path: Path, project: Path) -> None:
    picture = {"data": "iVBORw0KGgo=", "mime_type": "image/png"}
    async with serving(tmp_path, ONE_WRITE) as site:
        session_id = await site.session(cwd=project)
        client, other = await site.client(session_id, *BOTH), await site.client(session_id, *BOTH)
        plain = await site.client(session_id)
        assert await client.ask("send", text="write") == "accepted"
        asked = (await client.until("approval_pending"))[-1]
        for text in ("second", "third"):
            assert await client.ask("send", text=text, delivery="queue", images=[picture]) == "accepted"
        second, third = [(await other.until("input_accepted"))[-1] for _ in range(2)]
        await other.say("get_snapshot")
        details = (await other.until("session_details"))[-1]
        assert details["waiting"] == [
            {"input_id": frame["input_id"], "text": text, "delivery": "queue", "images": [picture]}
            for frame, text in ((second, "second"), (third, "third"))
        ]
        assert await plain.ask("withdraw", input_id=second["input_id"]) == "INVALID_COMMAND"
        assert await client.ask("withdraw", input_id=second["input_id"]) == "accepted"
        gone = (await other.until("input_withdrawn"))[-1]
        assert gone == {
            "type": "input_withdrawn",
            "input_id": second["input_id"],
            "event_id": third["event_id"] + 1,
            "ts": gone["ts"],
        }
        assert await other.ask("withdraw", input_id=second["input_id"]) == "INPUT_NOT_WAITING"
        assert await client.ask("withdraw", input_id=third["input_id"]) == "accepted"
        assert await client.ask("deny", call_id=asked["call_id"]) == "accepted"
        await client.until_over()
        await client.say("get_snapshot")
        assert (await client.until("session_details"))[-1]["waiting"] == []
        assert [frame["text"] for frame in client.of_type("user_text")] == ["write"]
        await plain.until_over()
        assert "input_withdrawn" not in plain.kinds()


@pytest.mark.req("MC-APPR-005", "MC-APPR-006", "MC-APPR-008")
async def test_calls_are_decided_one_by_one_and_each_only_once(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, TWO_PAGES) as site:
        client = await site.client(await site.session(cwd=project))
        await client.ask("send", text="look them up")
        first, second = [(await client.until("approval_pending"))[-1]["call_id"] for _ in range(2)]
        assert await client.ask("deny", call_id=first) == "accepted"
        assert await client.ask("approve", call_id=first) == "APPROVAL_CONFLICT"
        assert await client.ask("approve", call_id="never-was") == "UNKNOWN_CALL_ID"
        status = (await snapshot(client))["run_state"]
        assert status["status"] == "awaiting_approval"
        assert [call["call_id"] for call in status["pending_approvals"]] == [second]
        assert await client.ask("deny", call_id=second) == "accepted"
        await client.until_over()
        decisions = [(frame["call_id"], frame["decision"]) for frame in client.of_type("approval_decision")]
        assert decisions == [(first, "deny_continue"), (second, "deny_continue")]
        outputs = {frame["call_id"]: frame["output"] for frame in client.of_type("function_call_output")}
        assert outputs == {first: "denied", second: "denied"}


@pytest.mark.req("MC-APPR-007")
async def test_of_two_clients_who_decide_at_once_one_wins(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, f"{ONE_WRITE}\n---\n{ONE_WRITE}") as site:
        for round_number in range(1, 6):
            session_id = await site.session(cwd=project)
            clients = [await site.client(session_id) for _ in range(4)]
            await clients[0].ask("send", text="write")
            asked = [(await client.until("approval_pending"))[-1]["call_id"] for client in clients]
            answers = await asyncio.gather(*(client.ask("approve", call_id=asked[0]) for client in clients))
            assert sorted(answers) == ["APPROVAL_CONFLICT"] * 3 + ["accepted"]
            for client in clients:
                await client.until_over()
                assert len(client.of_type("approval_decision")) == 1
            assert (project / "made").read_text(encoding="utf-8") == "one\n" * round_number


@pytest.mark.req("MC-APPR-009", "MC-RESUME-005")
async def test_a_question_outlives_everyone_who_saw_it_and_the_server(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, ONE_WRITE) as site:
        session_id = await site.session(cwd=project)
        client = await site.client(session_id)
        await client.ask("send", text="write")
        call_id = (await client.until("approval_pending"))[-1]["call_id"]
        client.drop()
        again = await site.connect(session_id)
        shown = await again.hello()
        assert shown["session_state"]["active_run_id"] == shown["run_state"]["run_id"]
        assert shown["run_state"]["status"] == "awaiting_approval"
    async with serving(tmp_path, ONE_WRITE) as site:
        client = await site.connect(session_id)
        shown = await client.hello()
        assert shown["run_state"]["pending_approvals"] == [
            {"call_id": call_id, "tool_key": "shell", "args": {"command": "echo one >> made"}}
        ]
        assert await client.ask("approve", call_id=call_id) == "accepted"
        await client.until_over()
        assert (project / "made").read_text(encoding="utf-8") == "one\n"


@pytest.mark.proof("T4")
async def test_an_approval_of_other_arguments_than_were_shown_is_refused(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, ONE_WRITE) as site:
        client = await site.client(await site.session(cwd=project), *BOTH)
        await client.ask("send", text="write")
        asked = (await client.until("approval_pending"))[-1]
        assert await client.ask("approve", call_id=asked["call_id"], digest="0" * 64) == "APPROVAL_CONFLICT"
        assert not (project / "made").exists()
        assert await client.ask("approve", call_id=asked["call_id"], digest=asked["digest"]) == "accepted"
        await client.until_over()


@pytest.mark.parametrize("is_running", [False, True], ids=["idle", "running"])
async def test_a_deleted_session_says_so_and_closes_with_4404(tmp_path: Path, is_running: bool) -> None:
    async with serving(tmp_path, "pace: 5ms\nrepeat: 100000 word ") as site:
        session_id = await site.session()
        clients = [await site.client(session_id) for _ in range(3)]
        bystander = await site.client(await site.session())
        if is_running:
            await clients[0].ask("send", text="go")
        assert (await site.ask("DELETE", f"/api/sessions/{session_id}"))[0] == 204
        assert [await client.closed() for client in clients] == [4404] * 3
        assert [client.frames[-1]["code"] for client in clients] == ["UNKNOWN_SESSION"] * 3
        assert await bystander.ask("ping") == "accepted"
        late = await site.connect(session_id)
        assert await late.ask("hello", v="1.0.0") == "UNKNOWN_SESSION"


@pytest.mark.proof("limit-heartbeat")
@pytest.mark.req("MC-EVT-010")
async def test_an_idle_connection_has_a_heartbeat(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO, heartbeat_s=0.05) as site:
        client = await site.client(await site.session())
        loop = asyncio.get_running_loop()
        begun = loop.time()
        beats = [await client.hear() for _ in range(10)]
        assert beats == [{"type": "heartbeat", "interval_ms": 50}] * 10
        assert 0.4 <= loop.time() - begun < 30


@pytest.mark.proof("W3")
async def test_text_that_is_no_command_is_answered_and_binary_ends_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.client(await site.session())
        for text in ("", "nonsense", "[]", '"send"', "{}", '{"type":5}', "[" * 5000, '{"type":"ping"'):
            await client.say_raw(text)
            refused = (await client.until("error"))[-1]
            assert refused["code"] == "INVALID_COMMAND"
        assert await client.ask("ping") == "accepted"
        await client._socket.send_bytes(b'{"type":"ping"}')
        assert await client.closed() == 1003


async def test_a_server_that_ends_says_going_away_and_does_not_wait_for_its_clients(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        clients = [await site.client(session_id), await site.client(session_id), await site.connect(session_id)]
        begun = asyncio.get_running_loop().time()
        closing = asyncio.gather(*(client.closed() for client in clients))
        await site.stop()
        assert await closing == [1001] * 3
        assert asyncio.get_running_loop().time() - begun < 2 * slack()


async def test_when_only_the_sessions_end_clients_are_told_too(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.client(await site.session())
        await site.sessions.close()
        assert await client.closed() == 1001


async def test_a_run_begun_by_another_protocol_is_seen_in_full(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        client = await site.client(session_id)
        words = Send(now=0, input_id="i-1", content="hi", terms=RunTerms())
        await site.sessions.dispatch(RunCommand(session_id, words))
        await client.until("turn_done")
        assert [frame["text"] for frame in client.of_type("user_text")] == ["hi"]
