"""Trust holds for the content of a project's files: what is new or changed asks again, and people see what it is."""

from __future__ import annotations

from pathlib import Path

from support.live_sessions import owned_sessions

from makai.core.session_events import FileDiff
from makai.sessions import requests as req


async def test_a_changed_file_is_shown_until_the_folder_is_trusted_again(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text("{}\n")
    folder = str(project)
    async with owned_sessions(tmp_path, "echo") as sessions:
        before = await sessions.dispatch(req.GetTrust(folder))
        await sessions.dispatch(req.SetTrust(folder, True))
        trusted = await sessions.dispatch(req.GetTrust(folder))
        (project / ".mcp.json").write_text('{"mcpServers": {}}\n')
        (project / ".makai").mkdir()
        (project / ".makai/config.toml").write_bytes(b"\xff")
        changed = await sessions.dispatch(req.GetTrust(folder))
        await sessions.dispatch(req.SetTrust(folder, True))
        again = await sessions.dispatch(req.GetTrust(folder))

    assert (before, trusted, again) == (
        req.FolderTrust(trusted=False),
        req.FolderTrust(trusted=True),
        req.FolderTrust(trusted=True),
    )
    assert changed == req.FolderTrust(
        trusted=True,
        changed=(
            FileDiff(path=".makai/config.toml", old_text=None, new_text=""),
            FileDiff(path=".mcp.json", old_text="{}\n", new_text='{"mcpServers": {}}\n'),
        ),
    )


async def test_trust_in_a_folder_is_no_trust_in_files_below_it_that_no_one_saw(tmp_path: Path) -> None:
    (tmp_path / "project/sub").mkdir(parents=True)
    async with owned_sessions(tmp_path, "echo") as sessions:
        await sessions.dispatch(req.SetTrust(str(tmp_path / "project"), True))
        (tmp_path / "project/sub/.mcp.json").write_text("{}")
        below = await sessions.dispatch(req.GetTrust(str(tmp_path / "project/sub")))

    assert (below.trusted, [diff.path for diff in below.changed]) == (True, [".mcp.json"])
