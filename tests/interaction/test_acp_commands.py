"""Slash commands that the user or a project wrote as files, in an editor: offered, and expanded as in the terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.acp_client import AcpClient, Place, acp_place, connected
from support.live_sessions import trust_folder, whole_log

from makai.core import session_events as ev
from makai.core.content import SessionPart, own_words

FIX = "---\ndescription: Fix an issue\nargument-hint: NUMBER\n---\nFix issue $1 of $ARGUMENTS."


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with acp_place(tmp_path, "say: Done.") as made:
        yield made


@pytest.fixture
async def client(place: Place) -> AsyncIterator[AcpClient]:
    async with connected(place.server) as made:
        await made.initialize()
        yield made


@pytest.mark.req("ACP-UPD-010")
async def test_commands_of_a_trusted_project_are_offered_and_expanded(client: AcpClient, place: Place) -> None:
    commands = place.folder / ".makai/commands"
    commands.mkdir(parents=True)
    (commands / "fix.md").write_text(FIX)
    untrusted = await client.new_session(place.folder)
    await client.run(untrusted, "/fix 7 now")
    await trust_folder(place.sessions, place.folder)
    session_id = await client.new_session(place.folder)
    await client.until(lambda: bool(client.updates(session_id, "available_commands_update")))
    link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
    await client.run(session_id, "/fix 7 now")
    await client.ask("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": "/FIX 8"}, link]})
    await client.run(session_id, "/fixed 7")

    # The end of a run looks at the files again, in its own time: the folder may be trusted by then.
    before, *_ = client.updates(untrusted, "available_commands_update")
    *_, after = client.updates(session_id, "available_commands_update")
    built_in = ["compact", "undo", "redo", "diff"]
    assert [command["name"] for command in before["availableCommands"]] == built_in
    assert [command["name"] for command in after["availableCommands"]] == [*built_in, "fix"]
    offered = {"name": "fix", "description": "Fix an issue", "input": {"hint": "NUMBER"}}
    assert after["availableCommands"][-1] == offered
    assert [own_words(each) for each in await inputs_of(place, untrusted)] == ["/fix 7 now"]
    said = [own_words(each) for each in await inputs_of(place, session_id)]
    assert [said[0], said[1].splitlines()[0], said[2]] == ["Fix issue 7 of 7 now.", "Fix issue 8 of 8.", "/fixed 7"]


async def test_a_command_that_the_agent_wrote_is_offered_after_its_run(client: AcpClient, place: Place) -> None:
    await trust_folder(place.sessions, place.folder)
    session_id = await client.new_session(place.folder)
    await client.until(lambda: bool(client.updates(session_id, "available_commands_update")))
    (place.folder / ".makai/commands").mkdir(parents=True)
    (place.folder / ".makai/commands/later.md").write_text("Later.")
    await client.run(session_id, "Hi")
    await client.until(lambda: "later" in repr(client.updates(session_id, "available_commands_update")[-1]))


async def test_a_command_in_a_subfolder_is_offered_and_expanded(client: AcpClient, place: Place) -> None:
    (place.folder / ".makai/commands/git").mkdir(parents=True)
    (place.folder / ".makai/commands/git/commit.md").write_text("Commit $1.")
    await trust_folder(place.sessions, place.folder)
    session_id = await client.new_session(place.folder)
    await client.until(lambda: "git:commit" in repr(client.updates(session_id, "available_commands_update")))
    await client.run(session_id, "/git:commit all")

    assert [own_words(each) for each in await inputs_of(place, session_id)] == ["Commit all."]


async def inputs_of(place: Place, session_id: str) -> list[str | tuple[SessionPart, ...]]:
    log = await whole_log(place.sessions, session_id)
    return [logged.event.content for logged in log if isinstance(logged.event, ev.UserInput)]
