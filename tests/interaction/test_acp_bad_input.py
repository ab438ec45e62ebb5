"""What clients of `makai acp` do wrong: each mistake gets a documented code, and the connection stays usable."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.acp_peer import EVERYTHING, AcpPeer, Refusal, acp_process, choosing, text_of
from support.acp_schema import JSON
from support.acp_server import acp_house
from support.machine import slack

TALK = """
when: at length
pace: 5ms
repeat: 100000 word
---
say: Good day.
"""
WRITE = """
tool: write {"path": "note.txt", "content": "written"}
---
say: Done.
"""
READ = """
tool: read {"path": "note.txt"}
---
say: Done.
"""
SLEEP = """
tool: shell {"command": "sleep 1000"}
---
say: Done.
"""


@asynccontextmanager
async def agent(
    folder: Path, scenario: str = TALK, capabilities: JSON | None = None
) -> AsyncIterator[tuple[AcpPeer, str]]:
    """A client that opened a session in `folder/project`."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    async with acp_house(folder, scenario) as house, house.connect() as peer:
        await peer.initialize(capabilities)
        yield peer, (await peer.new_session(project))["sessionId"]
        assert "sessionId" in await peer.new_session(project), "the connection is of no use any more"


def final_statuses(updates: list[JSON]) -> list[str]:
    """The last status of each call."""
    statuses = {update["toolCallId"]: update["status"] for update in updates if "status" in update}
    return [*statuses.values()]


@pytest.mark.req("ACP-INIT-004", "ACP-INIT-005")
@pytest.mark.parametrize(
    ("params", "outcome"),
    [
        ({"protocolVersion": 0}, 1),
        ({"protocolVersion": 2}, 1),
        ({"protocolVersion": 65535}, 1),
        ({"protocolVersion": "1"}, -32602),
        ({"protocolVersion": 1.5}, -32602),
        ({"protocolVersion": -1}, -32602),
        ({"protocolVersion": None}, -32602),
        ({"protocolVersion": 65536}, -32602),
        ({}, -32602),
        ({"protocolVersion": 1, "clientCapabilities": []}, -32602),
        ({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": "yes"}}}, -32602),
    ],
)
async def test_versions_and_capabilities_that_are_wrong(tmp_path: Path, params: JSON, outcome: int) -> None:
    async with acp_house(tmp_path, TALK) as house, house.connect() as peer:
        if outcome == 1:
            assert (await peer.call("initialize", params))["protocolVersion"] == 1
        else:
            assert await peer.refused("initialize", params) == outcome
            assert (await peer.initialize())["protocolVersion"] == 1
        assert (await peer.call("session/list"))["sessions"] == []
        assert await peer.refused("initialize", {"protocolVersion": 1}) == -32600


@pytest.mark.parametrize("method", ["session/new", "session/prompt", "session/list", "authenticate", "_vendor/any"])
async def test_nothing_is_served_before_the_handshake(tmp_path: Path, method: str) -> None:
    async with acp_house(tmp_path, TALK) as house, house.connect() as peer:
        assert await peer.refused(method, {"cwd": "/", "mcpServers": []}) == -32600
        assert (await peer.initialize())["protocolVersion"] == 1


@pytest.mark.req("ACP-SESS-010", "ACP-SESS-008")
@pytest.mark.parametrize("session_id", ["unknown", "", "../../etc/passwd", "00000000-0000-4000-8000-000000000000"])
async def test_an_unknown_session_is_refused_by_every_method(tmp_path: Path, session_id: str) -> None:
    async with agent(tmp_path) as (peer, _):
        place: JSON = {"cwd": str(tmp_path), "mcpServers": []}
        codes = {
            method: await peer.refused(method, {"sessionId": session_id, **params})
            for method, params in {
                "session/load": place,
                "session/resume": place,
                "session/prompt": {"prompt": [{"type": "text", "text": "Hi"}]},
                "session/set_mode": {"modeId": "ask"},
                "session/set_model": {"modelId": "scripted/scenario"},
                "session/set_config_option": {"configId": "mode", "value": "ask"},
            }.items()
        }

    assert {*codes.values()} == {-32002}, codes


@pytest.mark.req("ACP-INIT-002", "ACP-INIT-007")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"cwd": "relative", "mcpServers": []}),
        ("session/new", {"cwd": "/"}),
        ("session/new", {"mcpServers": []}),
        ("session/new", {"cwd": 1, "mcpServers": []}),
        ("session/new", {"cwd": "/", "mcpServers": [{"name": "a"}]}),
        ("session/new", {"cwd": "/", "mcpServers": [{"type": "invented", "name": "a"}]}),
        ("session/new", {"cwd": "/nonexistent/folder", "mcpServers": []}),
        ("session/prompt", {"sessionId": "SESSION"}),
        ("session/prompt", {"sessionId": "SESSION", "prompt": "Hi"}),
        ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text"}]}),
        ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "invented", "text": "Hi"}]}),
        ("session/prompt", {"sessionId": "SESSION", "prompt": []}),
        ("session/set_mode", {"sessionId": "SESSION", "modeId": "invented"}),
        ("session/set_model", {"sessionId": "SESSION", "modelId": "no/such"}),
        ("session/set_config_option", {"sessionId": "SESSION", "configId": "invented", "value": "x"}),
        ("session/set_config_option", {"sessionId": "SESSION", "configId": "mode", "value": True}),
        ("session/list", {"cursor": "invented"}),
        ("session/list", {"cwd": "relative"}),
        ("authenticate", {"methodId": "invented"}),
        ("authenticate", {}),
    ],
)
async def test_parameters_that_are_wrong_are_invalid_params(tmp_path: Path, method: str, params: JSON) -> None:
    async with agent(tmp_path) as (peer, session_id):
        named = {key: session_id if value == "SESSION" else value for key, value in params.items()}

        assert await peer.refused(method, named) == -32602


