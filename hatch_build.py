"""Build hook: every sdist and wheel contains the page of `makai serve`. A checkout that has none builds it with npm; a
build without npm says what is missing and continues, because everything else works without the page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHIN_S = 900
COMMANDS = (("ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev"), ("run", "build", "--silent"))
MISSING = (
    "the page of `makai serve` is not part of this build: {why}. Install Node.js 20.19 or newer with npm, run "
    "`make page`, then build again; everything else works without it."
)


class BuildPage(BuildHookInterface):  # type: ignore[type-arg, misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / "src/makai/server/page/index.html").is_file():
            return
        npm = shutil.which("npm")
        if npm is None:
            self.app.display_warning(MISSING.format(why="npm is not installed"))
            return
        for arguments in COMMANDS:
            try:
                subprocess.run([npm, *arguments], cwd=root / "web", check=True, timeout=WITHIN_S)
            except (OSError, subprocess.SubprocessError) as error:
                self.app.display_warning(MISSING.format(why=f"npm failed ({error})"))
                return
