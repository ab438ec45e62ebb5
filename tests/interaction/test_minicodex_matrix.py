"""Every row of the MiniCodex test matrix on a real WebSocket, with real sessions over SQLite.

Every frame that arrives is checked against the generated schema by `MinicodexClient`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.minicodex_client import BOTH, JSON, MinicodexClient, logged
from support.serving import serving

from makai.sessions.requests import GetState, ListSessions

HELLO = "say: Hello to you.\nusage: input=5 output=4\n---\nsay: Hello again."
SLOW = "pace: 5ms\nrepeat: 100000 word "
WRITES = 'say: I write it.\ntool: shell {"command": "echo done >> made"}\n---\nsay: It is written.'


def statuses(frames: list[JSON]) -> list[str]:
    return [frame["run_state"]["status"] for frame in frames if frame["type"] == "run_status"]


@asynccontextmanager
async def asked_to_write(folder: Path, project: Path) -> AsyncIterator[tuple[MinicodexClient, JSON]]:
    """A client whose model wants to write, and the question."""
    async with serving(folder, WRITES) as site:
        client = await site.client(await site.session(cwd=project))
        await client.ask("send", text="write it")
        yield client, (await client.until("approval_pending"))[-1]


@pytest.mark.req("MC-CMD-001", "MC-EVT-001", "MC-EVT-002", "MC-EVT-003")
async def test_a_fresh_connection_without_a_session_gets_a_new_one_and_hello_welcome_snapshot(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        client = await site.connect(session_id)
        await client.say("hello", v="1.0.0")
        await client.until("snapshot")
        state = {
            "session_id": session_id,
            "version": "1.0.0",
            "capabilities": ["reasoning", "approvals", "replay", "streaming", "makai.1"],
            "last_event_id": None,
            "active_run_id": None,
            "run_counter": 0,
        }
        welcome = {"type": "welcome", "v": "1.0.0", "session_state": state}
        shown: JSON = {"type": "snapshot", "run_state": None, "transcript": [], "event_id": 0}
        assert client.frames == [{"type": "accepted"}, welcome, welcome | shown]


async def test_an_address_without_a_session_leads_to_a_new_one(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.connect()
        snapshot = await client.hello()
        session_id = snapshot["session_state"]["session_id"]
        assert session_id in [summary.session_id for summary in await site.sessions.dispatch(ListSessions())]
        assert snapshot["transcript"] == []


@pytest.mark.req("MC-RUN-001", "MC-RUN-002", "MC-RUN-004", "MC-CMD-006", "MC-ENV-005")
async def test_a_message_is_accepted_answered_finished_and_done(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.client(await site.session())
        assert await client.ask("send", text="hi") == "accepted"
        heard = await client.until("turn_done")
        assert [frame["type"] for frame in heard] == [
            "run_status", "user_text", "run_status", "assistant_text", "run_status", "turn_done",
        ]  # fmt: skip
        assert statuses(heard) == ["starting", "running", "finished"]
        assert (heard[1]["text"], heard[3]["text"]) == ("hi", "Hello to you.")
        (run_id,) = {frame["run_id"] for frame in heard}
        unfinished = [frame["run_state"]["finished_at"] is None for frame in heard if "run_state" in frame]
        assert unfinished == [True, True, False]
        assert heard[0]["run_state"]["run_id"] == run_id


@pytest.mark.req("MC-APPR-001", "MC-APPR-002", "MC-RUN-003", "MC-EVT-007", "MC-EVT-008")
async def test_a_tool_is_asked_for_approved_and_run_once(tmp_path: Path, project: Path) -> None:
    async with asked_to_write(tmp_path, project) as (client, asked):
        assert not (project / "made").exists()
        assert await client.ask("approve", call_id=asked["call_id"]) == "accepted"
        heard = await client.until_over()
        assert [frame["type"] for frame in heard] == [
            "approval_decision", "run_status", "function_call_output", "assistant_text", "run_status",
        ]  # fmt: skip
        assert heard[0]["decision"] == "approve"
        assert statuses(heard) == ["running", "finished"]
        assert heard[2]["call_id"] == asked["call_id"]
        assert "turn_done" not in client.kinds()
        assert (project / "made").read_text(encoding="utf-8") == "done\n"


@pytest.mark.req("MC-APPR-003")
async def test_a_denied_tool_is_not_run_and_the_run_goes_on(tmp_path: Path, project: Path) -> None:
    async with asked_to_write(tmp_path, project) as (client, asked):
        assert await client.ask("deny", call_id=asked["call_id"]) == "accepted"
        heard = await client.until_over()
        assert [frame["decision"] for frame in heard if frame["type"] == "approval_decision"] == ["deny_continue"]
        assert statuses(heard) == ["running", "finished"]
        assert not (project / "made").exists()


@pytest.mark.req("MC-RUN-008", "MC-RUN-009")
async def test_an_abort_comes_as_aborting_error_finished_and_done(tmp_path: Path) -> None:
    async with serving(tmp_path, SLOW) as site:
        client = await site.client(await site.session(), "streaming")
        await client.ask("send", text="count")
        run_id = (await client.until("assistant_text_delta"))[-1]["run_id"]
        assert await client.ask("abort") == "accepted"
        heard = await client.until("turn_done")
        order = [frame for frame in heard if frame["type"] in ("run_status", "error", "turn_done", "assistant_text")]
        assert [frame["type"] for frame in order] == ["run_status", "error", "run_status", "turn_done"]
        assert statuses(order) == ["aborting", "finished"]
        assert (order[1]["code"], order[1]["run_id"]) == ("ABORTED", run_id)
        assert await client.ask("send", text="and now?") == "accepted"


@pytest.mark.req("MC-APPR-004", "MC-RUN-008")
async def test_an_abort_denies_what_was_pending_first(tmp_path: Path, project: Path) -> None:
    async with asked_to_write(tmp_path, project) as (client, asked):
        await client.ask("abort")
        heard = await client.until("turn_done")
        assert [frame["type"] for frame in heard] == [
            "run_status", "error", "approval_decision", "function_call_output", "run_status", "turn_done",
        ]  # fmt: skip
        assert statuses(heard) == ["aborting", "finished"]
        assert (heard[2]["call_id"], heard[2]["decision"]) == (asked["call_id"], "deny_abort")
        assert not (project / "made").exists()


@pytest.mark.req("MC-RESUME-001", "MC-RESUME-002", "MC-ENV-006")
@pytest.mark.parametrize("capabilities", [(), BOTH], ids=["document", "makai.1"])
async def test_a_resume_repeats_what_was_sent(tmp_path: Path, project: Path, capabilities: tuple[str, ...]) -> None:
    async with serving(tmp_path, f"think: Hm.\n{WRITES}") as site:
        session_id = await site.session(cwd=project)
        client = await site.client(session_id, *capabilities)
        await client.ask("send", text="write it")
        asked = (await client.until("approval_pending"))[-1]
        await client.ask("approve", call_id=asked["call_id"])
        await client.until_over()
        live = logged(client.frames)
        last = (await site.sessions.dispatch(GetState(session_id))).last_event_id
        for cursor in range(last + 1):
            again = await site.connect(session_id, *capabilities)
            assert await again.resume(cursor) == "accepted"
            expected = [frame for frame in live if frame["event_id"] > cursor]
            while len(logged(again.frames)) < len(expected):
                await again.hear()
            assert await again.ask("ping") == "accepted"
            assert logged(again.frames) == expected
            assert again.kinds()[:2] == ["accepted", "welcome"]
            await again.close()


@pytest.mark.req("MC-RESUME-001")
async def test_a_client_that_comes_back_in_the_middle_of_a_run_misses_and_repeats_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, "pace: 1ms\nrepeat: 300 word ") as site:
        session_id = await site.session()
        witness = await site.client(session_id, *BOTH)
        client = await site.client(session_id, *BOTH)
        await client.ask("send", text="talk")
        received: list[JSON] = []
        for _ in range(10):
            for _ in range(5):
                await client.hear()
            received += logged(client.frames)
            client.drop()
            client = await site.connect(session_id, *BOTH)
            assert await client.resume(received[-1]["event_id"] if received else 0) == "accepted"
        await client.until_over()
        received += logged(client.frames)
        await witness.until_over()
        assert received == logged(witness.frames)


@pytest.mark.req("MC-RUN-011", "MC-ENV-006", "MC-ENV-007", "MC-RUN-006")
async def test_two_clients_see_the_same_and_only_the_asker_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        first, second = await site.client(session_id), await site.client(session_id)
        stranger = await site.client(await site.session())
        for sent_by in (first, second):  # the second is a repetition, by another client
            assert await sent_by.ask("send", text="hi", client_msg_id="m-1") == "accepted"
        await first.until("turn_done")
        await second.until("turn_done")
        assert await second.ask("send", text="hi", client_msg_id="m-1") == "accepted"
        assert await second.ask("send") == "MISSING_FIELD"
        for client in (first, second, stranger) * 2:  # what the first ping brought along is there after the second
            assert await client.ask("ping") == "accepted"
        assert logged(first.frames) == logged(second.frames) != []
        assert [frame["text"] for frame in first.of_type("user_text")] == ["hi"]
        assert [len(client.of_type("error")) for client in (first, second, stranger)] == [0, 1, 0]
        assert [len(client.of_type("accepted")) for client in (first, second, stranger)] == [4, 5, 3]
        assert logged(stranger.frames) == []


@pytest.mark.req("MC-RUN-006")
async def test_a_repeated_message_is_ignored_after_a_reconnect_and_after_a_restart(tmp_path: Path) -> None:
    async def repeat(client: MinicodexClient) -> int:
        assert await client.ask("send", text="hi", client_msg_id="m-1") == "accepted"
        await client.say("get_snapshot")
        snapshot = (await client.until("snapshot"))[-1]
        assert [item["text"] for item in snapshot["transcript"] if item["type"] == "user_text"] == ["hi"]
        return int(snapshot["session_state"]["run_counter"])

    async with serving(tmp_path, HELLO) as site:
        session_id = await site.session()
        client = await site.client(session_id)
        await client.ask("send", text="hi", client_msg_id="m-1")
        await client.until("turn_done")
        client.drop()
        assert await repeat(await site.client(session_id)) == 1
    async with serving(tmp_path, HELLO) as site:
        again = await site.client(session_id)
        assert await repeat(again) == 1
        assert await again.ask("send", text="new words", client_msg_id="m-2") == "accepted"
        await again.until("turn_done")


@pytest.mark.req("MC-RUN-007")
async def test_a_failed_run_says_why_to_everyone_and_the_next_one_goes(tmp_path: Path) -> None:
    async with serving(tmp_path, "fail: rate_limited Slow down, please.\n---\nsay: Better.") as site:
        session_id = await site.session()
        first, second = await site.client(session_id), await site.client(session_id)
        await first.ask("send", text="hi")
        for client in (first, second):
            await client.until("error")
            assert statuses(client.frames) == ["starting", "running", "error"]
        assert [frame["code"] for frame in first.of_type("error")] == ["RATE_LIMITED"]
        assert first.of_type("error") == second.of_type("error")
        assert await second.ask("send", text="again") == "accepted"
        await second.until_over()


async def test_abort_and_approval_commands_that_mean_nothing_change_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, SLOW) as site:
        client = await site.client(await site.session())
        assert await client.ask("abort") == "NOT_RUNNING"
        assert await client.ask("approve", call_id="unknown") == "UNKNOWN_CALL_ID"
        await client.ask("send", text="go")
        await client.until_status("running")
        assert await client.ask("abort", run_id="00000000-0000-4000-8000-000000000000") == "STALE_RUN_ID"
        assert await client.ask("send", text="too early") == "BUSY"
        assert await client.ask("abort") == "accepted"
        await client.until("turn_done")
        assert statuses(client.frames) == ["starting", "running", "aborting", "finished"]