@pytest.mark.req("ACP-PROMPT-010", "ACP-INIT-010")
async def test_a_prompt_while_one_runs_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    async with agent(tmp_path) as (peer, session_id):
        first = await peer.ask("session/prompt", peer.prompt_params(session_id, "at length"))
        await peer.until_update("agent_message_chunk", session_id)
        code = await peer.refused("session/prompt", peer.prompt_params(session_id, "Hello"))
        seen = len(peer.updates(session_id))
        await peer.until(lambda _: len(peer.updates(session_id)) > seen + 5)
        await peer.notify("session/cancel", {"sessionId": session_id})

        assert code == -32600
        assert (await peer.answer_to(first))["result"] == {"stopReason": "cancelled"}
        assert await peer.prompt(session_id, "Hello") == {"stopReason": "end_turn"}


@pytest.mark.req("ACP-PROMPT-008", "ACP-PERM-005")
async def test_a_permission_that_is_answered_after_the_cancel_runs_nothing(tmp_path: Path) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def late(params: JSON) -> JSON:
        asked.set()
        await cancelled.wait()
        answer: JSON = choosing("allow_always")(params)
        return answer

    async with agent(tmp_path, WRITE) as (peer, session_id):
        peer.answers["session/request_permission"] = late
        request_id = await peer.ask("session/prompt", peer.prompt_params(session_id, "Write."))
        await asyncio.wait_for(asked.wait(), 60)
        await peer.notify("session/cancel", {"sessionId": session_id})
        assert (await peer.answer_to(request_id))["result"] == {"stopReason": "cancelled"}
        cancelled.set()
        await peer.call("session/list")

        assert final_statuses(peer.updates(session_id)) == ["failed"]
        assert not (tmp_path / "project/note.txt").exists()


@pytest.mark.req("ACP-PROMPT-008", "ACP-INIT-010")
async def test_a_client_that_never_answers_a_question_still_gets_everything_else(tmp_path: Path) -> None:
    async with agent(tmp_path, WRITE) as (peer, session_id):
        peer.answers["session/request_permission"] = _never
        request_id = await peer.ask("session/prompt", peer.prompt_params(session_id, "Write."))
        await peer.until(lambda frame: frame.get("method") == "session/request_permission")
        other = await peer.new_session(tmp_path / "project")
        assert len((await peer.call("session/list"))["sessions"]) == 2
        await peer.call("session/set_mode", {"sessionId": other["sessionId"], "modeId": "plan"})
        await peer.notify("session/cancel", {"sessionId": session_id})

        assert (await peer.answer_to(request_id))["result"] == {"stopReason": "cancelled"}


async def _never(params: JSON) -> Any:
    await asyncio.Event().wait()


