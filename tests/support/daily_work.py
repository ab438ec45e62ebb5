"""A project to work on, an index with one package, and a session whose questions a person answers as planned."""

from __future__ import annotations

import contextlib
import http.server
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from makai.agent import workbench
from makai.core import session_events as ev
from makai.sessions.commands import ApproveCall, DenyCall
from makai.tools.sandbox.detect import Detection, SandboxBackend, try_bubblewrap, try_landlock
from support.live_sessions import Desk, new_session

PYTHON = os.path.realpath(sys.executable)
BACKENDS: dict[str, Callable[[], SandboxBackend | str]] = {"bubblewrap": try_bubblewrap, "landlock": try_landlock}


def use_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions use this sandbox; skips where it does not work."""
    found = BACKENDS[name]()
    if isinstance(found, str):
        pytest.skip(f"{found}: NOT tested")
    monkeypatch.setattr(workbench, "detect", lambda: Detection(backend=found))


def make_project(folder: Path) -> Path:
    """A repository with a test; the user's git identity is in the home folder."""
    project = folder / "project"
    (project / "src").mkdir(parents=True)
    (folder / ".gitconfig").write_text(
        "[user]\n\tname = Ada\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n"
    )
    (project / "src/sums.py").write_text("def add(a, b):\n    return a - b\n")
    check = "import sums\nassert sums.add(2, 3) == 5, sums.add(2, 3)\nprint('ok')\n"
    (project / "src/check.py").write_text(check)
    (project / "Makefile").write_text("test:\n\t@cd src && python3 check.py\n")
    (project / ".gitignore").write_text(".venv/\n__pycache__/\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Add sums"]):
        git(project, *command)
    return project


def git(folder: Path, *arguments: str) -> str:
    """Its output; the user's identity is in the folder above."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environ, check=True, timeout=60, capture_output=True, text=True
    )
    return done.stdout


@contextlib.contextmanager
def package_index(folder: Path) -> Iterator[str]:
    """The address of an index on this machine that has the package `greeting`."""
    page = folder / "index/simple/greeting"
    page.mkdir(parents=True)
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(page / name, "w") as wheel:
        wheel.writestr("greeting.py", "print('hello from greeting')\n")
        wheel.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("greeting-1.0.dist-info/RECORD", "")
    (page / "index.html").write_text(f"<a href='{name}'>{name}</a>")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder / "index"))

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        server.shutdown()


def shell(command: str, **asks: Any) -> str:
    """A line of a scenario."""
    return f"tool: shell {msgspec.json.encode({'command': command, 'timeout_s': 120, **asks}).decode()}"


@contextlib.asynccontextmanager
async def session(
    folder: Path,
    project: Path,
    scenario: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    mode: ev.PermissionMode = "ask",
) -> AsyncIterator[Desk]:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    async with new_session(folder, "\n---\n".join(scenario), cwd=project, mode=mode) as (_, desk):
        yield desk


async def work(
    desk: Desk, text: str, *answers: tuple[ev.GrantScope, str] | None, terms: ev.RunTerms | None = None
) -> None:
    """Send a message and answer the questions of its run in order: with a scope and a rule, or no. It fails when there
    are more or fewer questions."""
    await desk.send(text, terms=terms)
    for answer in answers:
        asked = await desk.until_asked()
        if answer is None:
            await desk.do(DenyCall(now=0, call_id=asked.call_id, by="Ada"))
        else:
            scope, grant = answer
            await desk.do(
                ApproveCall(now=0, call_id=asked.call_id, by="Ada", scope=scope, grant=grant, digest=asked.digest)
            )
    settled = await desk.until(
        lambda logged: isinstance(logged.event, ev.RunFinished | ev.RunFailed | ev.ApprovalRequested)
    )
    assert isinstance(settled.event, ev.RunFinished), settled.event


def results(desk: Desk) -> list[tuple[int | None, str]]:
    """Exit code and output of every call so far."""
    return [
        (event.exit_code, "".join(getattr(part, "text", "") for part in event.content))
        for event in desk.events(ev.ToolFinished)
    ]
