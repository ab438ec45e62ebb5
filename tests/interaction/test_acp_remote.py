"""The agent at `/acp` of a server: whole turns over both transports, the same session for other clients, and what each
token may do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.acp_client import AcpClient, RpcFailed
from support.acp_remote import remote_channel
from support.minicodex_client import BOTH
from support.serving import BEARER, Site, serving
from support.tokens import bearer, make_token

KINDS = ("http", "websocket")
WRITES = 'tool: write {"path": "made.txt", "content": "x"}\n---\nsay: It is written.'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server was started: the one folder that a prompt token may use without more ado."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@asynccontextmanager
async def remote(site: Site, kind: str = "http", headers: Mapping[str, str] = BEARER) -> AsyncIterator[AcpClient]:
    client = AcpClient(await remote_channel(kind, site.http, f"{site.url}/acp", headers))
    try:
        await client.initialize()
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_with_a_question_that_the_page_sees_too(tmp_path: Path, project: Path, kind: str) -> None:
    async with serving(tmp_path, WRITES, acp=True) as site, remote(site, kind) as client:
        session_id = await client.new_session(project)
        page = await site.client(session_id, *BOTH)
        turn = client.prompt(session_id, "Write it")
        await page.until("approval_pending")
        asked = await client.until_asked("session/request_permission")
        once = next(one for one in asked["params"]["options"] if one["kind"] == "allow_once")
        await client.answer(asked, {"outcome": {"outcome": "selected", "optionId": once["optionId"]}})
        assert (await turn)["stopReason"] == "end_turn"
        assert client.text(session_id) == "It is written."
        assert (project / "made.txt").read_text() == "x"
        await page.until_over()
        await page.close()
        assert (await site.ask("GET", f"/api/sessions/{session_id}"))[1]["status"] == "finished"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_is_loaded_again_after_its_connection_was_lost(
    tmp_path: Path, project: Path, kind: str
) -> None:
    async with serving(tmp_path, "say: Hello to you.", acp=True) as site:
        async with remote(site, kind) as client:
            session_id = await client.new_session(project)
            assert await client.run(session_id, "Hi") == "end_turn"
        async with remote(site, kind) as client:
            await client.ask("session/load", {"sessionId": session_id, "cwd": str(project), "mcpServers": []})
            assert client.text(session_id, "user_message_chunk") == "Hi"
            assert client.text(session_id) == "Hello to you."


async def test_a_token_does_over_acp_what_its_scope_allows_and_no_more(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, WRITES, acp=True) as site:
        watching = bearer((await make_token(site.sessions, "observe"))[1])
        prompting = bearer((await make_token(site.sessions, "prompt"))[1])
        async with remote(site, headers=watching) as client:
            with pytest.raises(RpcFailed, match="has the scope observe; create session needs prompt"):
                await client.new_session(project)
            assert (await client.ask("session/list", {}))["sessions"] == []
        async with remote(site, headers=prompting) as client:
            with pytest.raises(RpcFailed, match="does not open"):
                await client.new_session(tmp_path)
            server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
            with pytest.raises(RpcFailed):
                await client.new_session(project, [server])
            session_id = await client.new_session(project)
            with pytest.raises(RpcFailed, match="scope prompt"):
                await client.ask("session/set_mode", {"sessionId": session_id, "modeId": "never_ask"})
            with pytest.raises(RpcFailed, match="scope prompt"):
                await client.ask("session/delete", {"sessionId": session_id})
            assert (await client.ask("session/list", {}))["sessions"][0]["sessionId"] == session_id


async def test_a_token_of_one_session_reaches_no_other_over_acp(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, WRITES, acp=True) as site:
        own, other = await site.session(cwd=project), await site.session(cwd=project)
        token = (await make_token(site.sessions, "approve", session_id=own))[1]
        async with remote(site, headers=bearer(token)) as client:
            listed = (await client.ask("session/list", {}))["sessions"]
            assert [one["sessionId"] for one in listed] == [own]
            with pytest.raises(RpcFailed):
                await client.ask("session/load", {"sessionId": other, "cwd": str(project), "mcpServers": []})
            with pytest.raises(RpcFailed):
                await client.new_session(project)


async def test_without_the_flag_there_is_no_such_address(tmp_path: Path) -> None:
    async with serving(tmp_path, WRITES) as site:
        assert (await site.ask("POST", "/acp", {"jsonrpc": "2.0", "id": 0, "method": "initialize"}))[0] == 404
