"""Undo as clients see it: slash commands of an editor, commands of MiniCodex, and the routes of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.acp_client import AcpClient, RpcFailed, acp_place, connected
from support.live_sessions import SCENARIO_MODEL, Desk
from support.minicodex import BOTH
from support.serving import serving

from makai.core import session_events as ev
from makai.sessions.requests import CreateSession

WRITES = """\
say: I write.
tool: write {"path": "a.txt", "content": "new\\n"}
tool: shell {"command": "ls"}
---
say: Done.
"""
TERMS = ev.SessionTerms(builtin_tools=True)


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[tuple[AcpClient, Path, str]]:
    """An editor whose agent has written a file."""
    async with acp_place(tmp_path, WRITES) as place, connected(place.server) as client:
        (place.folder / "a.txt").write_text("old\n")
        await client.initialize()
        wanted = CreateSession(model_ref=SCENARIO_MODEL, mode="accept_edits", cwd=str(place.folder), terms=TERMS)
        session_id = await place.sessions.dispatch(wanted)
        await Desk(place.sessions, session_id).run("Write it")
        named = {"sessionId": session_id, "cwd": str(place.folder), "mcpServers": []}
        await client.ask("session/load", named)
        yield client, place.folder, session_id


async def said(client: AcpClient, session_id: str, text: str) -> str:
    """What the answer to a prompt says. Updates are sent before it."""
    known = len(client.updates(session_id, "agent_message_chunk"))
    assert await client.run(session_id, text) == "end_turn"
    chunks = client.updates(session_id, "agent_message_chunk")[known:]
    return "".join(chunk["content"]["text"] for chunk in chunks)


async def test_an_editor_shows_what_an_undo_would_do_and_confirms_it(editor: tuple[AcpClient, Path, str]) -> None:
    client, folder, session_id = editor
    path = f"{folder}/a.txt"
    preview = await said(client, session_id, "/undo")
    unclear = await failure_of(client, session_id, "/undo 0")
    unknown = await failure_of(client, session_id, "/undo other.txt")

    assert preview == (
        f'Undo the file changes since the message "Write it":\n  restore     {path}  +1 -1\n'
        "Nothing is changed yet. Confirm it with `/undo yes`."
    )
    assert "/undo 0 is unclear" in unclear
    assert f"There is nothing to undo in {folder}/other.txt. The files are: `{path}`." in unknown
    assert (folder / "a.txt").read_text() == "new\n"
    assert f"{path}  +1 -1" in await said(client, session_id, "/diff")
    await said(client, session_id, "/undo yes")
    assert (folder / "a.txt").read_text() == "old\n"
    await said(client, session_id, "/redo a.txt yes")
    assert (folder / "a.txt").read_text() == "new\n"


async def failure_of(client: AcpClient, session_id: str, text: str) -> str:
    with pytest.raises(RpcFailed) as refused:
        await client.run(session_id, text)
    return str(refused.value)


async def test_a_client_of_minicodex_undoes_what_the_preview_showed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with serving(tmp_path, WRITES) as site:
        wanted = CreateSession(model_ref=SCENARIO_MODEL, mode="accept_edits", cwd=str(work), terms=TERMS)
        session_id = await site.sessions.dispatch(wanted)
        await Desk(site.sessions, session_id).run("Write it")
        client = await site.connect(session_id, *BOTH)
        await client.hello()
        _, plan = await site.ask("GET", f"/api/sessions/{session_id}/restore")
        _, diff = await site.ask("GET", f"/api/sessions/{session_id}/diff")
        wrong, _ = await site.ask("GET", f"/api/sessions/{session_id}/restore?direction=sideways")
        _, shown = await site.ask("GET", f"/api/sessions/{session_id}/restore?path=a.txt&diffs=1")
        unknown, refusal = await site.ask("GET", f"/api/sessions/{session_id}/restore?path=a.txt&path=b.txt")

        assert plan["files"] == [{"path": f"{work}/a.txt", "kind": "remove", "removed": 1}]
        assert diff == {"files": [{"path": f"{work}/a.txt", "old_text": None, "new_text": "new\n"}]}
        assert wrong == 400
        assert shown == {**plan, "diffs": [{"path": f"{work}/a.txt", "old_text": "new\n", "new_text": ""}]}
        assert (unknown, f"nothing to undo in {work}/b.txt" in refusal["error"]["message"]) == (400, True)
        assert await client.ask("undo", paths=["b.txt"]) == "BAD_ARGUMENT"
        assert await client.ask("undo", plan_id="another") == "INVALID_COMMAND"
        assert (work / "a.txt").exists()
        assert await client.ask("undo", plan_id=plan["plan_id"]) == "accepted"
        assert not (work / "a.txt").exists()
        assert await client.ask("redo", paths=["a.txt"]) == "accepted"
        assert (work / "a.txt").read_text() == "new\n"
        await client.close()
