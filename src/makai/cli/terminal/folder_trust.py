"""Whether a folder's project files may configure the agent: which files there are, and the question about them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from makai.agent.project_trust import wanted_by_servers
from makai.agent.prompt import INSTRUCTION_FILES, SKILL_FOLDERS, project_directories
from makai.cli.console import say
from makai.cli.line_reader import LineReader
from makai.core.approval_text import diff_lines
from makai.core.visible_text import one_line
from makai.sessions.requests import GetTrust, SetTrust
from makai.sessions.service import Sessions

CONFIGURATION: Final = (*INSTRUCTION_FILES, ".makai", ".mcp.json", *SKILL_FOLDERS)


def project_files(cwd: str) -> list[str]:
    """Existing configuration files, from the root of the repository down to the folder. None of them is read."""
    folders = project_directories(Path(cwd))
    root = folders[-1]
    found = [directory / name for directory in folders for name in CONFIGURATION if _exists(directory / name)]
    inside = [path for path in found if not any(other in path.parents for other in found)]
    return [str(path.relative_to(root)) for path in inside]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


async def ask_about_trust(sessions: Sessions, folder: str) -> None:
    """Ask once, before files of the folder could instruct the agent. Without a terminal nothing is trusted."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    files = project_files(folder)
    if not files:
        return
    known = await sessions.dispatch(GetTrust(folder))
    if known.trusted and not known.changed:
        return
    if known.trusted:
        names = ", ".join(one_line(diff.path) for diff in known.changed)
        say(f"\nThis folder has project files that are new or changed since you trusted it: {names}.")
        for line in (line for diff in known.changed for line in diff_lines(diff)):
            say(f"  {line.text}")
    else:
        say(f"\nThis folder has project files: {', '.join(map(one_line, files))}.")
    for wanted in wanted_by_servers(folder):
        say(f"  {wanted}")
    say("They can instruct the agent and start programs. Do you trust this folder? [y/N] ", end="")
    if (await LineReader().next() or "").strip().lower() in ("y", "yes"):
        await sessions.dispatch(SetTrust(folder, True))
    else:
        say("Not trusted: their instructions are not read, and nothing they configure starts. Change it with /trust.")
