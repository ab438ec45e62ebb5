"""Judges commands as the product does, for tests of what runs unasked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from makai.core.session_events import FilePlace, PermissionMode
from makai.tools.base import CallDescription
from makai.tools.permissions.judge import Verdict
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.rules import PermissionRules, parse_rules


def rules_in(root: str, **written: list[str]) -> PermissionRules:
    parsed = parse_rules(workspace=root, **written)
    return PermissionRules(
        workspace=root, allow=parsed.allow, ask=parsed.ask, deny=parsed.deny, looking_roots=(root, "/srv/lib")
    )


def command(text: str, folder: str) -> CallDescription:
    return CallDescription(kind="execute", title="", subject=text, locations=(FilePlace(folder),))


async def judged(text: str, root: Path, *, mode: PermissionMode = "ask", **written: list[str]) -> Verdict:
    rules = rules_in(str(root), **written)
    return await judge_call(mode, rules, [], "shell", command(text, str(root)), is_clients_own=False)


async def unasked(text: str, root: Path, **written: list[str]) -> bool:
    return (await judged(text, root, mode="ask", **written)).decision == "allow"


def git(folder: Path, *words: str) -> None:
    """Run git with the configuration of the repository alone."""
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    named += ["-c", "protocol.file.allow=always"]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *named, *words], cwd=folder, env=environ, check=True, capture_output=True, timeout=30)
