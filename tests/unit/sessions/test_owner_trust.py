"""Trust holds for the content of a project's files: what is new or changed asks again, and people see what it is."""

from __future__ import annotations

from pathlib import Path

from support.live_sessions import owned_sessions, trust_folder

from makai.agent.project_trust import digest_of
from makai.core.session_events import FileDiff
from makai.sessions import requests as req


async def test_a_changed_file_is_shown_until_the_folder_is_trusted_again(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text("{}\n")
    folder = str(project)
    async with owned_sessions(tmp_path, "echo") as sessions:
        before = await sessions.dispatch(req.GetTrust(folder))
        await trust_folder(sessions, project)
        trusted = await sessions.dispatch(req.GetTrust(folder))
        (project / ".mcp.json").write_text('{"mcpServers": {}}\n')
        (project / ".makai").mkdir()
        (project / ".makai/config.toml").write_bytes(b"mode\xff")
        changed = await sessions.dispatch(req.GetTrust(folder))
        await trust_folder(sessions, project)
        again = await sessions.dispatch(req.GetTrust(folder))

    unusable = (".mcp.json is not usable: Object missing required field `mcpServers`.",)
    first = {".mcp.json": digest_of(b"{}\n")}
    later = {".makai/config.toml": digest_of(b"mode\xff"), ".mcp.json": digest_of(b'{"mcpServers": {}}\n')}
    settings = (".makai/config.toml sets:", "  mode\\xff")
    assert (before, trusted, again) == (
        req.FolderTrust(trusted=False, wanted=unusable, digests=first),
        req.FolderTrust(trusted=True, wanted=unusable, digests=first),
        req.FolderTrust(trusted=True, wanted=settings, digests=later),
    )
    assert changed == req.FolderTrust(
        trusted=True,
        changed=(
            FileDiff(path=".makai/config.toml", old_text=None, new_text="mode\\xff"),
            FileDiff(path=".mcp.json", old_text="{}\n", new_text='{"mcpServers": {}}\n'),
        ),
        wanted=settings,
        digests=later,
    )


async def test_only_what_was_shown_is_trusted(tmp_path: Path) -> None:
    folder = str(tmp_path / "project")
    servers = tmp_path / "project/.mcp.json"
    servers.parent.mkdir()
    servers.write_text('{"mcpServers": {"a": {"command": "good"}}}')
    async with owned_sessions(tmp_path, "echo") as sessions:
        shown = await sessions.dispatch(req.GetTrust(folder))
        servers.write_text('{"mcpServers": {"a": {"command": "evil"}}}')
        answers = [await sessions.dispatch(req.SetTrust(folder, True, seen)) for seen in (shown.digests, {})]
        refused = await sessions.dispatch(req.GetTrust(folder))
        again = await sessions.dispatch(req.SetTrust(folder, True, refused.digests))
        servers.unlink()
        fewer = await sessions.dispatch(req.SetTrust(folder, True, refused.digests))
        distrusted = await sessions.dispatch(req.SetTrust(folder, False))

    assert (shown.wanted, refused.wanted) == (("MCP server a: runs good",), ("MCP server a: runs evil",))
    assert (answers, refused.trusted, again, fewer, distrusted) == ([False, False], False, True, False, True)


async def test_trust_in_a_folder_is_no_trust_in_files_below_it_that_no_one_saw(tmp_path: Path) -> None:
    (tmp_path / "project/sub").mkdir(parents=True)
    async with owned_sessions(tmp_path, "echo") as sessions:
        await trust_folder(sessions, tmp_path / "project")
        (tmp_path / "project/sub/.mcp.json").write_text("{}")
        below = await sessions.dispatch(req.GetTrust(str(tmp_path / "project/sub")))

    assert (below.trusted, [diff.path for diff in below.changed]) == (True, [".mcp.json"])
