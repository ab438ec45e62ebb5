"""Build hook: every sdist and wheel contains the page of `makai serve`, or is not built.

A checkout without a built page builds it with npm. The sdist brings the built page along, so that a wheel can be built
from it without npm. An editable install needs no page: `make page` adds it later.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHIN_S = 900
INSTALL = ("ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev")
BUILD = ("run", "build", "--silent")
MISSING = (
    "The page of `makai serve` is not built: {why}. Install Node.js 20.19 or newer with npm and try again. Without "
    "npm, install a release (`pip install makai`): its wheel and its source package contain the page."
)


class BuildPage(BuildHookInterface):  # type: ignore[type-arg, misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        page = root / "src/makai/server/page/index.html"
        if version == "editable" or page.is_file():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit(MISSING.format(why="npm is not installed"))
        for arguments in (INSTALL, BUILD):
            try:
                subprocess.run([npm, *arguments], cwd=root / "web", check=True, timeout=WITHIN_S)
            except (OSError, subprocess.SubprocessError) as error:
                raise SystemExit(MISSING.format(why=f"npm failed ({error})")) from error
        if not page.is_file():
            raise SystemExit(MISSING.format(why="npm wrote no index.html"))