@pytest.mark.req("ACP-PERM-006")
@pytest.mark.parametrize(
    "answer",
    [
        {"outcome": {"outcome": "selected", "optionId": "invented"}},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "invented"}},
        {"outcome": "selected"},
        {},
        None,
        [],
        Refusal(-32603, "The window is closed."),
    ],
    ids=str,
)
async def test_a_malformed_answer_to_a_question_is_a_rejection(tmp_path: Path, answer: Any) -> None:
    def answered(params: JSON) -> Any:
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async with agent(tmp_path, WRITE) as (peer, session_id):
        peer.answers["session/request_permission"] = answered

        assert await peer.prompt(session_id, "Write.") == {"stopReason": "end_turn"}
        assert final_statuses(peer.updates(session_id)) == ["failed"]
        assert text_of(peer.updates(session_id)) == "Done."
        assert not (tmp_path / "project/note.txt").exists()


@pytest.mark.req("ACP-FS-004")
@pytest.mark.parametrize("scenario", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize(
    "answer", [Refusal(-32603, "Disk on fire."), Refusal(-32002, "No such file."), None, [], {"content": 7}], ids=str
)
async def test_a_file_error_of_the_client_is_a_failed_call(tmp_path: Path, scenario: str, answer: Any) -> None:
    def answered(params: JSON) -> Any:
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async with agent(tmp_path, scenario, {"fs": EVERYTHING["fs"]}) as (peer, session_id):
        (tmp_path / "project/note.txt").write_text("on the disk")
        peer.answers["session/request_permission"] = choosing("allow_once")
        peer.answers["fs/read_text_file"] = peer.answers["fs/write_text_file"] = answered

        assert await peer.prompt(session_id, "Please.") == {"stopReason": "end_turn"}
        if scenario == READ or isinstance(answer, Refusal):
            assert final_statuses(peer.updates(session_id)) == ["failed"]
        assert (tmp_path / "project/note.txt").read_text() == "on the disk"


@pytest.mark.req("ACP-TERM-008", "ACP-PROMPT-008")
async def test_a_terminal_that_never_ends_is_released_on_cancel(tmp_path: Path) -> None:
    async with agent(tmp_path, SLEEP, {"terminal": True}) as (peer, session_id):
        peer.answers |= {
            "session/request_permission": choosing("allow_once"),
            "terminal/create": lambda params: {"terminalId": "t1"},
            "terminal/output": lambda params: {"output": "", "truncated": False},
            "terminal/wait_for_exit": _never,
            "terminal/kill": lambda params: {},
            "terminal/release": lambda params: {},
        }
        request_id = await peer.ask("session/prompt", peer.prompt_params(session_id, "Sleep."))
        await peer.until(lambda frame: frame.get("method") == "terminal/wait_for_exit")
        await peer.notify("session/cancel", {"sessionId": session_id})

        assert (await peer.answer_to(request_id))["result"] == {"stopReason": "cancelled"}
        await peer.until(lambda frame: frame.get("method") == "terminal/release")
        assert final_statuses(peer.updates(session_id)) == ["failed"]


@pytest.mark.req("ACP-SESS-003")
async def test_an_mcp_server_that_fails_to_start_does_not_prevent_the_session(tmp_path: Path) -> None:
    async with agent(tmp_path) as (peer, _):
        servers = [
            {"name": "gone", "command": "/nonexistent/server", "args": [], "env": []},
            {"name": "dies", "command": sys.executable, "args": ["-c", "raise SystemExit(3)"], "env": []},
        ]
        session = await peer.new_session(tmp_path / "project", mcpServers=servers)

        assert await peer.prompt(session["sessionId"], "Hello") == {"stopReason": "end_turn"}


@pytest.mark.req("ACP-EXT-003", "ACP-INIT-008")
async def test_hostile_metadata_changes_nothing(tmp_path: Path) -> None:
    hostile = {
        "sessionId": "unknown", "session_id": "unknown", "cwd": "relative", "prompt": [], "self": 1, "__class__": {},
        "protocolVersion": 9, "clientCapabilities": {"terminal": True}, "": {"": [None] * 100}, "😀": "😀",
    }  # fmt: skip
    async with acp_house(tmp_path, WRITE) as house, house.connect() as peer:
        project = tmp_path / "project"
        project.mkdir()
        peer.answers["session/request_permission"] = choosing("allow_once")
        initialized = await peer.initialize(_meta=hostile)
        session = await peer.new_session(project, _meta=hostile)
        block = {"type": "text", "text": "Write.", "_meta": hostile}
        result = await peer.prompt(session["sessionId"], block, _meta=hostile)

        assert initialized["protocolVersion"] == 1
        assert result == {"stopReason": "end_turn"}
        assert (project / "note.txt").read_text() == "written"
        assert peer.called() == {"session/update", "session/request_permission"}


@pytest.mark.req("ACP-INIT-002")
@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}]', -32600, None),
        (b"[" * 100_000, -32700, None),
        (b"{broken", -32700, None),
        (b"hello", -32700, None),
        (b'"text"', -32600, None),
        (b"42", -32600, None),
        (b"null", -32600, None),
        (b'{"foo":"bar"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"initialize"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":true,"method":"initialize"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"initialize"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":7}', -32600, 1),
        (b'\xff\xfe{"jsonrpc":"2.0"}', -32700, None),
    ],
    ids=lambda value: value[:40].decode(errors="replace") if isinstance(value, bytes) else str(value),
)
async def test_lines_that_are_no_messages_are_answered_and_forgotten(
    tmp_path: Path, line: bytes, code: int, request_id: int | None
) -> None:
    async with agent(tmp_path) as (peer, session_id):
        before = len(peer.frames)
        await peer.send_line(line)
        await peer.until(lambda frame: "error" in frame)

        answers = [frame for frame in peer.frames[before:] if "error" in frame]
        assert [(frame["id"], frame["error"]["code"]) for frame in answers] == [(request_id, code)]
        assert await peer.prompt(session_id, "Hello") == {"stopReason": "end_turn"}


