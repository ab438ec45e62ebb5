"""Files, commands and composed messages for the page's message field, over plain HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.minicodex_client import BOTH
from support.serving import Site, serving
from support.tokens import bearer, make_token

from makai.agent.builtin_prompts import REVIEW


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("notes")
    (folder / "ignored.log").touch()
    (folder / ".gitignore").write_text("*.log\n")
    home = tmp_path / "makai-home"
    (home / "commands").mkdir(parents=True)
    (home / "commands" / "greet.md").write_text("---\nargument-hint: NAME\n---\nGreet $1.")
    home.chmod(0o700)
    monkeypatch.setenv("MAKAI_HOME", str(home))
    monkeypatch.chdir(folder)
    return folder


async def composed(site: Site, session_id: str, text: str) -> tuple[int, Any]:
    return await site.ask("POST", f"/api/sessions/{session_id}/compose", {"text": text})


async def test_files_are_found_by_their_letters_without_ignored_ones_and_without_others(
    tmp_path: Path, project: Path
) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session(cwd=project)
        for base in (f"/api/sessions/{session_id}/files?", f"/api/files?folder={project}&"):
            found = {"paths": ["notes.txt"], "is_complete": True}
            assert await site.ask("GET", f"{base}prefix=nt") == (200, found)
            for prefix in ("ignored", "/etc/pass", "~/", "../", "a/../../"):
                assert (await site.ask("GET", f"{base}prefix={prefix}"))[1]["paths"] == [], prefix


async def test_names_that_are_not_utf_8_hide_no_others(tmp_path: Path, project: Path) -> None:
    (project / os.fsdecode(b"notes-\xff.txt")).touch()
    (project / os.fsdecode(b"\xff") / "inner").mkdir(parents=True)
    (project / "link").symlink_to(os.fsdecode(b"\xff"))
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session(cwd=project)
        for base in (f"/api/sessions/{session_id}/files?", f"/api/files?folder={project}&"):
            assert (await site.ask("GET", f"{base}prefix=notes"))[1]["paths"] == ["notes.txt"]
        status, listed = await site.ask("GET", f"/api/folders?path={project}/link/")
        assert (status, listed["folders"]) == (200, [f"{project}/\ufffd/inner"])


async def test_a_prompt_token_completes_only_in_folders_in_which_it_may_begin_sessions(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        headers = bearer((await make_token(site.sessions, "prompt"))[1])
        for path in ("/api/files?folder=/etc&prefix=", "/api/commands?folder=/etc"):
            assert (await site.ask("GET", path, headers=headers))[0] == 403
        assert (await site.ask("GET", "/api/files?prefix=notes", headers=headers))[1]["paths"] == ["notes.txt"]


async def test_commands_of_files_are_listed_and_become_their_message(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session(cwd=project)
        greet = {"name": "greet", "description": "Greet $1.", "argument": "NAME"}
        assert await site.ask("GET", f"/api/sessions/{session_id}/commands") == (200, {"commands": [greet]})
        assert await site.ask("GET", f"/api/commands?folder={project}") == (200, {"commands": [greet]})
        plain: dict[str, Any] = {"files": [], "images": [], "notices": []}
        assert await composed(site, session_id, "/greet Ann") == (200, {"text": "Greet Ann."} | plain)
        assert await composed(site, session_id, "/review tests") == (200, {"text": f"{REVIEW}\n\ntests"} | plain)
        assert await composed(site, session_id, "/etc/hosts is odd") == (200, {"text": "/etc/hosts is odd"} | plain)
        status, body = await composed(site, session_id, "/nonsense")
        assert (status, body["error"]["message"]) == (400, "There is no command /nonsense.")


async def test_an_attached_file_is_in_the_log_as_the_terminal_attaches_it(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        session_id = await site.session(cwd=project)
        _, message = await composed(site, session_id, "Read @notes.txt")
        uri = (project / "notes.txt").as_uri()
        assert message["files"] == [{"uri": uri, "text": "notes"}]
        client = await site.client(session_id, *BOTH)
        assert await client.ask("send", text=message["text"], files=message["files"]) == "accepted"
        await client.until_over()
        _, shown = await site.ask("GET", f"/api/sessions/{session_id}/transcript")
        assert shown["items"][0]["text"] == f'Read @notes.txt\n<resource uri="{uri}">\nnotes\n</resource>'
        assert await client.ask("send", text="x", files=[{"uri": 'a:"><b>', "text": ""}]) == "BAD_ARGUMENT"
        await client.close()
