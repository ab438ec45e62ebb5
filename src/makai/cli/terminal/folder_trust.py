"""Which files of a folder would configure the agent, if the folder were trusted.

In: a folder. Out: names of files. It looks whether they are there, and reads none of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from makai.agent.prompt import INSTRUCTION_FILES, SKILL_FOLDERS, project_root

CONFIGURATION: Final = (*INSTRUCTION_FILES, ".makai", ".mcp.json", *SKILL_FOLDERS)
QUESTION: Final = "They can instruct the agent and start programs. Trust this folder?"


def project_files(cwd: str) -> list[str]:
    """What is there of project configuration, from the root of the repository down to the folder."""
    folder = Path(cwd)
    root = project_root(folder)
    folders = [folder, *folder.parents]
    folders = folders[: folders.index(root) + 1]
    found = [directory / name for directory in folders for name in CONFIGURATION if _is_there(directory / name)]
    inside = [path for path in found if not any(other in path.parents for other in found)]
    return [str(path.relative_to(root)) for path in inside]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