@pytest.mark.parametrize("text", ["a\\u0000b", "\\ud83d"], ids=["NUL", "half a surrogate pair"])
async def test_text_that_cannot_be_stored_is_refused_under_the_id_of_its_request(tmp_path: Path, text: str) -> None:
    async with agent(tmp_path) as (peer, session_id):
        params = f'{{"sessionId":"{session_id}","prompt":[{{"type":"text","text":"{text}"}}]}}'
        await peer.send_line(f'{{"jsonrpc":"2.0","id":"odd","method":"session/prompt","params":{params}}}'.encode())

        assert (await peer.answer_to("odd"))["error"]["code"] == -32700


@pytest.mark.req("ACP-INIT-002")
async def test_empty_lines_and_answers_that_were_not_asked_for_are_ignored(tmp_path: Path) -> None:
    async with agent(tmp_path) as (peer, session_id):
        for frame in (
            {"id": 99, "result": {}},
            {"id": "x", "error": {"code": 1, "message": "No"}},
            {"id": None, "result": 1},
        ):
            await peer.send_line(json.dumps({"jsonrpc": "2.0", **frame}).encode())

        assert await peer.prompt(session_id, "Hello") == {"stopReason": "end_turn"}


async def test_an_image_of_40_mb_gets_an_answer_and_the_process_lives(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with acp_process(tmp_path, TALK) as process, AcpPeer(process) as peer:
        await peer.initialize()
        session_id = (await peer.new_session(project))["sessionId"]
        data = base64.b64encode(bytes(30 * 1024 * 1024)).decode()
        block = {"type": "image", "data": data, "mimeType": "image/png"}
        await peer.send(
            {"id": "big", "method": "session/prompt", "params": peer.prompt_params(session_id, "See", block)}
        )
        answer = await peer.until(lambda frame: "method" not in frame and frame["id"] in ("big", None))

        assert "result" in answer or answer["error"]["code"] in (-32600, -32602), answer
        assert await peer.prompt(session_id, "Hello") == {"stopReason": "end_turn"}


async def test_half_a_line_and_then_the_end_of_input_ends_the_process(tmp_path: Path) -> None:
    async with acp_process(tmp_path, TALK) as process, AcpPeer(process) as peer:
        await peer.initialize()
        assert process.process.stdin is not None
        half = b'{"jsonrpc":"2.0","id":7,"method":"session/n'
        peer.checker.received(half)
        process.process.stdin.write(half)
        process.end_input()
        began = time.monotonic()

        assert await process.ended() == 0
        assert time.monotonic() - began < 1 * slack()
        assert "Traceback" not in process.said()
