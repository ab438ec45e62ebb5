"""Every row of the MiniCodex test matrix on a real WebSocket, with real sessions over SQLite: with makai's own agent,
and with another process of makai that is driven over the Agent Client Protocol.

Every frame that arrives is checked against the generated schema by `MinicodexClient`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from support.driven_makai import HARNESS, add_driven_makai
from support.minicodex_client import BOTH, JSON, MinicodexClient, logged
from support.serving import Site
from support.serving import serving as serving_harness

from makai.sessions.requests import GetState, ListSessions

HELLO = "say: Hello to you.\nusage: input=5 output=4\n---\nsay: Hello again."
SLOW = "pace: 5ms\nrepeat: 100000 word "
WRITES = 'say: I write it.\ntool: shell {"command": "echo done >> made"}\n---\nsay: It is written.'
ENDS = ("turn_done", "run_ended")


Serving: TypeAlias = Callable[[Path, str], AbstractAsyncContextManager[Site]]


@pytest.fixture(params=["native", HARNESS])
def serving(request: pytest.FixtureRequest) -> Serving:
    """Serves sessions whose agent follows a scenario."""

    @asynccontextmanager
    async def serve(folder: Path, scenario: str) -> AsyncIterator[Site]:
        if request.param == HARNESS:
            add_driven_makai(folder, scenario)
        async with serving_harness(folder, scenario, harness=request.param) as site:
            yield site

    return serve


def statuses(frames: list[JSON]) -> list[str]:
    return [frame["run_state"]["status"] for frame in frames if frame["type"] == "run_status"]


@asynccontextmanager
async def asked_to_write(serving: Serving, folder: Path, project: Path) -> AsyncIterator[tuple[MinicodexClient, JSON]]:
    """A client whose model wants to write, and the question."""
    async with serving(folder, WRITES) as site:
        client = await site.client(await site.session(cwd=project))
        await client.ask("send", text="write it")
        yield client, (await client.until("approval_pending"))[-1]


@pytest.mark.req("MC-CMD-001", "MC-EVT-001", "MC-EVT-002", "MC-EVT-003")
async def test_a_fresh_connection_without_a_session_gets_a_new_one_and_hello_welcome_snapshot(
    serving: Serving, tmp_path: Path
) -> None:
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


async def test_an_address_without_a_session_leads_to_a_new_one(serving: Serving, tmp_path: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        client = await site.connect()
        snapshot = await client.hello()
        session_id = snapshot["session_state"]["session_id"]
        assert session_id in [summary.session_id for summary in await site.sessions.dispatch(ListSessions())]
        assert snapshot["transcript"] == []


@pytest.mark.req("MC-RUN-001", "MC-RUN-002", "MC-RUN-004", "MC-CMD-006", "MC-ENV-005")
async def test_a_message_is_accepted_answered_finished_and_done(serving: Serving, tmp_path: Path) -> None:
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
async def test_a_tool_is_asked_for_approved_and_run_once(serving: Serving, tmp_path: Path, project: Path) -> None:
    async with asked_to_write(serving, tmp_path, project) as (client, asked):
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
async def test_a_denied_tool_is_not_run_and_the_run_goes_on(serving: Serving, tmp_path: Path, project: Path) -> None:
    async with asked_to_write(serving, tmp_path, project) as (client, asked):
        assert await client.ask("deny", call_id=asked["call_id"]) == "accepted"
        heard = await client.until_over()
        assert [frame["decision"] for frame in heard if frame["type"] == "approval_decision"] == ["deny_continue"]
        assert statuses(heard) == ["running", "finished"]
        assert not (project / "made").exists()


@pytest.mark.req("MC-RUN-008", "MC-RUN-009")
async def test_an_abort_comes_as_aborting_error_finished_and_done(serving: Serving, tmp_path: Path) -> None:
    async with serving(tmp_path, SLOW) as site:
        client = await site.client(await site.session(), "streaming")
        await client.ask("send", text="count")
        run_id = (await client.until("assistant_text_delta"))[-1]["run_id"]
        assert await client.ask("abort") == "accepted"
        heard = await client.until("turn_done")
        order = [frame for frame in heard if frame["type"] in ("run_status", "error", "turn_done", "assistant_text")]
        assert [frame["type"] for frame in order] == [
            "assistant_text",
            "run_status",
            "error",
            "run_status",
            "turn_done",
        ]
        assert statuses(order) == ["aborting", "finished"]
        assert (order[2]["code"], order[2]["run_id"]) == ("ABORTED", run_id)
        assert await client.ask("send", text="and now?") == "accepted"


@pytest.mark.req("MC-RUN-009", "MC-RESUME-001", "MC-EVT-006")
async def test_every_client_has_the_words_of_an_aborted_answer_live_replayed_and_after_a_restart(
    serving: Serving,
    tmp_path: Path,
) -> None:
    forms = {"plain": (), "streaming": ("streaming",), "makai": ("makai.1",), "both": BOTH}
    live: dict[str, list[JSON]] = {}
    async with serving(tmp_path, SLOW) as site:
        session_id = await site.session()
        clients = {name: await site.client(session_id, *names) for name, names in forms.items()}
        await clients["both"].ask("send", text="count")
        await clients["both"].until("assistant_text_delta")
        await clients["plain"].ask("abort")
        for name, client in clients.items():
            await client.until("turn_done")
            live[name] = logged(client.frames)
        said = "".join(frame["text"] for frame in live["both"] if frame["type"] == "assistant_text_delta")
        assert said.startswith("word")
        for frames in live.values():
            assert [frame["text"] for frame in frames if frame["type"] == "assistant_text"] == [said]
        shown = [await again(site, session_id, names, live[name]) for name, names in forms.items()]
    async with serving(tmp_path, SLOW) as site:
        assert [await again(site, session_id, names, live[name]) for name, names in forms.items()] == shown
        assert shown[0] == [{"type": "user_text", "text": "count"}, {"type": "assistant_text", "text": said}]
        marks = [(item["text"], item.get("broken_off")) for item in shown[3] if item["type"] == "assistant_text"]
        assert marks == [(said, True)]
        _, exported = await site.ask("GET", f"/api/sessions/{session_id}/export?format=md")
        assert f"{said.strip()}\n\n*(broken off here)*" in exported


@pytest.mark.req("MC-RESUME-001", "MC-EVT-006")
@pytest.mark.parametrize("broken", ["say: Half an", "think: Hm"])
async def test_every_client_has_the_words_of_an_answer_that_failed_live_replayed_and_after_a_restart(
    serving: Serving, tmp_path: Path, broken: str
) -> None:
    forms = {"plain": (), "streaming": ("streaming",), "makai": ("makai.1",), "both": BOTH}
    live: dict[str, list[JSON]] = {}
    said = {"type": "assistant_text" if broken.startswith("say") else "reasoning", "text": broken.split(": ")[1]}
    scenario = f"{broken}\nfail: invalid_request The model cannot go on."
    async with serving(tmp_path, scenario) as site:
        session_id = await site.session()
        clients = {name: await site.client(session_id, *names) for name, names in forms.items()}
        await clients["plain"].ask("send", text="count")
        for name, client in clients.items():
            await client.until("error")
            live[name] = logged(client.frames)
            assert [frame["text"] for frame in live[name] if frame["type"] == said["type"]] == [said["text"]]
        shown = [await again(site, session_id, names, live[name], "error") for name, names in forms.items()]
    async with serving(tmp_path, scenario) as site:
        assert [await again(site, session_id, names, live[name], "error") for name, names in forms.items()] == shown
        assert shown[0] == [{"type": "user_text", "text": "count"}, said]
        assert [item["text"] for item in shown[3] if item["type"] == said["type"]] == [said["text"]]


async def again(
    site: Site, session_id: str, names: tuple[str, ...], live: list[JSON], end: str = "turn_done"
) -> list[JSON]:
    """The transcript for a client that comes now; a replay of the log repeats what was heard `live`."""
    reader = await site.client(session_id, *names)
    (snapshot,) = reader.of_type("snapshot")
    reader.frames.clear()
    assert await reader.resume(0) == "accepted"
    await reader.until(end)
    assert logged(reader.frames) == live
    await reader.close()
    transcript: list[JSON] = snapshot["transcript"]
    return transcript


@pytest.mark.req("MC-APPR-004", "MC-RUN-008")
async def test_an_abort_denies_what_was_pending_first(serving: Serving, tmp_path: Path, project: Path) -> None:
    async with asked_to_write(serving, tmp_path, project) as (client, asked):
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
async def test_a_resume_repeats_what_was_sent(
    serving: Serving, tmp_path: Path, project: Path, capabilities: tuple[str, ...]
) -> None:
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
async def test_a_client_that_comes_back_in_the_middle_of_a_run_misses_and_repeats_nothing(
    serving: Serving, tmp_path: Path
) -> None:
    async with serving(tmp_path, "pace: 1ms\nrepeat: 300 word ") as site:
        session_id = await site.session()
        witness = await site.client(session_id, *BOTH)
        client = await site.client(session_id, *BOTH)
        await client.ask("send", text="talk")
        received: list[JSON] = []
        for _ in range(10):
            for _ in range(5):
                if not has_ended(client):  # a busy machine can be slower than the model
                    await client.hear()
            received += logged(client.frames)
            client.drop()
            client = await site.connect(session_id, *BOTH)
            assert await client.resume(received[-1]["event_id"] if received else 0) == "accepted"
            if has_ended(client) or any(frame["type"] in ENDS for frame in received):
                break
        else:
            await client.until_over()
        received += logged(client.frames)
        await witness.until_over()
        assert received == logged(witness.frames)


def has_ended(client: MinicodexClient) -> bool:
    return any(frame["type"] in ENDS for frame in client.frames)


@pytest.mark.req("MC-RUN-011", "MC-ENV-006", "MC-ENV-007", "MC-RUN-006")
async def test_two_clients_see_the_same_and_only_the_asker_is_answered(serving: Serving, tmp_path: Path) -> None:
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


@pytest.mark.proof("D7")
@pytest.mark.req("MC-RUN-006")
async def test_a_repeated_message_is_ignored_after_a_reconnect_and_after_a_restart(
    serving: Serving, tmp_path: Path
) -> None:
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
async def test_a_failed_run_says_why_to_everyone_and_the_next_one_goes(serving: Serving, tmp_path: Path) -> None:
    async with serving(tmp_path, "fail: rate_limited Slow down, please.\n---\nsay: Better.") as site:
        session_id = await site.session()
        first, second = await site.client(session_id), await site.client(session_id)
        await first.ask("send", text="hi")
        for client in (first, second):
            await client.until("error")
            assert statuses(client.frames) == ["starting", "running", "error"]
        (why,) = first.of_type("error")
        assert why["code"] == ("RATE_LIMITED" if site.harness == "native" else "AGENT_FAILED")
        assert "Slow down, please." in why["message"]
        assert first.of_type("error") == second.of_type("error")
        assert await second.ask("send", text="again") == "accepted"
        await second.until_over()


@pytest.mark.proof("T4")
async def test_abort_and_approval_commands_that_mean_nothing_change_nothing(serving: Serving, tmp_path: Path) -> None:
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
