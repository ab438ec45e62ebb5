"""Whether a folder's project files may configure the agent: which files there are, and the question about them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from makai.agent.prompt import INSTRUCTION_FILES, SKILL_FOLDERS, project_directories
from makai.cli.console import tell
from makai.cli.early_prompt import EARLY_PROMPT
from makai.cli.line_reader import LineReader
from makai.core.approval_text import diff_lines
from makai.core.visible_text import exact_line
from makai.sessions.requests import FolderTrust, GetTrust, SetTrust
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


async def ask_about_trust(sessions: Sessions, folder: str) -> bool:
    """Ask once, before files of the folder could instruct the agent. Without a terminal nothing is trusted. Returns
    whether files count now that did not before."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    files = project_files(folder)
    if not files:
        return False
    while True:
        known = await sessions.dispatch(GetTrust(folder))
        if known.trusted and not known.changed:
            return False
        for line in trust_lines(known, files):
            tell(line)
        with EARLY_PROMPT.set_aside():
            tell("They can instruct the agent and start programs. Do you trust this folder? [y/N] ", end="")
            answer = await LineReader().next()
        if (answer or "").strip().lower() not in ("y", "yes"):
            tell(NOT_TRUSTED)
            return False
        if await sessions.dispatch(SetTrust(folder, True, known.digests)):
            return True
        tell(CHANGED_MEANWHILE)


NOT_TRUSTED: Final = (
    "Not trusted: their instructions are not read, and nothing they configure starts. Change it with /trust."
)
CHANGED_MEANWHILE: Final = "The project files changed after they were shown, so nothing was decided. They are now:"


def trust_lines(known: FolderTrust, files: Sequence[str]) -> Iterator[str]:
    """What a person has to see who decides about a folder: which files there are, and all that they set."""
    if known.trusted and known.changed:
        names = ", ".join(exact_line(diff.path) for diff in known.changed)
        yield f"\nThis folder has project files that are new or changed since you trusted it: {names}."
        yield from (f"  {line.text}" for diff in known.changed for line in diff_lines(diff))
    else:
        yield f"\nThis folder has project files: {', '.join(map(exact_line, files))}."
    yield from (f"  {wanted}" for wanted in known.wanted)
